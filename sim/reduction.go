package sim

import (
	"slices"

	"testbed/policy"
	"testbed/policy/worker"
	"testbed/record"
	"testbed/scenarios/faults"
)

// reduction is one that is under way. There is one at a time, unless the policy
// lets a run split.
type reduction struct {
	epoch          policy.Epoch
	round, lineage int
	participants   []policy.ID
	begun          policy.Time
	stalled        bool // it waits for the end of a partition
	broken         bool // it has failed somewhere: what is still to come will not

	// Over links.
	ranks   []int         // workers
	rings   [][2]int      // of them: from, to
	ends    []policy.Time // by rank
	longest policy.Time
	blocked bool
	since   policy.Time     // it is blocked
	pairs   map[[2]int]bool // of nodes that send to each other
	coded   bool
}

// beginReduction takes note of a reduction that begins.
func (s *simulator) beginReduction(a *policy.Reduce) *reduction {
	r := &reduction{}
	if n := len(s.spare); n > 0 {
		r, s.spare = s.spare[n-1], s.spare[:n-1]
	}
	*r = reduction{epoch: a.Epoch, round: a.Round, lineage: a.Lineage, participants: a.Participants, begun: s.now, ranks: r.ranks[:0], rings: r.rings[:0]}
	s.running = append(s.running, r)
	return r
}

// endReduction forgets a reduction that is over.
func (s *simulator) endReduction(epoch policy.Epoch) {
	if r := s.reduction(epoch); r != nil {
		s.running = slices.DeleteFunc(s.running, func(other *reduction) bool { return other == r })
		s.spare = append(s.spare, r)
	}
}

// reduction returns the one of an epoch if it is under way, else nil.
func (s *simulator) reduction(epoch policy.Epoch) *reduction {
	for _, r := range s.running {
		if r.epoch == epoch {
			return r
		}
	}
	return nil
}

// reduced is the end of a reduction on churn's network.
func (s *simulator) reduced(r *reduction) {
	mute := false
	for _, id := range r.participants {
		w := &s.workers[s.find(id)]
		if !w.alive || !w.member {
			return // the ring hangs until the machine notices and aborts
		}
		mute = mute || w.mute()
	}
	if mute {
		r.stalled = true
		return
	}
	epoch, round, participants := r.epoch, r.round, r.participants
	if slices.ContainsFunc(participants, func(id policy.ID) bool { return s.workers[s.find(id)].fails != nil }) {
		if participants = s.reducedByOthers(r); participants == nil {
			return
		}
	}
	s.note(&record.Event{Type: record.ReduceDone, Round: round, Epoch: epoch, Lineage: r.lineage, Participants: participants, Duration: s.now - r.begun})
	alone := r.participants
	for _, id := range participants {
		if outcome := (policy.Reduced{ID: id, Round: round, Epoch: epoch}); s.apart {
			s.wait(outcome)
		} else {
			s.step(outcome)
		}
	}
	if len(participants) < len(alone) {
		for _, id := range alone {
			if i := s.find(id); s.workers[i].fails != nil {
				s.reduceFails(i, round, epoch)
			}
		}
	}
}

// reducedByOthers returns the participants that end a reduction in which some are
// to fail: nil if one that could not say so before does not leave them to.
func (s *simulator) reducedByOthers(r *reduction) []policy.ID {
	others := []policy.ID{}
	for _, id := range r.participants {
		i := s.find(id)
		if in := s.workers[i].fails; in == nil {
			others = append(others, id)
		} else if !in.Alone {
			s.reduceFails(i, r.round, r.epoch)
			return nil
		}
	}
	return others
}

// failReduce has the reduction of a worker fail that is under way, or else the
// next.
func (s *simulator) failReduce(in faults.Inject, i int) {
	if s.links != nil {
		s.drive(i, worker.FailReduce{Alone: in.Alone})
		return
	}
	s.workers[i].fails = &in
	for _, r := range s.running {
		if slices.Contains(r.participants, s.workers[i].spec.ID) {
			s.heap.Push(s.now, failing, i, int(r.epoch))
		}
	}
}

// fail has the reductions fail at once whose workers are to and can say so, on
// churn's network.
func (s *simulator) expectFailures(r *reduction) {
	for _, id := range r.participants {
		if i := s.find(id); s.workers[i].fails != nil {
			s.heap.Push(s.now, failing, i, int(r.epoch))
		}
	}
}

func (s *simulator) failsNow(i int, epoch policy.Epoch) {
	if w, r := &s.workers[i], s.reduction(epoch); r != nil && w.alive && !w.mute() && w.fails != nil && !w.fails.Alone {
		s.reduceFails(i, r.round, epoch)
	}
}

// confirm has a worker say that it has dropped a reduction, as soon as it can.
func (s *simulator) confirm(i int, epoch policy.Epoch) {
	switch w := &s.workers[i]; {
	case !w.alive || !w.member:
	case w.mute():
		s.heap.Push(s.now+s.scenario.HeartbeatPeriod, confirms, i, int(epoch))
	default:
		s.tell(policy.ReduceFailed{ID: w.spec.ID, Epoch: epoch})
	}
}

// reduceFails has a worker say that its reduction has failed.
func (s *simulator) reduceFails(i, round int, epoch policy.Epoch) {
	w := &s.workers[i]
	alone := w.fails.Alone
	w.fails = nil
	s.tell(policy.ReduceFailed{ID: w.spec.ID, Round: round, Epoch: epoch, Alone: alone})
}
