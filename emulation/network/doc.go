//go:build linux

// Package network is what every job in a sandbox has in common: the network
// of a plan, the processes on it, and the wires between three generations of
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
// Where a part of the network is on other hosts, the job that directs all of it
// reaches that part through a Remote, whose processes are Childs like its own.
//
// Every one is this same binary. What crosses a wire is JSON; a job and a
// child's program are named by their kind, and own the form of their specs,
// data and commands. Which kinds there are is the caller's business: see
// package emulation.
package network

import "testbed/shaping/kernel"

// Arguments with which the binary starts itself again.
const (
	VerbInside = "inside-sandbox"
	VerbNode   = "inside-node"
)

// Link backends as a user names them.
const (
	LinksAuto  = "auto"
	LinksNetem = string(kernel.BackendNetem)
	LinksUser  = string(kernel.BackendUser)
	// LinksHTB is LinksUser with rates that are HTB's: see kernel.BackendHTB.
	LinksHTB = string(kernel.BackendHTB)
	// LinksBridge is for benchmarks alone: see kernel.BackendBridge.
	LinksBridge = string(kernel.BackendBridge)
)
