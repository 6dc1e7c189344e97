// Package allreduce says what a quantised all-reduce is: which chunk a rank
// sends and receives in every step, how chunks are cut into pieces, what a
// frame's header looks like on the wire, and, slowly and plainly, what the
// result must be. It is pure: no transport, no clock, no goroutines.
//
// The ring has two phases of ranks-1 steps each. In the reduce-scatter every
// received chunk is added to the rank's own values and sent on, so that in the
// end rank r owns the finished chunk (r+1) mod ranks. In the all-gather the
// finished chunks travel once around, unchanged.
//
// Where pieces lie within a chunk does not depend on the others, so a frame of
// the ring answers exactly one received frame: in every step the same piece of
// the chunk received in the step before. Only the frames of the very first step
// answer none. Frames may therefore overtake each other, over several
// connections, and every piece makes its own way around the ring.
//
// The direct algorithm has no steps: every rank sends its values of chunk c to
// rank c, and rank c sends the mean to all. The hierarchical one does so twice,
// inside groups of ranks and between them: see Groups.
package allreduce
