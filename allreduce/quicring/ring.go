package quicring

import (
	"slices"
	"sync"
	"sync/atomic"

	"testbed/allreduce"
	"testbed/allreduce/codec"
)

// ringRank is one rank of the ring.
type ringRank struct {
	*run
	rank, ranks int
	next        *flow
	unfinished  atomic.Int64 // pieces of this rank's own chunk
	stages
}

// stages has the stage of every piece.
type stages struct {
	mu    sync.Mutex
	stage []stage
	index []int // of a chunk's first piece
}

func newStages(l *layout) stages {
	return stages{stage: make([]stage, l.index[l.ranks]), index: l.index}
}

// enter moves a piece from one stage to another, if it is in the former.
func (s *stages) enter(chunk, piece int, from, to stage) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := &s.stage[s.index[chunk]+piece]
	if *at != from {
		return false
	}
	*at = to
	return true
}

// stage is how far a piece has come at this rank. A stage may be entered only
// from the one before. So every frame is due once and in order, and the piece's
// place in the outcome is free when the next frame for it comes.
type stage uint8

const (
	untouched stage = iota
	summed          // its sum has arrived; this rank adds its own values
	passed          // the sum at this rank has been passed on
	finished        // its mean has arrived
)

func newRingRank(r *run) *ringRank {
	a := &ringRank{run: r, rank: r.op.Rank, ranks: len(r.op.Peers), stages: newStages(&r.layout)}
	received, sent := 0, 0
	for _, phase := range []allreduce.Phase{allreduce.ReduceScatter, allreduce.AllGather} {
		for step := range a.ranks - 1 {
			received += r.layout.pieces(allreduce.Received(phase, a.rank, a.ranks, step))
			sent += r.layout.pieces(allreduce.Sent(phase, a.rank, a.ranks, step))
		}
	}
	r.expect((a.rank+a.ranks-1)%a.ranks, received)
	a.next = r.flowTo((a.rank+1)%a.ranks, sent)
	a.unfinished.Store(int64(r.layout.pieces(allreduce.Owned(a.rank, a.ranks))))
	for i := range r.layout.pieces(a.rank) {
		a.next.put(job{phase: allreduce.ReduceScatter, chunk: a.rank, piece: i})
	}
	return a
}

func (a *ringRank) buffers() int { return len(a.stage) }

func (a *ringRank) claim(_ int, h allreduce.Header) (codes []byte, ok bool) {
	chunk, piece := int(h.Chunk), int(h.Piece)
	if chunk != allreduce.Received(h.Phase, a.rank, a.ranks, int(h.Step)) {
		return nil, false
	}
	if h.Phase == allreduce.ReduceScatter {
		ok = a.enter(chunk, piece, untouched, summed)
	} else {
		ok = a.enter(chunk, piece, passed, finished)
	}
	return a.codes(chunk, piece), ok
}

func (a *ringRank) arrived(_ int, h allreduce.Header, codes, payload []byte) {
	step, chunk, piece := int(h.Step), int(h.Chunk), int(h.Piece)
	lo, hi := a.layout.values(chunk, piece)
	last := step == a.ranks-2
	switch {
	case h.Phase == allreduce.AllGather:
		if !last {
			j := job{phase: allreduce.AllGather, step: step + 1, chunk: chunk, piece: piece}
			if h.Coding != allreduce.Plain {
				j.short = slices.Clone(payload)
			}
			a.next.put(j)
		}
		a.codec.Dequantise(a.out[lo:hi], codes)
	case last:
		// The owner finishes the chunk, and decodes the same values as all others.
		a.codec.AddRequantise(codes, codes, a.data[lo:hi], 1/float32(a.ranks), a.codec.Residue(lo, hi))
		a.next.put(job{phase: allreduce.AllGather, chunk: chunk, piece: piece})
		a.codec.Dequantise(a.out[lo:hi], codes)
		if a.unfinished.Add(-1) == 0 {
			a.scattered()
		}
	default:
		a.codec.AddRequantise(codes, codes, a.data[lo:hi], 1, a.codec.Residue(lo, hi))
		a.next.put(job{phase: allreduce.ReduceScatter, step: step + 1, chunk: chunk, piece: piece})
	}
}

func (a *ringRank) frame(b []byte, j job, by *codec.Coder) []byte {
	h := a.header(j)
	if j.short != nil {
		return codec.AppendShort(b, h, j.short)
	}
	if j.phase == allreduce.AllGather {
		return a.codec.AppendFrame(b, h, a.codes(j.chunk, j.piece), by)
	}
	from := summed
	if j.step == 0 {
		from = untouched
		lo, hi := a.layout.values(j.chunk, j.piece)
		a.codec.Quantise(a.codes(j.chunk, j.piece), a.data[lo:hi], a.codec.Residue(lo, hi))
	}
	b = a.codec.AppendFrame(b, h, a.codes(j.chunk, j.piece), by)
	a.enter(j.chunk, j.piece, from, passed)
	return b
}
