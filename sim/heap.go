package sim

import "testbed/policy"

type kind uint8

const (
	joins kind = iota
	injects
	ticks    // heartbeats of everybody
	stepDone // a worker has completed an inner step
	arrives  // an arrival reaches the coordinator
	reduced  // a reduction is over
	fetched  // a state fetch is over
	timers   // the machine's wake-up
	returns  // another coordinator takes the place of the one that died
	reunites // the workers are connected to it
	restarts // a new process of a worker begins
	asks     // a worker that was evicted asks to join again
	heeds    // a preempted worker acts on its notice
	kills    // the notice of a preempted worker is over

	// Over links only.
	delivers    // a message arrives
	beats       // a heartbeat of a worker
	reducedRank // a reduction is over at a rank
	faults      // links change
)

// entry is one scheduled event. a and b mean what the kind says: an index, an
// ID, a generation, a round, an epoch. It is kept small: entries are what the
// simulator moves most.
type entry struct {
	at   policy.Time
	seq  uint64
	kind kind
	a, b int32
}

// timerSeq puts the machine's wake-ups behind everything else of the same
// time, so that an arrival exactly at the deadline is on time whatever the
// order in which the two were scheduled.
const timerSeq = 1 << 63

// heap is a binary heap of entries by (time, sequence). It is written out
// because container/heap's interface costs a third of the simulator's speed.
type heap struct {
	entries []entry
	next    uint64
}

func (e *entry) before(o *entry) bool {
	return e.at < o.at || e.at == o.at && e.seq < o.seq
}

// push adds an entry behind all others of its time but timers.
func (h *heap) push(at policy.Time, k kind, a, b int) {
	e := entry{at: at, seq: h.next, kind: k, a: int32(a), b: int32(b)}
	h.next++
	if k == timers {
		e.seq |= timerSeq
	}
	h.entries = append(h.entries, e)
	i := len(h.entries) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(&h.entries[parent]) {
			break
		}
		h.entries[i] = h.entries[parent]
		i = parent
	}
	h.entries[i] = e
}

func (h *heap) pop() (entry, bool) {
	if len(h.entries) == 0 {
		return entry{}, false
	}
	top := h.entries[0]
	n := len(h.entries) - 1
	last := h.entries[n]
	h.entries = h.entries[:n]
	i := 0
	for {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && h.entries[c+1].before(&h.entries[c]) {
			c++
		}
		if !h.entries[c].before(&last) {
			break
		}
		h.entries[i] = h.entries[c]
		i = c
	}
	if n > 0 {
		h.entries[i] = last
	}
	return top, true
}
