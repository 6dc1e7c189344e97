package sim

import "testbed/policy"

// kind says what an entry of the heap is about.
type kind uint8

// entry is one scheduled event. a and b mean what the kind says: an index, an
// ID, a generation, a round, an epoch. It is kept small, because the simulator
// moves entries more than anything else.
type entry struct {
	at   policy.Time
	seq  uint64
	kind kind
	a, b int32
}

// lastSeq puts an entry behind all others of its time.
const lastSeq = 1 << 63

// heap is a binary heap of entries by (time, sequence). container/heap is not
// used, because its interface costs a third of the simulator's speed.
type heap struct {
	entries []entry
	next    uint64
	// hole reports that the first entry is missing. Mostly a new entry follows the
	// removal of one, and takes its place.
	hole bool
}

func (e *entry) before(o *entry) bool {
	return e.at < o.at || e.at == o.at && e.seq < o.seq
}

// push adds an entry behind the others of its time, except those of pushLast.
func (h *heap) push(at policy.Time, k kind, a, b int) {
	h.add(entry{at: at, seq: h.next, kind: k, a: int32(a), b: int32(b)})
	h.next++
}

// pushLast adds an entry behind all others of its time, including later ones.
func (h *heap) pushLast(at policy.Time, k kind, a, b int) {
	h.add(entry{at: at, seq: h.next | lastSeq, kind: k, a: int32(a), b: int32(b)})
	h.next++
}

func (h *heap) add(e entry) {
	if h.hole {
		h.hole = false
		h.sink(e)
		return
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

// sink puts an entry in the place of the first, or below it.
func (h *heap) sink(e entry) {
	i, n := 0, len(h.entries)
	for c := 1; c < n; c = 2*i + 1 {
		if c+1 < n && h.entries[c+1].before(&h.entries[c]) {
			c++
		}
		if !h.entries[c].before(&e) {
			break
		}
		h.entries[i] = h.entries[c]
		i = c
	}
	h.entries[i] = e
}

// pop removes the first entry; ok is false if there is none.
func (h *heap) pop() (first entry, ok bool) {
	if h.hole {
		h.hole = false
		n := len(h.entries) - 1
		last := h.entries[n]
		if h.entries = h.entries[:n]; n > 0 {
			h.sink(last)
		}
	}
	if len(h.entries) == 0 {
		return entry{}, false
	}
	h.hole = true
	return h.entries[0], true
}
