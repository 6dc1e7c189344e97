// Package stepclock measures the time of inner steps, which stands still while
// the worker is paused.
package stepclock

import (
	"context"
	"sync"
	"time"
)

// Clock records when the worker was paused. The timers of a stopped process do
// not stop. So the process has to be told of its pauses, to let the inner step
// under way go on with its remaining time. Its methods may be called from any
// goroutine.
type Clock struct {
	mu      sync.Mutex
	all     []pause
	changed chan struct{} // closed at the next change
}

// pause is a pause from a time until another; an unfinished one ends at zero.
// If it is stopped, the process does not run.
type pause struct {
	from, until time.Time
	stopped     bool
}

// New returns the clock of a worker that is not paused.
func New() *Clock { return &Clock{changed: make(chan struct{})} }

// Pause begins a pause, in which the process is stopped or hangs.
func (c *Clock) Pause(stopped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.paused() {
		c.all = append(c.all, pause{from: time.Now(), stopped: stopped})
		c.tell()
	}
}

// Resume ends a pause.
func (c *Clock) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused() {
		c.all[len(c.all)-1].until = time.Now()
		c.tell()
	}
}

func (c *Clock) tell() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Running is how long the process has run since a time: it was not stopped,
// though it may have hung.
func (c *Clock) Running(t time.Time) time.Duration {
	return c.without(t, func(p pause) bool { return p.stopped })
}

// Going is the time since a time for which the worker was not paused.
func (c *Clock) Going(t time.Time) time.Duration {
	return c.without(t, func(pause) bool { return true })
}

func (c *Clock) without(t time.Time, these func(pause) bool) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	left := now.Sub(t)
	for _, one := range c.all {
		if one.until.IsZero() {
			one.until = now
		}
		if these(one) {
			left -= one.since(t)
		}
	}
	return left
}

// since is the part of a finished pause after a time.
func (p pause) since(t time.Time) time.Duration {
	if p.from.Before(t) {
		p.from = t
	}
	return max(p.until.Sub(p.from), 0)
}

func (c *Clock) paused() bool {
	return len(c.all) > 0 && c.all[len(c.all)-1].until.IsZero()
}

// since returns how long the worker has been paused since a time, whether it is
// paused, and a channel that is closed when that changes.
func (c *Clock) since(t time.Time) (total time.Duration, paused bool, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.all {
		if !one.until.IsZero() {
			total += one.since(t)
		}
	}
	return total, c.paused(), c.changed
}

// Pass waits until the worker has been unpaused for a time since begin, and
// returns how long it was paused.
func (c *Clock) Pass(ctx context.Context, begin time.Time, d time.Duration) (time.Duration, error) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		stood, paused, changed := c.since(begin)
		timer.Stop()
		if !paused {
			timer.Reset(time.Until(begin.Add(d + stood)))
		}
		select {
		case <-timer.C:
			return stood, nil
		case <-changed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
