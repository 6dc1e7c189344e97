package node

import (
	"sync"
	"time"
)

// stillness keeps when the worker was paused. A process that is stopped does
// not see its timers stop, so that it has to be told of its pauses if the
// inner step under way is to go on with the time it had left.
type stillness struct {
	mu      sync.Mutex
	pauses  []pause
	changed chan struct{} // closed at the next change
}

// pause is from a time until another; one that is not over ends at zero.
type pause struct{ from, until time.Time }

func newStillness() *stillness { return &stillness{changed: make(chan struct{})} }

// set begins or ends a pause.
func (s *stillness) set(paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if paused == s.paused() {
		return
	}
	if paused {
		s.pauses = append(s.pauses, pause{from: time.Now()})
	} else {
		s.pauses[len(s.pauses)-1].until = time.Now()
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *stillness) paused() bool {
	return len(s.pauses) > 0 && s.pauses[len(s.pauses)-1].until.IsZero()
}

// since returns how long the worker has been paused since a time, whether it
// is, and what is closed when that changes.
func (s *stillness) since(t time.Time) (total time.Duration, paused bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pauses {
		if p.from.Before(t) {
			p.from = t
		}
		if p.until.After(p.from) {
			total += p.until.Sub(p.from)
		}
	}
	return total, s.paused(), s.changed
}
