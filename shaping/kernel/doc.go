// Package kernel installs a shaping.Plan with Linux network namespaces, veth
// pairs and traffic control, reads it back, counts what it drops and removes
// it. It is the only package that speaks netlink.
//
// Every node is a namespace with one interface, eth0, whose other end lies in
// the hub: the namespace of the thread that calls Build.
//
//	w0 (namespace)        hub (namespace)                       w1 (namespace)
//	┌────────────────┐    ┌────────────────────────────────┐    ┌──────┐
//	│     up ─▶ eth0 ├───▶│ w0 ─▶ carrier ─▶ down ─▶ w1     ├───▶│ eth0 │
//	└────────────────┘    └────────────────────────────────┘    └──────┘
//
//	up, down  rate_up and rate_down, a class per peer: HFSC with BackendNetem,
//	          HTB with BackendHTB and BackendBridge, none with BackendUser
//	carrier   BackendUser:   the router, which is the whole link
//	          BackendHTB:    the router, which delays and loses packets
//	          BackendNetem:  an ifb per node, to which its port's ingress leads,
//	          with a netem per peer; then a bridge
//	          BackendBridge: a bridge alone
//
// netem is not a leaf of HFSC, because that asks of its leaves that they give
// what they have: a class with packets that are not due would save up rate.
//
// Rates mean the same with all: they count Ethernet frames, a
// class per peer shares the rate fairly when several compete, and one alone
// takes all of it. So acknowledgements to one peer never wait behind data to
// another. The queue limit holds for each peer by itself. Above 64 peers
// they share 16 classes, by the low bits of the address, and one netem, unless
// pairs need their own: on 256 nodes 64 classes each took 13 s to install, 16
// take 2.
//
// Delay, jitter and loss must meet single packets, so eth0 carries
// gso_max_segs 1: the kernel still takes batches from senders, and cuts them
// up behind the queues of eth0, before they reach the hub. What remains of a
// batch is that its frames leave eth0 back to back; rate_down spaces them
// again where rate_down is not above rate_up. On a bridge alone batches
// stay whole on their way, as if network cards cut them up. Checksums stay offloaded (they
// are never computed between two namespaces), therefore a packet socket in
// the hub must speak virtio_net_hdr to pass frames on, as the router does.
//
// Nothing outlives its users: namespaces are anonymous, both ends of a veth
// are born where they live, and the hub is the caller's private namespace.
package kernel
