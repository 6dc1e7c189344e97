package sim

import (
	"time"

	"testbed/allreduce"
	"testbed/policy"
)

// grouping is a hierarchical reduction as it is played: every piece finds its
// way from link to link. A rank's uplink takes turns among its peers, and each
// downlink carries what comes in the order in which it comes.
type grouping struct {
	n      *network
	ranks  []int // nodes
	groups allreduce.Groups
	values []int // of each piece of a chunk
	begin  []time.Duration
	end    []time.Duration

	heap  heap
	mail  []parcel
	peers [][]peering // by rank
	turn  []int       // of a rank's peers
	up    []time.Duration
	down  []time.Duration
	// missing counts, by group, chunk and piece, what its leader still needs.
	missing [][][]int
}

// peering is what a rank sends to another.
type peering struct {
	to     int
	free   time.Duration // when the path carries the next piece
	rate   int64         // of the path
	queued []parcel
}

// parcel is a piece on its way.
type parcel struct {
	phase        allreduce.Phase
	from, to     int
	chunk, piece int
	sent         time.Duration // the sender's link has carried it
}

// Kinds of events; times are nanoseconds.
const (
	mayReduceSend kind = iota
	reducePieceComes
	reducePieceThere
)

func (n *network) groups(nodes []int) allreduce.Groups {
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
func (n *network) grouped(ranks []int, begin []time.Duration, cold func(i, j int) bool, end []time.Duration) {
	size := len(ranks)
	g := &grouping{
		n: n, ranks: ranks, groups: n.groups(ranks), begin: begin, end: end,
		peers: make([][]peering, size), turn: make([]int, size), up: make([]time.Duration, size), down: make([]time.Duration, size),
	}
	_, values := allreduce.Chunk(n.length, size, 0)
	most := allreduce.DefaultPieceValues(n.length, size, n.block, n.near)
	for p := range allreduce.Pieces(values, most) {
		lo, hi := allreduce.Piece(values, most, p)
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
			p := peering{to: j, free: begin[i] + n.setUp(from, to, chunk, rate, cold(from, to)), rate: rate}
			if took := n.carry(from, to, chunk); took > on(chunk, rate) { // it stalls, now and then
				p.rate = int64(float64(chunk) / took.Seconds())
			}
			g.peers[i] = append(g.peers[i], p)
			if j < i {
				g.turn[i]++ // each begins with the rank after it
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
		case mayReduceSend:
			g.send(int(e.a), at)
		case reducePieceComes:
			g.receive(int(e.a), at)
		case reducePieceThere:
			g.arrive(g.mail[e.a], at)
		}
	}
}

func (g *grouping) at(t time.Duration, k kind, a int) {
	g.heap.push(policy.Time(t), k, a, 0)
}

// start queues a rank's own values: what has to go far goes first.
func (g *grouping) start(i int) {
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
				g.put(parcel{phase: allreduce.ReduceScatter, from: i, to: to, chunk: c, piece: piece}, g.begin[i])
			}
		}
	}
}

// put queues a piece at its sender.
func (g *grouping) put(p parcel, at time.Duration) {
	for k := range g.peers[p.from] {
		if q := &g.peers[p.from][k]; q.to == p.to {
			q.queued = append(q.queued, p)
		}
	}
	g.at(max(at, g.up[p.from]), mayReduceSend, p.from)
}

// send has a rank send the next piece, if its link is free.
func (g *grouping) send(i int, at time.Duration) {
	if g.up[i] > at {
		return // it tries again when it is
	}
	next := time.Duration(-1)
	for k := range g.peers[i] {
		turn := (g.turn[i] + k) % len(g.peers[i])
		q := &g.peers[i][turn]
		switch {
		case len(q.queued) == 0:
		case q.free > at:
			if next < 0 || q.free < next {
				next = q.free
			}
		default:
			p := q.queued[0]
			q.queued = q.queued[1:]
			g.turn[i] = turn + 1
			from, to := g.ranks[i], g.ranks[q.to]
			bytes := g.n.piece(g.values[p.piece])
			g.up[i] = at + on(bytes, g.n.share(goodput(g.n.plan.Nodes[from].RateUp)))
			q.free = max(g.up[i], at+on(bytes, q.rate))
			p.sent = q.free
			g.mail = append(g.mail, p)
			g.at(at+g.n.hop(from, to, bytes), reducePieceComes, len(g.mail)-1)
			g.end[i] = max(g.end[i], q.free)
			g.at(g.up[i], mayReduceSend, i)
			return
		}
	}
	if next >= 0 {
		g.at(next, mayReduceSend, i)
	}
}

// receive has the receiver's link carry a piece of which the first bytes come.
func (g *grouping) receive(k int, at time.Duration) {
	p := g.mail[k]
	from, to := g.ranks[p.from], g.ranks[p.to]
	bytes := g.n.piece(g.values[p.piece])
	g.down[p.to] = max(g.down[p.to], at) + on(bytes, g.n.share(goodput(g.n.plan.Nodes[to].RateDown)))
	whole := max(g.down[p.to], p.sent+g.n.hop(from, to, bytes), g.begin[p.to])
	g.at(whole, reducePieceThere, k)
}

// arrive goes on with a piece that is there whole.
func (g *grouping) arrive(p parcel, at time.Duration) {
	i := p.to
	g.end[i] = max(g.end[i], at)
	group := g.groups.Of(i)
	near := g.groups.Of(p.from) == group
	if p.phase == allreduce.AllGather {
		if !near {
			g.tell(g.groups.Members(group), parcel{phase: p.phase, from: i, chunk: p.chunk, piece: p.piece}, at)
		}
		return
	}
	left := &g.missing[group][p.chunk][p.piece]
	if *left--; *left > 0 {
		return
	}
	if p.chunk != i { // the group's sum
		g.put(parcel{phase: p.phase, from: i, to: p.chunk, chunk: p.chunk, piece: p.piece}, at)
		return
	}
	mean := parcel{phase: allreduce.AllGather, from: i, chunk: p.chunk, piece: p.piece}
	for other := range g.groups.Len() {
		if other != group {
			g.tell([]int{g.groups.Leader(other, p.chunk)}, mean, at)
		}
	}
	g.tell(g.groups.Members(group), mean, at)
}

// tell queues a piece for all these ranks but its sender.
func (g *grouping) tell(ranks []int, p parcel, at time.Duration) {
	for _, r := range ranks {
		if r != p.from {
			p.to = r
			g.put(p, at)
		}
	}
}
