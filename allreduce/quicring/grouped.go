package quicring

import (
	"slices"
	"sync"

	"testbed/allreduce"
	"testbed/allreduce/codec"
)

// groupedRank is one rank of the hierarchical algorithm, or of the direct one,
// which has a single group. It owns the chunk of its own number, and may lead
// others in its group.
type groupedRank struct {
	*run
	stages
	rank   int
	groups allreduce.Groups
	group  int     // this rank's
	to     []*flow // by rank; nil if nothing is sent
	led    []*led  // by chunk; nil if another rank leads
	room   int     // largest number of bytes for all results of a piece of a led chunk

	mu         sync.Mutex
	unfinished int      // pieces of this rank's own chunk
	free       [][]byte // room for codes, each of them
	taken      int      // how often more was needed
	// Values of a piece: the sum of this rank's group, and the sum of all.
	sum, total []float32
}

// led is a chunk that a rank sums.
type led struct {
	from   []int // ranks whose codes arrive
	pieces []gathering
}

// gathering is a piece whose codes are arriving.
type gathering struct {
	claimed uint64 // a bit for each of led.from
	missing int
	// codes are the codes of all ranks, one after the other. They have room from
	// the arrival of the first until the arrival of the last.
	codes []byte
}

func newGroupedRank(r *run, groups allreduce.Groups) *groupedRank {
	ranks := len(r.op.Peers)
	a := &groupedRank{
		run: r, stages: newStages(&r.layout), rank: r.op.Rank, groups: groups, group: groups.Of(r.op.Rank),
		to: make([]*flow, ranks), led: make([]*led, ranks), unfinished: r.layout.pieces(r.op.Rank),
	}
	peers := groups.Peers(a.rank)
	inputs := 0 // largest number for a piece
	for c := range ranks {
		if groups.Leader(a.group, c) != a.rank {
			continue
		}
		l := &led{pieces: make([]gathering, r.layout.pieces(c))}
		for _, p := range peers {
			if a.sums(p, c) {
				l.from = append(l.from, p)
			}
		}
		for i := range l.pieces {
			l.pieces[i].missing = len(l.from)
		}
		a.led[c] = l
		inputs = max(inputs, len(l.from))
	}
	lo, hi := r.layout.values(0, 0) // the first piece is the longest
	a.room = inputs * r.layout.format.EncodedLen(hi-lo)
	a.sum, a.total = make([]float32, hi-lo), make([]float32, hi-lo)
	// Each rank begins with the rank after it, so that no rank receives from all
	// at once.
	after, _ := slices.BinarySearch(peers, a.rank)
	for _, j := range slices.Concat(peers[after:], peers[:after]) {
		r.expect(j, a.frames(j, a.rank))
		a.to[j] = r.flowTo(j, a.frames(a.rank, j))
	}
	// Long-distance pieces go first.
	for _, own := range []bool{false, true} {
		for c := range ranks {
			j := job{phase: allreduce.ReduceScatter, step: allreduce.Inside, chunk: c}
			to := groups.Leader(a.group, c)
			if to == a.rank { // alone in its group, it has the group's sum
				j.step, to = allreduce.Between, c
			}
			if to == a.rank || (to == c) != own || a.led[c] != nil && len(a.led[c].from) > 0 {
				continue
			}
			for j.piece = range r.layout.pieces(c) {
				a.to[to].put(j)
			}
		}
	}
	return a
}

// sums reports whether another rank's codes of a chunk come to this one.
func (a *groupedRank) sums(from, chunk int) bool {
	return a.groups.Sends(allreduce.ReduceScatter, a.step(from), from, a.rank, chunk)
}

// step is the step in which another rank and this one communicate.
func (a *groupedRank) step(other int) int {
	if a.groups.Of(other) == a.group {
		return allreduce.Inside
	}
	return allreduce.Between
}

// frames is the number of frames from one rank to another, one of which is this
// one.
func (a *groupedRank) frames(from, to int) (n int) {
	step := a.step(from + to - a.rank)
	for c := range a.led {
		for _, p := range []allreduce.Phase{allreduce.ReduceScatter, allreduce.AllGather} {
			if a.groups.Sends(p, step, from, to, c) {
				n += a.layout.pieces(c)
			}
		}
	}
	return n
}

func (a *groupedRank) buffers() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.taken*a.room + len(a.stage) + 4*(len(a.sum)+len(a.total))
}

func (a *groupedRank) claim(from int, h allreduce.Header) (codes []byte, ok bool) {
	chunk, piece := int(h.Chunk), int(h.Piece)
	switch {
	case int(h.Step) != a.step(from) || !a.groups.Sends(h.Phase, int(h.Step), from, a.rank, chunk):
		return nil, false
	case h.Phase == allreduce.AllGather:
		return a.codes(chunk, piece), a.enter(chunk, piece, passed, finished)
	}
	l := a.led[chunk]
	a.mu.Lock()
	defer a.mu.Unlock()
	g, bit := &l.pieces[piece], uint64(1)<<slices.Index(l.from, from)
	if g.claimed&bit != 0 {
		return nil, false
	}
	g.claimed |= bit
	if g.codes == nil {
		if len(a.free) == 0 {
			a.free = append(a.free, make([]byte, a.room))
			a.taken++
		}
		last := len(a.free) - 1
		g.codes, a.free = a.free[last], a.free[:last]
	}
	return a.theirs(from, chunk, piece), true
}

// theirs is the place for a rank's codes of a piece.
func (a *groupedRank) theirs(rank, chunk, piece int) []byte {
	_, n := a.layout.place(chunk, piece)
	l := a.led[chunk]
	at := slices.Index(l.from, rank) * n
	return l.pieces[piece].codes[at : at+n : at+n]
}

func (a *groupedRank) arrived(from int, h allreduce.Header, codes, payload []byte) {
	chunk, piece := int(h.Chunk), int(h.Piece)
	if h.Phase == allreduce.AllGather {
		if h.Step == allreduce.Between {
			j := job{phase: allreduce.AllGather, step: allreduce.Inside, chunk: chunk, piece: piece}
			if h.Coding != allreduce.Plain {
				j.short = slices.Clone(payload)
			}
			a.putAll(a.groups.Members(a.group), j)
		}
		lo, hi := a.layout.values(chunk, piece)
		a.codec.Dequantise(a.out[lo:hi], codes)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	g := &a.led[chunk].pieces[piece]
	if g.missing--; g.missing > 0 {
		return
	}
	a.finish(chunk, piece)
	a.free, g.codes = append(a.free, g.codes), nil
}

// putAll puts a job for all these ranks except this one.
func (a *groupedRank) putAll(ranks []int, j job) {
	for _, r := range ranks {
		if r != a.rank {
			a.to[r].put(j)
		}
	}
}

// finish sums a piece that all ranks have sent, and sends the result. If the
// chunk is this rank's own, it sends the mean to all. Otherwise it sends its
// group's sum to the owner. The order of the ranks, and that of the groups,
// decides every bit.
func (a *groupedRank) finish(chunk, piece int) {
	lo, hi := a.layout.values(chunk, piece)
	sum, total := a.sum[:hi-lo], a.total[:hi-lo]
	for i, r := range a.groups.Members(a.group) {
		if r == a.rank {
			add(sum, a.data[lo:hi], i == 0)
		} else {
			a.addTheirs(sum, r, chunk, piece, i == 0)
		}
	}
	codes, lost := a.codes(chunk, piece), a.codec.Residue(lo, hi)
	if chunk != a.rank {
		a.codec.Quantise(codes, sum, lost)
		a.to[chunk].put(job{phase: allreduce.ReduceScatter, step: allreduce.Between, chunk: chunk, piece: piece})
		return
	}
	var leaders []int
	for group := range a.groups.Len() {
		if group == a.group {
			add(total, sum, group == 0)
			continue
		}
		leader := a.groups.Leader(group, chunk)
		leaders = append(leaders, leader)
		a.addTheirs(total, leader, chunk, piece, group == 0)
	}
	ranks := float32(len(a.to))
	mul := 1 / ranks
	for i := range total {
		total[i] *= mul
	}
	a.codec.Quantise(codes, total, lost)
	for i := range lost {
		lost[i] *= ranks // of the mean, so far
	}
	j := job{phase: allreduce.AllGather, step: allreduce.Between, chunk: chunk, piece: piece}
	if a.codec.Short {
		j.short = a.shorten(j, codes)
	}
	a.putAll(leaders, j)
	j.step = allreduce.Inside
	a.putAll(a.groups.Members(a.group), j)
	a.codec.Dequantise(a.out[lo:hi], codes)
	if a.unfinished--; a.unfinished == 0 {
		a.scattered()
	}
}

// addTheirs adds a rank's codes of a piece to the sum, or begins the sum with
// them.
func (a *groupedRank) addTheirs(sum []float32, rank, chunk, piece int, first bool) {
	if codes := a.theirs(rank, chunk, piece); first {
		a.codec.Dequantise(sum, codes)
	} else {
		a.codec.DequantiseAdd(sum, codes, sum)
	}
}

// add adds values to the sum, or begins it with them.
func add(sum, values []float32, first bool) {
	if first {
		copy(sum, values)
		return
	}
	for i, x := range values {
		sum[i] += x
	}
}

// shorten makes the payload that goes to all ranks, once; nil if it is no
// shorter than the codes.
func (a *groupedRank) shorten(j job, codes []byte) []byte {
	by := a.e.coders.get()
	defer a.putBack(by)
	frame := a.codec.AppendFrame(nil, a.header(j), codes, by)
	if payload := frame[allreduce.HeaderLen:]; len(payload) < len(codes) {
		return payload
	}
	return nil
}

func (a *groupedRank) frame(b []byte, j job, by *codec.Coder) []byte {
	if j.short != nil {
		return codec.AppendShort(b, a.header(j), j.short)
	}
	codes := a.codes(j.chunk, j.piece)
	if j.phase == allreduce.AllGather {
		return a.codec.AppendFrame(b, a.header(j), codes, by)
	}
	if l := a.led[j.chunk]; l == nil || len(l.from) == 0 { // this rank's own values rather than a sum
		lo, hi := a.layout.values(j.chunk, j.piece)
		a.codec.Quantise(codes, a.data[lo:hi], a.codec.Residue(lo, hi))
	}
	b = a.codec.AppendFrame(b, a.header(j), codes, by)
	// The place is free for the mean, which the owner does not have yet.
	a.enter(j.chunk, j.piece, untouched, passed)
	return b
}
