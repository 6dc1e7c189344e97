// Package stepclock lets the time of inner steps pass, which stops while
// the worker is paused.
package stepclock

import (
	"context"
	"sync"
	"time"
)

// Clock keeps when the worker was paused. A process that is stopped does
// not see its timers stop, so that it has to be told of its pauses if the
// inner step under way is to go on with the time it had left. Its methods may be
// called from any goroutine.
type Clock struct {
	mu      sync.Mutex
	all     []pause
	changed chan struct{} // closed at the next change
}

// pause is from a time until another; one that is not over ends at zero.
type pause struct{ from, until time.Time }

// New returns the clock of a worker that is not paused.
func New() *Clock { return &Clock{changed: make(chan struct{})} }

// Set begins or ends a pause.
func (c *Clock) Set(paused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if paused == c.paused() {
		return
	}
	if paused {
		c.all = append(c.all, pause{from: time.Now()})
	} else {
		c.all[len(c.all)-1].until = time.Now()
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *Clock) paused() bool {
	return len(c.all) > 0 && c.all[len(c.all)-1].until.IsZero()
}

// since returns how long the worker has been paused since a time, whether it
// is, and what is closed when that changes.
func (c *Clock) since(t time.Time) (total time.Duration, paused bool, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.all {
		if one.from.Before(t) {
			one.from = t
		}
		if one.until.After(one.from) {
			total += one.until.Sub(one.from)
		}
	}
	return total, c.paused(), c.changed
}

// Pass waits until a time has passed since begin in which the worker was not
// paused, and returns for how long it was.
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
