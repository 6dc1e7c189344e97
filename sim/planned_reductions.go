package sim

import (
	"maps"
	"slices"
	"time"

	"testbed/allreduce/entropy"
	"testbed/policy"
	"testbed/policy/worker"
	"testbed/record"
)

// onLinks is the state of a reduction on planned links.
type onLinks struct {
	ranks   []int         // workers
	rings   [][2]int      // of the ranks: from, to
	ends    []policy.Time // by rank; -1: over
	longest policy.Time
	since   policy.Time     // it is blocked
	pairs   map[[2]int]bool // of nodes that send to each other
	coded   bool
	broken  bool // it has failed at a rank, and so ends at no other
}

// reduce begins a reduction at each participant when the order reaches it.
func (p *planned) reduce(a *policy.Reduce) {
	p.links.beginRound(a.Round)
	r := p.beginReduction(a)
	var nodes []int
	var begin []time.Duration
	for _, ring := range p.scenario.Grouping.Rings(a.Round, p.links.inOrder(a.Participants)) {
		r.rings = append(r.rings, [2]int{len(r.ranks), len(r.ranks) + len(ring.Workers)})
		for _, id := range ring.Workers {
			i := p.find(id)
			r.ranks, nodes = append(r.ranks, i), append(nodes, p.places[i].node)
			begin = append(begin, p.order(id, worker.Reduce{Round: a.Round, Epoch: a.Epoch, Ring: ring.Workers, Zero: slices.Contains(a.Zero, id), Repeats: policy.Repeats(a.Repeated, id)}))
		}
	}
	if p.links.entropy == entropy.Auto {
		p.links.coded = p.chooser.Choose(int(a.Epoch))
	}
	times := func() (ends []time.Duration) { // rings do not wait for each other
		for _, ring := range r.rings {
			ends = append(ends, p.links.reduce(nodes[ring[0]:ring[1]], begin[ring[0]:ring[1]], func(i, j int) bool { return !p.warm[[2]int{i, j}] })...)
		}
		return ends
	}
	ends := times()
	r.coded = p.links.coded
	r.ends = p.allIn(ends)
	for k := range ends {
		r.longest = max(r.longest, p.scenario.ScenarioTime(ends[k]-begin[k]))
	}
	if u := p.upload; u != nil && slices.Contains(nodes, u.node) {
		p.shareWithUpload(r, times)
	}
	r.pairs = map[[2]int]bool{}
	for _, ring := range r.rings {
		maps.Copy(r.pairs, p.links.connected(nodes[ring[0]:ring[1]]))
	}
	p.warmUp(r, nodes)
	p.holdBack()
	if r.blocked = p.interrupted(r); r.blocked {
		r.since = p.now
		return
	}
	p.expectEnds(r)
}

// allIn converts real durations from now on to scenario time.
func (p *planned) allIn(took []time.Duration) (at []policy.Time) {
	for _, d := range took {
		at = append(at, p.in(d))
	}
	return at
}

// warmUp keeps the connections of the last reduction of each worker.
func (p *planned) warmUp(r *reduction, nodes []int) {
	if len(p.running) == 1 {
		p.warm = r.pairs
		return
	}
	p.warm = maps.Clone(p.warm)
	maps.DeleteFunc(p.warm, func(pair [2]int, _ bool) bool {
		return slices.Contains(nodes, pair[0]) || slices.Contains(nodes, pair[1])
	})
	maps.Copy(p.warm, r.pairs)
}

// cool forgets the connections of a worker's last process.
func (p *planned) cool(node int) {
	of := func(pair [2]int, _ bool) bool { return pair[0] == node || pair[1] == node }
	maps.DeleteFunc(p.warm, of)
	for _, r := range p.running {
		maps.DeleteFunc(r.pairs, of)
	}
}

// interrupted reports whether a path that a reduction needs is cut.
func (p *planned) interrupted(r *reduction) bool {
	for _, i := range r.ranks {
		if p.cut(coordinator, p.places[i].node) {
			return true
		}
	}
	for pair := range r.pairs {
		if p.cut(pair[0], pair[1]) {
			return true
		}
	}
	return false
}

func (p *planned) expectEnds(r *reduction) {
	for rank, at := range r.ends {
		if at >= p.now {
			p.heap.push(at, reduced, rank, int(r.epoch))
		}
	}
}

// reducedRank is called at the end of a reduction at one of its ranks.
func (p *planned) reducedRank(rank int, epoch policy.Epoch) {
	r := p.reduction(epoch)
	if r == nil || r.blocked || p.now != r.ends[rank] {
		return
	}
	if p.hangs(r) {
		return // until the machine notices and aborts
	}
	i := r.ranks[rank]
	if !p.places[i].machine.Reduces(epoch) {
		return // it has not received the order yet; see reduceBegins
	}
	r.ends[rank] = -1
	p.drive(i, worker.Reduced{})
}

// reduceBegins is called when a worker receives the order to reduce. If the
// others' part of the reduction is already over, the worker ends it at once.
func (p *planned) reduceBegins(i int, epoch policy.Epoch) {
	r := p.reduction(epoch)
	if r == nil {
		return
	}
	if rank := slices.Index(r.ranks, i); rank >= 0 && r.ends[rank] >= 0 && r.ends[rank] < p.now {
		r.ends[rank] = p.now
		p.heap.push(p.now, reduced, rank, int(epoch))
	}
}

// hangs reports whether a reduction makes no progress.
func (p *planned) hangs(r *reduction) bool {
	return r.blocked || r.broken || slices.ContainsFunc(r.ranks, func(i int) bool { return !p.workers[i].alive || !p.workers[i].member })
}

// resumeReduction continues a reduction whose paths are open again.
func (p *planned) resumeReduction(r *reduction) {
	r.blocked = false
	var late policy.Time
	for _, of := range r.rings {
		ring := r.ranks[of[0]:of[1]]
		for k, i := range ring {
			from, to := p.places[i].node, p.places[ring[(k+1)%len(ring)]].node
			if from != to {
				late = max(late, p.recovery(from, to, r.since)-p.now)
			}
		}
	}
	late += p.now - r.since
	for k, end := range r.ends {
		if end >= 0 {
			r.ends[k] = end + late
		}
	}
	r.longest += late
	p.expectEnds(r)
}

// noteReduced records a reduction that every participant has reported.
func (p *planned) noteReduced(a *policy.OuterStep) {
	r := p.reduction(a.Epoch)
	p.links.beginRound(a.Round)
	var sent int64
	for _, of := range r.rings {
		if n := of[1] - of[0]; n > 1 {
			for _, i := range r.ranks[of[0]:of[1]] {
				if slices.Contains(a.Participants, p.workers[i].spec.ID) {
					sent += int64(p.links.sent(n))
				}
			}
		}
	}
	if sent > 0 {
		// Coding takes processors, which take no time here; the sender waits for
		// its link all the while.
		took := p.scenario.RealDuration(r.longest)
		p.chooser.Note(entropy.Reduction{Coded: r.coded, Values: p.links.length, Total: took, Wait: took})
	}
	p.note(&record.Event{Type: record.ReduceDone, Round: a.Round, Epoch: a.Epoch, Lineage: a.Lineage, Participants: a.Participants, Duration: r.longest, BytesSent: sent})
}
