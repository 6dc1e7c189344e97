package node

import (
	"sync"
	"time"
)

// pauses keeps when the worker was paused. A process that is stopped does
// not see its timers stop, so that it has to be told of its pauses if the
// inner step under way is to go on with the time it had left.
type pauses struct {
	mu      sync.Mutex
	all     []pause
	changed chan struct{} // closed at the next change
}

// pause is from a time until another; one that is not over ends at zero.
type pause struct{ from, until time.Time }

func newPauses() *pauses { return &pauses{changed: make(chan struct{})} }

// set begins or ends a pause.
func (p *pauses) set(paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if paused == p.paused() {
		return
	}
	if paused {
		p.all = append(p.all, pause{from: time.Now()})
	} else {
		p.all[len(p.all)-1].until = time.Now()
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *pauses) paused() bool {
	return len(p.all) > 0 && p.all[len(p.all)-1].until.IsZero()
}

// since returns how long the worker has been paused since a time, whether it
// is, and what is closed when that changes.
func (p *pauses) since(t time.Time) (total time.Duration, paused bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.all {
		if one.from.Before(t) {
			one.from = t
		}
		if one.until.After(one.from) {
			total += one.until.Sub(one.from)
		}
	}
	return total, p.paused(), p.changed
}
