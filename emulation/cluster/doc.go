// Package cluster extends a network over several hosts.
//
// A cluster is all hosts of a run. The first one, where the user's command runs, is the
// leader; the underlay is the network between the hosts. Every host has a sandbox with
// its part of the emulated network, and the routers in them pass frames on to each
// other through a tunnel:
//
//	leader                                      another host
//
//	user's process                              testbed host
//	Gather, Place, Job ◄─ QUIC: orders, reports ─► Serve
//	     │                                          │
//	job, of any kind                            job RunHost
//	Connect, Hosts: a network.Remote            this host's network.Network
//	     │                                          │
//	router ◄═════════════ tunnel, UDP ═════════════► router
//
// Gather waits for the hosts that a Request asks for; each end proves that it
// has the run's token. Their Meters measure the underlay. Place uses the
// measurements to assign nodes to hosts. Manifests describes hosts that
// Kubernetes starts. Slurm can be asked to start them. Nothing else here starts
// a program on another machine.
package cluster
