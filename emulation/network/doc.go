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
// Where the network goes over several hosts (Spread), each has a sandbox. The
// leader's job gives orders to those of the others (away, RunShare), whose
// processes are Childs to it like its own.
//
// Every one is this same binary. What crosses a wire is JSON; a job and a
// child's program are named by their kind, and own the form of their specs,
// data and commands. Which kinds there are is the caller's business: see
// package host.
package network

// Arguments with which the binary starts itself again.
const (
	VerbInside = "inside-sandbox"
	VerbNode   = "inside-node"
)

// Link backends as a user names them.
const (
	LinksAuto  = "auto"
	LinksNetem = "netem"
	LinksUser  = "user"
	// LinksHTB is LinksUser with rates that are HTB's: see kernel.BackendHTB.
	LinksHTB = "htb"
	// LinksBridge is for benchmarks alone: see kernel.BackendBridge.
	LinksBridge = "bridge"
)

// LostError says which host of a run has gone, and why that is thought.
type LostError struct{ Host, Why string }

func (e *LostError) Error() string { return e.Why }
