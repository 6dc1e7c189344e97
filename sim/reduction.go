package sim

import (
	"slices"

	"testbed/policy"
)

// reduction is an all-reduce under way. There is one at a time, unless the
// policy allows a run to split.
type reduction struct {
	epoch          policy.Epoch
	round, lineage int
	participants   []policy.ID
	begun          policy.Time
	blocked        bool // it waits for the end of a partition
	onLinks
}

// beginReduction takes note of a reduction that begins.
func (p *processes) beginReduction(a *policy.Reduce) *reduction {
	r := &reduction{epoch: a.Epoch, round: a.Round, lineage: a.Lineage, participants: a.Participants, begun: p.now}
	p.running = append(p.running, r)
	return r
}

// endReduction forgets a reduction that is over.
func (p *processes) endReduction(epoch policy.Epoch) {
	p.running = slices.DeleteFunc(p.running, func(r *reduction) bool { return r.epoch == epoch })
}

// reduction returns the reduction of an epoch if it is under way, else nil.
func (p *processes) reduction(epoch policy.Epoch) *reduction {
	for _, r := range p.running {
		if r.epoch == epoch {
			return r
		}
	}
	return nil
}
