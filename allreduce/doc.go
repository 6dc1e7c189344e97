// Package allreduce specifies the quantised all-reduce: which chunk a rank
// sends and receives in every step, how chunks are cut into pieces, and what a
// frame's header looks like. Slow and plain reference models define the result
// that every implementation must return. The package is pure: no transport, no
// clock, no goroutines.
//
// The ring has two phases of ranks-1 steps each. In the reduce-scatter every
// received chunk is added to the rank's own values and sent on, so that in the
// end rank r owns the finished chunk (r+1) mod ranks. In the all-gather the
// finished chunks travel once around, unchanged.
//
// The positions of pieces within a chunk do not depend on other chunks, so a
// frame of the ring answers exactly one received frame: in every step the same
// piece of the chunk received in the step before. Only the frames of the very
// first step answer none. Frames may therefore overtake each other, over
// several connections, and every piece makes its own way around the ring.
//
// The direct algorithm has no steps: every rank sends its values of chunk c to
// rank c, and rank c sends the mean to all. The hierarchical algorithm does
// this twice, inside groups of ranks and between them: see Groups.
package allreduce
