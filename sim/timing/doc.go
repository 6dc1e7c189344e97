// Package timing computes how long messages, reductions and fetches take on the
// links of a scenario's plan: the simulator's model of the network.
package timing
