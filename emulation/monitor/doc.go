//go:build linux

// Package monitor collects the measurements for the verdict on a run's
// emulation.
//
// A Monitor only computes. It is given observations with their times as values
// (Sample, the router's counts, the lateness of timers and injects), splits
// them into rounds and judges them. Machine, Links and QueueLog observe the
// real machine.
package monitor
