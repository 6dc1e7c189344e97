//go:build linux

package host

import (
	"sync"
	"time"

	"testbed/shaping/fidelity"
	"testbed/shaping/kernel"
)

const (
	// busyTick is the time between two looks at a link. It is short beside
	// the usual queue of 20 ms, which has to be filled for longer than that.
	busyTick = 5 * time.Millisecond
	// busyGroup is how many links are looked at at a time, each for busyTurn
	// looks in a row. A look takes 15 µs.
	busyGroup, busyTurn = 8, 20
	// busyPatience is the time that a look may take before it is no moment.
	busyPatience = 500 * time.Microsecond
)

// busyLinks looks at the links of a run while they are busy. A nil one does
// nothing.
type busyLinks struct {
	stop, stopped chan struct{}

	mu    sync.Mutex
	names []string
	round []fidelity.BusyLink
	whole []fidelity.BusyLink

	queues *queueLog
}

// watchBusyLinks begins to look at the links of a network, until end, and has
// what waits at them written down.
func watchBusyLinks(net *kernel.Network, queues *queueLog) *busyLinks {
	names := net.Nodes()
	b := &busyLinks{
		stop: make(chan struct{}), stopped: make(chan struct{}), names: names,
		round: make([]fidelity.BusyLink, len(names)), whole: make([]fidelity.BusyLink, len(names)),
		queues: queues,
	}
	go b.watch(net)
	return b
}

func (b *busyLinks) watch(net *kernel.Network) {
	defer close(b.stopped)
	ticker := time.NewTicker(busyTick)
	defer ticker.Stop()
	epoch := time.Now()
	for tick := 0; ; tick++ {
		select {
		case <-b.stop:
			return
		case <-ticker.C:
		}
		first := tick / busyTurn * busyGroup % len(b.names)
		for k := range min(busyGroup, len(b.names)) {
			b.look(net, (first+k)%len(b.names), epoch, tick%busyTurn == 0 && len(b.names) > busyGroup)
		}
	}
}

// look reads one link; the first time of a turn nothing is known of before.
func (b *busyLinks) look(net *kernel.Network, i int, epoch time.Time, first bool) {
	before := time.Now()
	load, err := net.UpLoad(i)
	took := time.Since(before)
	if down, downErr := net.DownWaiting(i); err == nil && downErr == nil {
		b.queues.saw(i, before, load.Waiting, down)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if first {
		b.round[i].Skip()
		b.whole[i].Skip()
	}
	if err != nil || took > busyPatience {
		b.round[i].Skip()
		b.whole[i].Skip()
		return
	}
	r := fidelity.Reading{At: before.Add(took / 2).Sub(epoch), Rate: load.Rate, Bytes: load.Bytes, Waiting: load.Waiting}
	b.round[i].Read(r)
	b.whole[i].Read(r)
}

// endRound enters what the round that ends has seen.
func (b *busyLinks) endRound(to *fidelity.Measurements) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.enter(b.round, to)
}

// end stops looking and enters what the whole run has seen.
func (b *busyLinks) end(to *fidelity.Measurements) {
	if b == nil {
		return
	}
	close(b.stop)
	<-b.stopped
	b.enter(b.whole, to)
}

// endQueues closes the record of what waited, after end, and says how much of it
// is missing.
func (b *busyLinks) endQueues() (lost int, err error) {
	if b == nil || b.queues == nil {
		return 0, nil
	}
	return b.queues.lost, b.queues.close()
}

func (b *busyLinks) enter(links []fidelity.BusyLink, to *fidelity.Measurements) {
	for i := range links {
		busy, share := links[i].Take()
		to.Busy(b.names[i], busy, share)
	}
}
