// Package kernel installs a shaping.Plan with Linux network namespaces, veth
// pairs and traffic control, reads it back, counts what it drops and removes
// it. It is the only package that speaks netlink.
//
// Every node is a namespace with one interface, eth0, whose other end lies in
// the hub: the namespace of the thread that calls Build.
//
//	w0 (namespace)        hub (namespace)                       w1 (namespace)
//	┌────────────────┐    ┌────────────────────────────────┐    ┌──────┐
//	│ HTB up ─▶ eth0 ├───▶│ w0 ─▶ carrier ─▶ HTB down ─▶ w1 ├───▶│ eth0 │
//	└────────────────┘    └────────────────────────────────┘    └──────┘
//
//	HTB      rate_up or rate_down, a class per peer; none with BackendUser
//	carrier  BackendUser:  the router, which is the whole link
//	         BackendHTB:   the router, which delays and loses packets
//	         BackendNetem: a bridge; the HTB's leaves are netem, each with a
//	         bfifo behind it where rate_down is limited
//	         BackendBridge: a bridge alone
//
// Rates mean the same with HTB and the router: they count Ethernet frames, a
// class per peer shares the rate fairly when several compete, and one alone
// takes all of it. So acknowledgements to one peer never wait behind data to
// another. The queue limit holds for each peer by itself. Above 64 peers
// they share 16 classes, by the low bits of the address, unless netem needs
// each pair's own: on 256 nodes 64 classes each took 13 s to install, 16 take 2.
//
// Delay, jitter and loss must meet single packets, so eth0 carries
// gso_max_segs 1: the kernel still takes batches from senders, and cuts them
// up behind the HTB of eth0, before they reach the hub. What remains of a
// batch is that its frames leave eth0 back to back; the hub's HTB spaces them
// again where rate_down is not above rate_up. On a bridge alone batches
// stay whole on their way, as if network cards cut them up. Checksums stay offloaded (they
// are never computed between two namespaces), therefore a packet socket in
// the hub must speak virtio_net_hdr to pass frames on, as the router does.
//
// Nothing outlives its users: namespaces are anonymous, both ends of a veth
// are born where they live, and the hub is the caller's private namespace.
package kernel
