package node

import (
	"maps"
	"slices"
	"time"

	"testbed/policy"
	"testbed/runlog"
	"testbed/scenarios/regions"
)

// results are what workers report of reductions and of the states that they lead
// to, until those of all participants are there to be compared.
type results struct {
	epoch        int                           // of the last reduction
	outcomes     map[int]map[policy.ID]message // of reductions, by epoch
	participants map[int][]policy.ID           // by outer step
	states       map[int]map[policy.ID]message // after outer steps
}

func newResults() results {
	return results{
		outcomes: map[int]map[policy.ID]message{}, participants: map[int][]policy.ID{}, states: map[int]map[policy.ID]message{},
	}
}

// clear forgets all but the epoch.
func (r *results) clear() {
	clear(r.outcomes)
	clear(r.participants)
	clear(r.states)
}

// addOutcome takes what a reduction came to at a worker, unless it was aborted
// meanwhile.
func (r *results) addOutcome(id policy.ID, m message) (ok bool) {
	if m.Epoch != r.epoch {
		return false
	}
	if r.outcomes[m.Epoch] == nil {
		r.outcomes[m.Epoch] = map[policy.ID]message{}
	}
	r.outcomes[m.Epoch][id] = m
	return true
}

// reduced sums up what the participants of a reduction reported.
func (r *results) reduced(now policy.Time, a *policy.OuterStep, rule *regions.Rule, took func(time.Duration) policy.Time) runlog.Event {
	e := runlog.Event{T: now, Type: runlog.ReduceDone, Round: a.Round, Epoch: a.Epoch, Participants: a.Participants}
	var longest time.Duration
	for _, id := range a.Participants {
		m := r.outcomes[a.Epoch][id]
		longest = max(longest, m.Took)
		e.BytesSent += m.Bytes
	}
	e.Duration = took(longest)
	e.Agree(rule.Rings(a.Round, a.Participants), func(id policy.ID) string { return r.outcomes[a.Epoch][id].Hash })
	delete(r.outcomes, a.Epoch)
	return e
}

// addState takes the state that an outer step led to at a worker, unless those of
// that step have been compared already.
func (r *results) addState(id policy.ID, m message) (ok bool) {
	if r.participants[m.OuterSteps] == nil {
		return false
	}
	if r.states[m.OuterSteps] == nil {
		r.states[m.OuterSteps] = map[policy.ID]message{}
	}
	r.states[m.OuterSteps][id] = m
	return true
}

// forget expects no state of a worker any more.
func (r *results) forget(id policy.ID) {
	for step, participants := range r.participants {
		if _, reported := r.states[step][id]; !reported {
			r.participants[step] = slices.DeleteFunc(slices.Clone(participants), func(p policy.ID) bool { return p == id })
		}
	}
}

// compareStates compares the outer states of the participants of a round once
// all that are still members have applied the outer step.
func (c *coordinator) compareStates() {
	for _, step := range slices.Sorted(maps.Keys(c.results.participants)) {
		missing := func(id policy.ID) bool {
			_, ok := c.results.states[step][id]
			return !ok && !c.workers[id].gone
		}
		if !slices.ContainsFunc(c.results.participants[step], missing) {
			c.compareState(step)
		}
	}
}

// compareState records what the participants of a round reported.
func (c *coordinator) compareState(step int) {
	reports := c.results.states[step]
	reported := slices.Sorted(maps.Keys(reports))
	if len(reported) > 0 {
		e := runlog.Event{Type: runlog.State, Round: step, Participants: reported}
		if !c.scenario.Train.Real() && c.regions.Global(step) { // else one of them tells it, later
			e.Loss = new(reports[reported[0]].Loss)
		}
		e.Agree(c.regions.Rings(step, reported), func(id policy.ID) string { return reports[id].Hash })
		c.note(e)
	}
	delete(c.results.states, step)
	delete(c.results.participants, step)
}
