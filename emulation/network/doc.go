//go:build linux

// Package network is the common part of all jobs in a sandbox: the network of a
// plan, the processes on it, and the pipes between three generations of
// processes.
//
//	user's process          init of the sandbox             a process on the network
//	┌───────────┐ JobSpec   ┌────────────────────┐ spec     ┌──────────┐
//	│ Start     │──────────►│ RunInit: the job's │─────────►│ RunChild │
//	│ Job.Send  │ commands  │ function           │ commands │ Self     │
//	│ Job.Next  │◄──────────│ Supervisor, Child  │◄─────────│          │
//	└───────────┘ notes     │ Network            │ reports  └──────────┘
//	                        └────────────────────┘
//
// If a part of the network is on other hosts, the job that directs all of it
// reaches that part through a Remote. Its processes are Childs like the job's
// own.
//
// All are the same binary. Messages are JSON. A job and a child's program are
// named by their kind, and determine the form of their specs, data and
// commands. The caller defines the kinds: see package emulation.
package network

import "testbed/shaping/kernel"

// Arguments with which the binary starts itself again.
const (
	VerbInside = "inside-sandbox"
	VerbNode   = "inside-node"
)

// Link backends by their names for users.
const (
	LinksAuto  = "auto"
	LinksNetem = string(kernel.BackendNetem)
	LinksUser  = string(kernel.BackendUser)
	// LinksHTB is LinksUser with HTB's rates: see kernel.BackendHTB.
	LinksHTB = string(kernel.BackendHTB)
	// LinksBridge is for benchmarks alone: see kernel.BackendBridge.
	LinksBridge = string(kernel.BackendBridge)
)
