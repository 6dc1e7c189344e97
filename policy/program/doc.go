// Package program leaves a policy's decisions to a program of the user's own: a
// process that answers JSON lines on its standard input with lines on its
// standard output, as docs/policies.md describes. A Policy of this package is a
// policy.External.
package program
