//go:build linux

// Package monitor says what the verdict on a run's emulation rests on.
//
// A Monitor only computes: it is given what was seen, and when, as values
// (Sample, the router's counts, how late timers and injects were), splits them
// into rounds and concludes. Machine, Links and QueueLog are what looks at the
// real thing.
package monitor
