// Package sandbox runs a program and all its descendants in Linux namespaces of
// their own, so that nothing can be left behind.
//
//	outer process                    sandbox (new PID, network, mount, UTS, IPC
//	┌───────────┐  lifeline (fd 3)   namespaces; a user namespace if not root)
//	│ Start     │◄──────────────────►┌──────────────────────────────────────┐
//	│ Wait Kill │  Pdeathsig         │ PID 1: Init, BindNetNS, Start        │
//	└───────────┘                    │   ├─ process in network namespace w0 │
//	                                 │   └─ process in network namespace w1 │
//	                                 └──────────────────────────────────────┘
//
// The kernel kills every process of a PID namespace when its PID 1 dies, and
// frees the network namespaces, links and mounts that only those processes
// held. So only one thing has to be ensured: that PID 1 dies with the outer
// process. Two independent means ensure it: a parent-death signal, and a
// connection whose end PID 1 sees. No clean-up code has to run.
//
// Both sides are the same binary: Start re-executes /proc/self/exe with
// arguments of the caller's choice, and the program calls Init when it finds
// those arguments.
//
// A sandbox keeps a run apart from its machine. It is no defence against
// hostile programs: except for /proc and /run/netns, files are shared with the
// outside.
package sandbox
