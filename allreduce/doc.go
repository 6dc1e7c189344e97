// Package allreduce says what a quantised ring all-reduce is: which chunk a
// rank sends and receives in every step, how chunks are cut into pieces, what
// a frame's header looks like on the wire, and, slowly and plainly, what the
// result must be. It is pure: no transport, no clock, no goroutines.
//
// The ring has two phases of ranks-1 steps each. In the reduce-scatter every
// received chunk is added to the rank's own values and sent on, so that in the
// end rank r owns the finished chunk (r+1) mod ranks. In the all-gather the
// finished chunks travel once around, unchanged.
//
// The frames of one rank form one ordered sequence, sent on one stream to its
// successor: phase by phase, step by step, piece by piece. Every frame but
// those of the very first step answers exactly one received frame, in order,
// so each rank is a first-in-first-out pipeline.
package allreduce
