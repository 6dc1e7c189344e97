package sim

import (
	"time"

	"testbed/allreduce"
	"testbed/policy"
)

// hierarchy is a simulated hierarchical reduction: every piece is followed from
// link to link. A rank's uplink serves its peers round-robin, and each downlink
// serves pieces in the order of their arrival.
type hierarchy struct {
	n      *links
	ranks  []int // nodes
	groups allreduce.Groups
	values []int // of each piece of a chunk
	begin  []time.Duration
	end    []time.Duration

	heap     heap
	flight   []pieceSent
	flows    [][]pieceFlow   // by sender
	next     []int           // by sender, of its flows
	upFree   []time.Duration // when a rank's uplink is free
	downFree []time.Duration
	// missing counts, by group, chunk and piece, the sums that its leader still
	// needs.
	missing [][][]int
}

// pieceFlow is the traffic from one rank to another.
type pieceFlow struct {
	to     int
	free   time.Duration // when the path can take the next piece
	rate   byteRate      // of the path
	queued []pieceSent
}

// pieceSent is a piece on its way.
type pieceSent struct {
	phase        allreduce.Phase
	from, to     int
	chunk, piece int
	sent         time.Duration // when its last byte has left the sender
}

// Kinds of events; times are nanoseconds.
const (
	uplinkFree kind = iota
	pieceComes      // its first bytes arrive
	pieceWhole
)

func (n *links) groups(nodes []int) allreduce.Groups {
	if n.algorithm != allreduce.Hierarchical {
		return allreduce.Groups{}
	}
	numbers := make([]int, len(nodes))
	for k, node := range nodes {
		numbers[k] = n.groupOf[node]
	}
	return allreduce.NewGroups(numbers)
}

// grouped sums inside groups and between them, as allreduce.Groups says.
func (n *links) grouped(ranks []int, begin []time.Duration, cold func(i, j int) bool, end []time.Duration) {
	size := len(ranks)
	g := &hierarchy{
		n: n, ranks: ranks, groups: n.groups(ranks), begin: begin, end: end,
		flows: make([][]pieceFlow, size), next: make([]int, size), upFree: make([]time.Duration, size), downFree: make([]time.Duration, size),
	}
	_, values := allreduce.Chunk(n.length, size, 0)
	longest := allreduce.DefaultPieceValues(n.length, size, n.format.Block, n.shortPaths)
	for p := range allreduce.Pieces(values, longest) {
		lo, hi := allreduce.Piece(values, longest, p)
		g.values = append(g.values, hi-lo)
	}
	g.missing = make([][][]int, g.groups.Len())
	for group := range g.missing {
		g.missing[group] = make([][]int, size)
		for c := range size {
			need := len(g.groups.Members(group)) - 1
			if g.groups.Leader(group, c) == c {
				need += g.groups.Len() - 1
			}
			for range g.values {
				g.missing[group][c] = append(g.missing[group][c], need)
			}
		}
	}
	chunk, _ := n.chunk(size)
	for i, from := range ranks {
		end[i] = begin[i]
		for _, j := range g.groups.Peers(i) {
			to := ranks[j]
			rate := n.reducePath(from, to)
			f := pieceFlow{to: j, free: begin[i] + n.setUp(from, to, chunk, rate, cold(from, to)), rate: rate}
			if took := n.transfer(from, to, chunk); took > rate.serialisation(chunk) { // it stalls now and then
				f.rate = byteRate(float64(chunk) / took.Seconds())
			}
			g.flows[i] = append(g.flows[i], f)
			if j < i {
				g.next[i]++ // each begins with the rank after it
			}
		}
		g.start(i)
	}
	for {
		e, ok := g.heap.pop()
		if !ok {
			return
		}
		switch at := time.Duration(e.at); e.kind {
		case uplinkFree:
			g.send(int(e.a), at)
		case pieceComes:
			g.receive(int(e.a), at)
		case pieceWhole:
			g.arrive(g.flight[e.a], at)
		}
	}
}

func (g *hierarchy) at(t time.Duration, k kind, a int) {
	g.heap.push(policy.Time(t), k, a, 0)
}

// start queues a rank's own values. Values that leave its group go first.
func (g *hierarchy) start(i int) {
	group := g.groups.Of(i)
	for _, own := range []bool{false, true} {
		for c := range g.ranks {
			to := g.groups.Leader(group, c)
			if to == i {
				if g.missing[group][c][0] > 0 {
					continue // it waits for its group's
				}
				to = c
			}
			if to == i || (to == c) != own {
				continue
			}
			for piece := range g.values {
				g.put(pieceSent{phase: allreduce.ReduceScatter, from: i, to: to, chunk: c, piece: piece}, g.begin[i])
			}
		}
	}
}

// put queues a piece at its sender.
func (g *hierarchy) put(p pieceSent, at time.Duration) {
	for k := range g.flows[p.from] {
		if f := &g.flows[p.from][k]; f.to == p.to {
			f.queued = append(f.queued, p)
		}
	}
	g.at(max(at, g.upFree[p.from]), uplinkFree, p.from)
}

// send sends a rank's next piece, if its link is free.
func (g *hierarchy) send(i int, at time.Duration) {
	if g.upFree[i] > at {
		return // it tries again when the link is free
	}
	retry := time.Duration(-1)
	for k := range g.flows[i] {
		next := (g.next[i] + k) % len(g.flows[i])
		f := &g.flows[i][next]
		switch {
		case len(f.queued) == 0:
		case f.free > at:
			if retry < 0 || f.free < retry {
				retry = f.free
			}
		default:
			p := f.queued[0]
			f.queued = f.queued[1:]
			g.next[i] = next + 1
			from, to := g.ranks[i], g.ranks[f.to]
			bytes := g.n.piece(g.values[p.piece])
			g.upFree[i] = at + g.n.used(goodput(g.n.plan.Nodes[from].RateUp)).serialisation(bytes)
			f.free = max(g.upFree[i], at+f.rate.serialisation(bytes))
			p.sent = f.free
			g.flight = append(g.flight, p)
			g.at(at+g.n.hop(from, to, bytes), pieceComes, len(g.flight)-1)
			g.end[i] = max(g.end[i], f.free)
			g.at(g.upFree[i], uplinkFree, i)
			return
		}
	}
	if retry >= 0 {
		g.at(retry, uplinkFree, i)
	}
}

// receive carries a piece, whose first bytes arrive, over the receiver's
// downlink.
func (g *hierarchy) receive(k int, at time.Duration) {
	p := g.flight[k]
	from, to := g.ranks[p.from], g.ranks[p.to]
	bytes := g.n.piece(g.values[p.piece])
	g.downFree[p.to] = max(g.downFree[p.to], at) + g.n.used(goodput(g.n.plan.Nodes[to].RateDown)).serialisation(bytes)
	whole := max(g.downFree[p.to], p.sent+g.n.hop(from, to, bytes), g.begin[p.to])
	g.at(whole, pieceWhole, k)
}

// arrive continues with a piece that has arrived whole.
func (g *hierarchy) arrive(p pieceSent, at time.Duration) {
	i := p.to
	g.end[i] = max(g.end[i], at)
	group := g.groups.Of(i)
	if p.phase == allreduce.AllGather {
		if g.groups.Of(p.from) != group {
			g.putAll(g.groups.Members(group), pieceSent{phase: p.phase, from: i, chunk: p.chunk, piece: p.piece}, at)
		}
		return
	}
	left := &g.missing[group][p.chunk][p.piece]
	if *left--; *left > 0 {
		return
	}
	if p.chunk != i { // the group's sum is needed
		g.put(pieceSent{phase: p.phase, from: i, to: p.chunk, chunk: p.chunk, piece: p.piece}, at)
		return
	}
	mean := pieceSent{phase: allreduce.AllGather, from: i, chunk: p.chunk, piece: p.piece}
	for other := range g.groups.Len() {
		if other != group {
			g.putAll([]int{g.groups.Leader(other, p.chunk)}, mean, at)
		}
	}
	g.putAll(g.groups.Members(group), mean, at)
}

// putAll queues a piece for all these ranks except its sender.
func (g *hierarchy) putAll(ranks []int, p pieceSent, at time.Duration) {
	for _, r := range ranks {
		if r != p.from {
			p.to = r
			g.put(p, at)
		}
	}
}
