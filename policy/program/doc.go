// Package program asks a program of the user's own what a policy decides: a process
// that answers JSON lines on its standard input with lines on its standard output, as
// docs/policies.md has it. A Policy of this package is a policy.External.
package program
