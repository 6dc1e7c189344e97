package record

import "testbed/policy"

// Split divides the wall-clock of a run by its use, along the rounds. The parts
// add up to the wall-clock.
type Split struct {
	// Inner steps of the participant that arrived last.
	Compute policy.Time `json:"compute_us"`
	// Reductions.
	Transfer policy.Time `json:"transfer_us"`
	// Messages between coordinator and workers, and all other time between a
	// decision and its effect.
	Control policy.Time `json:"control_us"`
	// State fetches of the participant that arrived last, before it began, and waits
	// of rounds for joiners that fetched the state.
	StateFetch policy.Time `json:"state_fetch_us"`
	// From the last participant's arrival until the deadline, an eviction or a
	// leave, in rounds that waited for members that did not arrive.
	Deadline policy.Time `json:"deadline_us"`
}

// Minus returns the differences of the parts.
func (s Split) Minus(o Split) Split {
	return Split{s.Compute - o.Compute, s.Transfer - o.Transfer, s.Control - o.Control, s.StateFetch - o.StateFetch, s.Deadline - o.Deadline}
}

// split adds a complete round to the parts.
func (s *Summarizer) split(round *Round) {
	to, last, slowest := &s.sum.Split, round.Start, s.run.Worker(-1)
	for _, id := range round.Participants {
		if w := s.run.Worker(id); w.Arrived && w.Arrival >= last {
			last, slowest = w.Arrival, w
		}
	}
	last = min(last, s.reduce)
	part := func(of *policy.Time, d, left policy.Time) policy.Time {
		d = max(0, min(d, left))
		*of += d
		return left - d
	}
	left := part(&to.Compute, slowest.Busy, last-round.Start)
	left = part(&to.StateFetch, slowest.Fetched, left)
	to.Control += left
	to.Deadline += part(&to.StateFetch, s.held, s.reduce-last)
	s.held = 0
	to.Control += part(&to.Transfer, round.Reduce, round.End-s.reduce)
}
