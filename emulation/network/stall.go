//go:build linux

package network

import (
	"fmt"
	"time"
)

// Each process reads the clock every stallTick. A gap that is longer by
// leastStall is a stall: the process was stopped or frozen, or had no
// processor.
const (
	stallTick  = 20 * time.Millisecond
	leastStall = 20 * time.Millisecond
)

// watchStalls calls tell with the length of each stall of this process, for ever.
func watchStalls(tell func(time.Duration)) {
	last := time.Now()
	for range time.Tick(stallTick) {
		now := time.Now()
		if stood := now.Sub(last) - stallTick; stood >= leastStall {
			tell(stood)
		}
		last = now
	}
}

// silenceLooks is the number of looks of WatchSilence within the time silence.
// Watched processes report their usage more often.
const silenceLooks = 12

// WatchSilence ends the job when a watched child is silent for the time
// silence. It runs for ever. Time for which this process slept does not count.
func (s *Supervisor) WatchSilence(children func() []*Child) {
	go func() {
		for range time.Tick(silence / silenceLooks) {
			s.Post(func() error {
				for _, c := range children() {
					if c == nil || c.Ended {
						continue
					}
					if c.missed++; c.missed > silenceLooks {
						return fmt.Errorf("the process of %s (testbed: %s) has not responded for %v: it was stopped, frozen or starved of CPU; run the command again when the machine is less busy", c.Name, c.Name, silence)
					}
				}
				return nil
			})
		}
	}()
}

// WatchStalls calls OnStall for init's stalls, too.
func (s *Supervisor) WatchStalls() {
	go watchStalls(func(stood time.Duration) {
		s.Post(func() error {
			s.OnStall("init", stood)
			return nil
		})
	})
}
