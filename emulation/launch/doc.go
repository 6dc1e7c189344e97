// Package launch starts a program once in every worker's node of an emulated network,
// with the environment that distributed programs expect, and ends all of them together.
//
//	user's process        job in the sandbox           agent, in each node     program
//	┌────────────┐ notes  ┌──────────────────────┐     ┌──────────────────┐
//	│ Run        │◄───────│ RunLaunch            │◄────│ RunAgent         │────► …
//	│ signals    │───────►│ Machine decides      │────►│ starts, signals, │
//	└────────────┘        │ what starts and ends │     │ kills, output    │
//	                      └──────────────────────┘     └──────────────────┘
//
// The Machine takes events with times and returns actions; it reads no clock
// and does nothing itself. An agent is on the host of its node. It finds
// everything that runs in the node by the namespaces of all processes, so that
// neither sessions nor daemons escape it.
package launch
