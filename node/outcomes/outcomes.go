// Package outcomes keeps workers' reports of reductions, and of the states
// after them, until the reports of all participants can be compared.
//
// The package is pure.
package outcomes

import (
	"maps"
	"slices"
	"time"

	"testbed/policy"

	"testbed/record"
)

// Reduced is a worker's report of a reduction.
type Reduced struct {
	Hash  string // of the mean
	Bytes int64  // sent
	Took  time.Duration
}

// Stepped is a worker's report of the state after an outer step.
type Stepped struct {
	OuterSteps int
	Hash       string
	Loss       float64
}

// Book has the reports of a run.
type Book struct {
	rule    *policy.Grouping
	loses   bool                                   // states come with their losses
	running map[policy.Epoch]map[policy.ID]Reduced // reductions under way, by epoch
	steps   []step                                 // outer steps without all states, in order
}

// step is an outer step that has been taken.
type step struct {
	round        int
	lineage      int
	participants []policy.ID
	states       map[policy.ID]Stepped
}

// New returns an empty book of a run with these regions. Unless loses is set,
// the losses of states are reported separately, later.
func New(rule *policy.Grouping, loses bool) *Book {
	return &Book{rule: rule, loses: loses, running: map[policy.Epoch]map[policy.ID]Reduced{}}
}

// Clear forgets the states that the book waits for.
func (b *Book) Clear() {
	clear(b.running)
	b.steps = nil
}

// Waits reports whether the book waits for states.
func (b *Book) Waits() bool { return len(b.steps) > 0 }

// Missing lists the workers whose states the book waits for.
func (b *Book) Missing() (all []policy.ID) {
	for _, of := range b.steps {
		for _, id := range of.participants {
			if _, reported := of.states[id]; !reported && !slices.Contains(all, id) {
				all = append(all, id)
			}
		}
	}
	return all
}

// Begin notes the beginning of a reduction, and Abort its end without an
// outcome.
func (b *Book) Begin(epoch policy.Epoch) { b.running[epoch] = map[policy.ID]Reduced{} }
func (b *Book) Abort(epoch policy.Epoch) { delete(b.running, epoch) }

// Reduced takes a worker's report of a reduction, unless the reduction is over.
func (b *Book) Reduced(epoch policy.Epoch, id policy.ID, r Reduced) (ok bool) {
	of, ok := b.running[epoch]
	if ok {
		of[id] = r
	}
	return ok
}

// Step summarises the participants' reports of a reduction, and begins to wait
// for the states after the outer step. took converts to scenario time.
func (b *Book) Step(now policy.Time, a *policy.OuterStep, took func(time.Duration) policy.Time) record.Event {
	e := record.Event{T: now, Type: record.ReduceDone, Round: a.Round, Epoch: a.Epoch, Lineage: a.Lineage, Participants: a.Participants}
	of := b.running[a.Epoch]
	var longest time.Duration
	for _, id := range a.Participants {
		longest = max(longest, of[id].Took)
		e.BytesSent += of[id].Bytes
	}
	e.Duration = took(longest)
	e.Agree(b.rule.Rings(a.Round, a.Participants), func(id policy.ID) string { return of[id].Hash })
	delete(b.running, a.Epoch)
	b.steps = append(b.steps, step{a.Round, a.Lineage, a.Participants, map[policy.ID]Stepped{}})
	return e
}

// Stepped takes a participant's state after an outer step, unless the states of
// that step have been compared already.
func (b *Book) Stepped(id policy.ID, s Stepped) (ok bool) {
	for _, of := range b.steps {
		if of.round == s.OuterSteps && slices.Contains(of.participants, id) {
			of.states[id] = s
			return true
		}
	}
	return false
}

// Forget no longer expects a state of a worker.
func (b *Book) Forget(id policy.ID) {
	for k, of := range b.steps {
		if _, reported := of.states[id]; !reported {
			b.steps[k].participants = slices.DeleteFunc(slices.Clone(of.participants), func(p policy.ID) bool { return p == id })
		}
	}
}

// Compare returns the record of the outer steps whose states have come from all
// participants that are not gone; with a nil gone, of all.
func (b *Book) Compare(gone func(policy.ID) bool) (told []record.Event) {
	b.steps = slices.DeleteFunc(b.steps, func(of step) bool {
		missing := func(id policy.ID) bool {
			_, ok := of.states[id]
			return !ok && !gone(id)
		}
		if gone != nil && slices.ContainsFunc(of.participants, missing) {
			return false
		}
		if reported := slices.Sorted(maps.Keys(of.states)); len(reported) > 0 {
			e := record.Event{Type: record.State, Round: of.round, Lineage: of.lineage, Participants: reported}
			if b.loses && b.rule.Together(of.round) {
				e.Loss = new(of.states[reported[0]].Loss)
			}
			e.Agree(b.rule.Rings(of.round, reported), func(id policy.ID) string { return of.states[id].Hash })
			told = append(told, e)
		}
		return true
	})
	return told
}
