//go:build linux

package network

import (
	"fmt"
	"time"
)

// Each process reads the clock every stallTick. A gap that is longer by leastStall is a
// stall: the process was stopped or frozen, or got no processor.
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

// silenceLooks is how often WatchSilence looks before silence is over. Whoever is watched
// tells its usage oftener.
const silenceLooks = 12

// WatchSilence ends the job when one of some watched children is silent for as long as
// silence, for ever. What this process slept through does not count.
func (s *Supervisor) WatchSilence(children func() []*Child) {
	go func() {
		for range time.Tick(silence / silenceLooks) {
			s.Post(func() error {
				for _, c := range children() {
					if c == nil || c.Ended {
						continue
					}
					if c.missed++; c.missed > silenceLooks {
						return fmt.Errorf("the process of %s (testbed: %s) has not responded for %v: it was stopped, frozen or starved of CPU; the run has failed", c.Name, c.Name, silence)
					}
				}
				return nil
			})
		}
	}()
}

// WatchStalls has OnStall hear of those of init, too.
func (s *Supervisor) WatchStalls() {
	go watchStalls(func(stood time.Duration) {
		s.Post(func() error {
			s.OnStall("init", stood)
			return nil
		})
	})
}
