// Package probe measures the links of an emulated network and compares them
// with the plan. What to measure (Survey), what to expect of it and whether the
// result is right are pure functions; Prober, a thin driver, sends UDP datagrams
// between sockets in the nodes' namespaces. There is one Prober on each host, and
// a Crew has all of them do the same step at the same time.
//
// All nodes of a host share its clock, so one-way delays are exact: the sender
// stamps a probe just before it sends it, the kernel when it arrives. Between two
// hosts they are as exact as the comparison of their clocks.
package probe
