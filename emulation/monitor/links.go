//go:build linux

package monitor

import (
	"sync"
	"time"

	"testbed/shaping/fidelity"
	"testbed/shaping/kernel"
)

const (
	// busyTick is the time between two looks at a link. It is short compared with
	// the usual queue of 20 ms, which has to be filled for longer than that.
	busyTick = 5 * time.Millisecond
	// busyGroup is the number of links observed together, each for busyTurn looks
	// in a row. A look takes 15 µs.
	busyGroup, busyTurn = 8, 20
	// busyPatience is the longest look that counts as a single moment.
	busyPatience = 500 * time.Microsecond
)

// Network is a network that Links can observe.
type Network interface {
	// UpLoad and DownWaiting are as in kernel.Network, whether or not the kernel
	// enforces the rates.
	UpLoad(node int) (kernel.Load, error)
	DownWaiting(node int) (uint64, error)
}

// Links observes the links of a network while they are busy. A nil Links
// observes none.
type Links struct {
	stop, stopped chan struct{}
	names         []string
	queues        *QueueLog

	mu    sync.Mutex
	round []fidelity.BusyLink
	whole []fidelity.BusyLink
}

// WatchLinks begins to observe the links of a network with nodes of those
// names, until Stop, and writes their queues to queues, which may be nil.
func WatchLinks(net Network, names []string, queues *QueueLog) *Links {
	l := &Links{
		stop: make(chan struct{}), stopped: make(chan struct{}), names: names, queues: queues,
		round: make([]fidelity.BusyLink, len(names)), whole: make([]fidelity.BusyLink, len(names)),
	}
	go l.watch(net)
	return l
}

func (l *Links) watch(net Network) {
	defer close(l.stopped)
	ticker := time.NewTicker(busyTick)
	defer ticker.Stop()
	epoch := time.Now()
	for tick := 0; ; tick++ {
		select {
		case <-l.stop:
			return
		case <-ticker.C:
		}
		first := tick / busyTurn * busyGroup % len(l.names)
		for k := range min(busyGroup, len(l.names)) {
			l.look(net, (first+k)%len(l.names), epoch, tick%busyTurn == 0 && len(l.names) > busyGroup)
		}
	}
}

// look reads one link. The first look of a turn has no predecessor.
func (l *Links) look(net Network, i int, epoch time.Time, first bool) {
	before := time.Now()
	load, err := net.UpLoad(i)
	took := time.Since(before)
	if down, downErr := net.DownWaiting(i); err == nil && downErr == nil {
		l.queues.saw(i, before, load.Waiting, down)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if first {
		l.round[i].Skip()
		l.whole[i].Skip()
	}
	if err != nil || took > busyPatience {
		l.round[i].Skip()
		l.whole[i].Skip()
		return
	}
	r := fidelity.Reading{At: before.Add(took / 2).Sub(epoch), Rate: load.Rate, Bytes: load.Bytes, Waiting: load.Waiting}
	l.round[i].Read(r)
	l.whole[i].Read(r)
}

// Round returns the observations since its last call.
func (l *Links) Round() []BusyLink {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.take(l.round)
}

// Stop stops observing and returns all observations.
func (l *Links) Stop() []BusyLink {
	if l == nil {
		return nil
	}
	close(l.stop)
	<-l.stopped
	return l.take(l.whole)
}

func (l *Links) take(from []fidelity.BusyLink) []BusyLink {
	seen := make([]BusyLink, len(from))
	for i := range from {
		busy, share := from[i].Take()
		seen[i] = BusyLink{l.names[i], busy, share}
	}
	return seen
}
