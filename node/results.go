package node

import (
	"maps"
	"slices"
	"time"

	"testbed/policy"
	"testbed/runlog"
)

// reduced records what the participants of a reduction reported.
func (c *coordinator) reduced(now policy.Time, a *policy.OuterStep) {
	e := runlog.Event{T: now, Type: runlog.ReduceDone, Round: a.Round, Epoch: a.Epoch, Participants: a.Participants}
	var longest time.Duration
	for _, id := range a.Participants {
		m := c.outcomes[a.Epoch][id]
		longest = max(longest, m.Took)
		e.BytesSent += m.Bytes
	}
	e.Duration = policy.Time(float64(longest) / 1e3 / c.scenario.Real.TimeScale)
	e.Hash, e.Identical = agree(c.outcomes[a.Epoch], a.Participants)
	delete(c.outcomes, a.Epoch)
	c.report(e)
}

// agree returns the first participant's hash and whether all have the same.
func agree(reports map[policy.ID]message, participants []policy.ID) (string, *bool) {
	hash, same := reports[participants[0]].Hash, true
	for _, id := range participants {
		same = same && hash != "" && reports[id].Hash == hash
	}
	return hash, &same
}

func (c *coordinator) stepped(id policy.ID, m message) {
	if c.participants[m.OuterSteps] == nil {
		return // compared already
	}
	if c.states[m.OuterSteps] == nil {
		c.states[m.OuterSteps] = map[policy.ID]message{}
	}
	c.states[m.OuterSteps][id] = m
	c.compareStates()
}

// compareStates compares the outer states of the participants of a round once
// all that are still members have applied the outer step.
func (c *coordinator) compareStates() {
	for _, step := range slices.Sorted(maps.Keys(c.participants)) {
		missing := func(id policy.ID) bool {
			_, ok := c.states[step][id]
			return !ok && !c.workers[id].gone
		}
		if !slices.ContainsFunc(c.participants[step], missing) {
			c.compareState(step)
		}
	}
}

// compareState records what the participants of a round reported.
func (c *coordinator) compareState(step int) {
	reports := c.states[step]
	reported := slices.Sorted(maps.Keys(reports))
	if len(reported) > 0 {
		loss := reports[reported[0]].Loss
		e := runlog.Event{Type: runlog.State, Round: step, Participants: reported, Loss: &loss}
		e.Hash, e.Identical = agree(reports, reported)
		c.note(e)
	}
	delete(c.states, step)
	delete(c.participants, step)
}
