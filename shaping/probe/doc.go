// Package probe measures the links of an emulated network and compares them
// with the plan. What to measure, what to expect of it and whether the result
// is right are pure functions; Prober, a thin driver, sends UDP datagrams
// between sockets in the nodes' namespaces.
//
// All nodes share the machine's clock, so one-way delays are exact: the
// sender stamps a probe just before it sends, the kernel when it arrives.
package probe
