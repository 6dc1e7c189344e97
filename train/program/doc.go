// Package program runs trainers that are programs of the user's own: a
// train.Task with a process for each worker, in any language, that takes its
// inner steps. The two sides communicate over a socket and share memory.
// Package wire has the protocol.
//
// A program's messages and data are checked and copied before they are used. A
// program that crashes, hangs or sends nonsense makes its trainer fail, and
// nothing else.
package program
