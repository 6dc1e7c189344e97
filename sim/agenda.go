package sim

import "testbed/policy"

// Kind says what an entry is about.
type Kind uint8

// Entry is one scheduled event. A and B mean what the kind says: an index, an
// ID, a generation, a round, an epoch. It is kept small: entries are what the
// simulator moves most.
type Entry struct {
	At   policy.Time
	seq  uint64
	Kind Kind
	A, B int32
}

// lastSeq puts an entry behind all others of its time.
const lastSeq = 1 << 63

// Heap is a binary heap of entries by (time, sequence). It is written out
// because container/heap's interface costs a third of the simulator's speed.
type Heap struct {
	entries []Entry
	next    uint64
	// hole says that the first entry is gone. Mostly one comes for another that
	// was taken out, and takes its place.
	hole bool
}

func (e *Entry) before(o *Entry) bool {
	return e.At < o.At || e.At == o.At && e.seq < o.seq
}

// Push adds an entry behind the others of its time, but for those of PushLast.
func (h *Heap) Push(at policy.Time, k Kind, a, b int) {
	h.push(Entry{At: at, seq: h.next, Kind: k, A: int32(a), B: int32(b)})
}

// PushLast adds an entry behind all others of its time, also those to come.
func (h *Heap) PushLast(at policy.Time, k Kind, a, b int) {
	h.push(Entry{At: at, seq: h.next | lastSeq, Kind: k, A: int32(a), B: int32(b)})
}

func (h *Heap) push(e Entry) {
	h.next++
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
func (h *Heap) sink(e Entry) {
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

// Pop removes the first entry; ok is false if there is none.
func (h *Heap) Pop() (first Entry, ok bool) {
	if h.hole {
		h.hole = false
		n := len(h.entries) - 1
		last := h.entries[n]
		if h.entries = h.entries[:n]; n > 0 {
			h.sink(last)
		}
	}
	if len(h.entries) == 0 {
		return Entry{}, false
	}
	h.hole = true
	return h.entries[0], true
}
