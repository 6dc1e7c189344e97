package sim

import (
	"slices"

	"testbed/policy"
	"testbed/policy/worker"
)

// transferred is a state fetch under way.
type transferred struct {
	asker, donor int // workers
	gen, life    int // the asker's gen and the donor's life when it began
	version      int // the outer state
}

// fetch makes a worker fetch the outer state.
func (p *planned) fetch(i int, a *worker.BeginFetch) {
	donor := p.find(a.Donors[0])
	f := transferred{asker: i, donor: donor, gen: p.workers[i].gen, life: p.workers[donor].life}
	asker, from := &p.places[i], &p.places[donor]
	p.later(p.in(p.links.fetchRequest(asker.node, from.node)), func() {
		grouping, has, kept := p.scenario.Grouping, asker.machine.OuterSteps(), from.machine.KeptOutcomes()
		f.version = max(from.machine.OuterSteps(), a.OuterSteps)
		missed, ok := worker.Missed(has, f.version, kept)
		if a.Agreed {
			var steps []int
			steps, ok = grouping.Missed(has, f.version, kept)
			missed = len(steps)
		}
		if a.Current && ok {
			asker.fetched = p.in(p.links.fetchOutcomes(from.node, asker.node, p.links.outcomes(f.version-missed, missed)))
		} else {
			var donors []int
			for _, id := range a.Donors {
				donors = append(donors, p.places[p.find(id)].node)
			}
			asker.whole, asker.fetched = true, p.in(p.links.fetchState(donors, asker.node, !a.Agreed && !grouping.Global(f.version)))
			asker.fetched += p.reductionLeft() // donors hold chunks back while they reduce
		}
		p.later(asker.fetched, func() { p.fetched(f) })
	})
}

// reductionLeft is the remaining time of running reductions.
func (p *planned) reductionLeft() (left policy.Time) {
	for _, r := range p.running {
		left = max(left, slices.Max(r.ends)-p.now)
	}
	return left
}

// holdBack puts off the ends of state fetches by a reduction that begins.
func (p *planned) holdBack() {
	for i := range p.places {
		if at := &p.places[i]; at.whole && at.fetched > p.now {
			at.fetched += p.reductionLeft()
		}
	}
}

// fetched is called at the end of a state fetch, unless the fetch has been put
// off.
func (p *planned) fetched(f transferred) {
	w, donor := &p.workers[f.asker], &p.workers[f.donor]
	asker, from := &p.places[f.asker], &p.places[f.donor]
	switch {
	case !w.alive || w.gen != f.gen:
	case p.now < asker.fetched: // held back meanwhile
		p.later(asker.fetched, func() { p.fetched(f) })
	case !donor.alive || donor.life != f.life: // the coordinator notices by its heartbeats
	case p.cut(from.node, asker.node):
		p.hold(from.node, asker.node, func() { p.fetched(f) })
	default:
		asker.whole = false
		p.drive(f.asker, worker.Fetched{OuterSteps: f.version})
	}
}
