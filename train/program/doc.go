// Package program runs trainers that are programs of the user's own: a train.Task
// whose inner steps are taken by a process for each worker, in any language. The
// two sides talk over a socket and share memory; package wire has the protocol.
//
// A program is judged by what it says and hands over, all of which is checked and
// copied before it is used: one that crashes, hangs, or says or leaves nonsense
// makes its trainer fail, and nothing else.
package program
