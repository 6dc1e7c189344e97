package quicring

import (
	"sync"

	"testbed/allreduce"
)

// directRank is one rank of the direct algorithm. It owns the chunk of its own
// number.
type directRank struct {
	*run
	rank, ranks int
	to          []*flow // by rank; nil for this one
	// others are the codes of this rank's chunk from all ranks, one after the
	// other; this rank's own place is unused.
	others []byte
	chunk  int // bytes of each

	mu         sync.Mutex
	claimed    []bool // by rank, pieces of all chunks
	missing    []int  // by piece of this rank's chunk, ranks
	unfinished int    // pieces of this rank's chunk
	sum, part  []float32
}

func newDirectRank(r *run) *directRank {
	a := &directRank{run: r, rank: r.op.Rank, ranks: len(r.op.Peers)}
	own := r.layout.pieces(a.rank)
	a.chunk = r.layout.offset[a.rank+1] - r.layout.offset[a.rank]
	a.others = make([]byte, a.ranks*a.chunk)
	a.claimed = make([]bool, a.ranks*own+r.layout.index[a.ranks])
	a.missing = make([]int, own)
	for i := range a.missing {
		a.missing[i] = a.ranks - 1
	}
	a.unfinished = own
	lo, hi := r.layout.values(a.rank, 0) // the first piece is the longest
	a.sum, a.part = make([]float32, hi-lo), make([]float32, hi-lo)
	a.to = make([]*flow, a.ranks)
	// Everybody begins with the rank after it, so that no rank is sent to by
	// all at once.
	for k := 1; k < a.ranks; k++ {
		j := (a.rank + k) % a.ranks
		theirs := r.layout.pieces(j)
		r.expect(j, own+theirs)
		a.to[j] = r.flowTo(j, own+theirs)
		for i := range theirs {
			a.to[j].put(job{phase: allreduce.ReduceScatter, chunk: j, piece: i})
		}
	}
	return a
}

func (a *directRank) buffers() int {
	return len(a.others) + len(a.claimed) + 4*(len(a.sum)+len(a.part))
}

// theirs is the place of another rank's codes of a piece of this rank's chunk.
func (a *directRank) theirs(rank, piece int) []byte {
	at, n := a.layout.place(a.rank, piece)
	at += rank*a.chunk - a.layout.offset[a.rank]
	return a.others[at : at+n : at+n]
}

func (a *directRank) claim(from int, h allreduce.Header) (codes []byte, ok bool) {
	chunk, piece := int(h.Chunk), int(h.Piece)
	var index int
	switch {
	case h.Step != 0:
		return nil, false
	case h.Phase == allreduce.ReduceScatter && chunk == a.rank:
		index, codes = from*a.layout.pieces(a.rank)+piece, a.theirs(from, piece)
	case h.Phase == allreduce.AllGather && chunk == from:
		index, codes = a.ranks*a.layout.pieces(a.rank)+a.layout.index[chunk]+piece, a.codes(chunk, piece)
	default:
		return nil, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.claimed[index] {
		return nil, false
	}
	a.claimed[index] = true
	return codes, true
}

func (a *directRank) arrived(_ int, h allreduce.Header, codes, _ []byte) {
	lo, hi := a.layout.values(int(h.Chunk), int(h.Piece))
	if h.Phase == allreduce.AllGather {
		a.codec.Dequantise(a.out[lo:hi], codes)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.missing[h.Piece]--; a.missing[h.Piece] > 0 {
		return
	}
	a.finish(int(h.Piece), lo, hi)
	if a.unfinished--; a.unfinished == 0 {
		a.scattered()
	}
}

// finish sums a piece of this rank's chunk, values [lo, hi), and sends the mean
// to all. The order of the ranks decides every bit of it.
func (a *directRank) finish(piece, lo, hi int) {
	sum, part := a.sum[:hi-lo], a.part[:hi-lo]
	for r := range a.ranks {
		values := a.data[lo:hi]
		if r != a.rank {
			values = part
			if r == 0 {
				values = sum
			}
			a.codec.Dequantise(values, a.theirs(r, piece))
		}
		if r == 0 {
			copy(sum, values)
			continue
		}
		for i, x := range values {
			sum[i] += x
		}
	}
	mul := 1 / float32(a.ranks)
	for i := range sum {
		sum[i] *= mul
	}
	codes := a.codes(a.rank, piece)
	lost := a.codec.lost(lo, hi)
	a.codec.Quantise(codes, sum, lost)
	for i := range lost {
		lost[i] *= float32(a.ranks) // of the mean, so far
	}
	j := job{phase: allreduce.AllGather, chunk: a.rank, piece: piece}
	if a.codec.short {
		j.short = a.shorten(j, codes)
	}
	for _, f := range a.to {
		if f != nil {
			f.put(j)
		}
	}
	a.codec.Dequantise(a.out[lo:hi], codes)
}

// shorten makes the payload that goes to everybody once; nil if it is no
// shorter than the codes.
func (a *directRank) shorten(j job, codes []byte) []byte {
	by := a.e.coders.get()
	defer a.putBack(by)
	frame := a.codec.appendFrame(nil, a.header(j), codes, by)
	if payload := frame[allreduce.HeaderLen:]; len(payload) < len(codes) {
		return payload
	}
	return nil
}

func (a *directRank) frame(b []byte, j job, by *coder) []byte {
	if j.short != nil {
		return appendShort(b, a.header(j), j.short)
	}

	codes := a.codes(j.chunk, j.piece)
	if j.phase == allreduce.ReduceScatter {
		// The mean's place is free: its owner has not had this piece yet.
		lo, hi := a.layout.values(j.chunk, j.piece)
		a.codec.Quantise(codes, a.data[lo:hi], a.codec.lost(lo, hi))
	}
	return a.codec.appendFrame(b, a.header(j), codes, by)
}
