package record

import "testbed/policy"

// Split says what the wall-clock of a run was spent on, along its rounds. The
// parts add up to it.
type Split struct {
	// Compute is the inner steps of the participant that arrived last.
	Compute policy.Time `json:"compute_us"`
	// Transfer is reductions.
	Transfer policy.Time `json:"transfer_us"`
	// Control is messages between coordinator and workers, and whatever else
	// comes between a decision and what it leads to.
	Control policy.Time `json:"control_us"`
	// StateFetch is how long the participant that arrived last fetched state
	// before it began, and how long rounds waited for joiners that did.
	StateFetch policy.Time `json:"state_fetch_us"`
	// Deadline is waiting, with every participant arrived, for somebody who did
	// not come: until the deadline, an eviction or a leave.
	Deadline policy.Time `json:"deadline_us"`
}

// Minus returns the differences of the parts.
func (s Split) Minus(o Split) Split {
	return Split{s.Compute - o.Compute, s.Transfer - o.Transfer, s.Control - o.Control, s.StateFetch - o.StateFetch, s.Deadline - o.Deadline}
}

// splitter splits the running round.
type splitter struct {
	fetching map[string]policy.Time // since when
	fetched  map[string]policy.Time // how long, in the round
	reduce   policy.Time            // when the last reduction began
	held     policy.Time            // the round, for joiners
}

func newSplitter() splitter {
	return splitter{fetching: map[string]policy.Time{}, fetched: map[string]policy.Time{}}
}

func (s *splitter) add(e *Event, round *Round) {
	switch e.Type {
	case FetchStart:
		if _, running := s.fetching[e.Node]; !running { // else from another donor
			s.fetching[e.Node] = e.T
		}
	case FetchDone:
		if start, ok := s.fetching[e.Node]; ok {
			s.fetched[e.Node] += e.T - max(start, round.Start)
			delete(s.fetching, e.Node)
		}
	case Evict:
		delete(s.fetching, e.Node)
	case RoundClose, ReduceStart:
		s.reduce = e.T
		s.held += e.Held
	}
}

// end adds the round, which is complete, to the split.
func (s *splitter) end(to *Split, round *Round, turns *turns) {
	last, who := round.Start, policy.ID(-1)
	for _, id := range round.Participants {
		if w := turns.of(id); w.arrived && w.arrival >= last {
			last, who = w.arrival, id
		}
	}
	last = min(last, s.reduce)
	part := func(of *policy.Time, d, left policy.Time) policy.Time {
		d = max(0, min(d, left))
		*of += d
		return left - d
	}
	left := part(&to.Compute, turns.of(who).busy, last-round.Start)
	left = part(&to.StateFetch, s.fetched[who.Node()], left)
	to.Control += left
	to.Deadline += part(&to.StateFetch, s.held, s.reduce-last)
	s.held = 0
	to.Control += part(&to.Transfer, round.Reduce, round.End-s.reduce)
	clear(s.fetched)
}
