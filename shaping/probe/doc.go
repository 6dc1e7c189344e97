// Package probe measures the links of an emulated network and compares them
// with the plan. The choice of measurements (Survey), the expected results and
// their judgement are pure functions. Prober, a thin driver, sends UDP
// datagrams between sockets in the nodes' namespaces. There is one Prober on
// each host. A Crew makes all of them do the same step at the same time.
//
// All nodes of a host share its clock, so one-way delays are exact: the sender
// stamps a probe just before it sends it, and the kernel stamps it when it
// arrives. Between two hosts, delays are as exact as the comparison of the
// clocks.
package probe
