package torchft

import (
	"slices"

	"testbed/policy"
)

// lineage is a line of outer states, each taken from the one before by an outer
// step. There is one, unless groups that do not know of each other go on from
// the same state. Then there is another one, whose states up to its base are
// its parent's.
//
//	0 ──1──2──3      lineage 0
//	       └──3──4   lineage 1, with base 2: outer step 3 is taken twice
type lineage struct {
	number int
	parent *lineage   // nil: it begins at its base
	base   int        // outer steps
	steps  int        // number of the last outer step taken
	other  []*lineage // lineages known to have taken the same outer steps
}

// state is an outer state: that of a lineage after so many outer steps.
type state struct {
	of    *lineage
	steps int
}

// plain names a state by the lineage that reached it first.
func (s state) plain() state {
	for s.of.parent != nil && s.steps <= s.of.base {
		s.of = s.of.parent
	}
	return s
}

// leadsTo reports whether a state is an ancestor of another one, or that state
// itself.
func (s state) leadsTo(to state) bool {
	if s.of == nil || s.steps > to.steps {
		return false
	}
	was := state{to.of, s.steps}.plain()
	return s.steps >= was.of.base && was == s.plain()
}

// root returns the lineage of workers that hold an initial state after so many
// outer steps.
func (m *Machine) root(steps int) *lineage {
	for _, l := range m.lineages {
		if l.parent == nil && l.base == steps {
			return l
		}
	}
	return m.newLineage(&lineage{base: steps, steps: steps})
}

func (m *Machine) newLineage(l *lineage) *lineage {
	l.number = m.begunLineages
	m.begunLineages++
	m.lineages = append(m.lineages, l)
	return l
}

// extends returns the lineage that an outer step from a state extends: that of the
// state, or a new one if others have gone on from there or are about to.
func (m *Machine) extends(from state) *lineage {
	taken := from.steps < from.of.steps || slices.ContainsFunc(m.attempts, func(r *attempt) bool { return r.from.plain() == from })
	if !taken {
		return from.of
	}
	return m.newLineage(&lineage{parent: from.of, base: from.steps, steps: from.steps})
}

// abandon forgets a lineage in which no outer step has been taken.
func (m *Machine) abandon(l *lineage) {
	if l.steps == l.base && l.parent != nil {
		m.lineages = slices.DeleteFunc(m.lineages, func(other *lineage) bool { return other == l })
	}
}

// took watches for splits: it records that an outer step has been taken twice,
// once for each pair of lineages.
func (m *Machine) took(r *attempt, by []*member) {
	now := state{r.lineage, r.lineage.steps}
	for _, l := range m.lineages {
		if l == r.lineage || l.steps < now.steps || now.leadsTo(state{l, l.steps}) || slices.Contains(r.lineage.other, l) {
			continue
		}
		r.lineage.other, l.other = append(r.lineage.other, l), append(l.other, r.lineage)
		m.split = true
		m.emit(&policy.Diverge{Round: now.steps, Epoch: r.epoch, Lineage: r.lineage.number, Other: l.number, Participants: ids(by),
			Reason: policy.Reason{Rule: policy.RuleSplitBrain, Arrived: len(by), Needed: m.policy.MinReplicas, QuorumID: r.why.QuorumID}})
	}
}

// moves gives a member another state. Outer steps that no member holds any more
// are then lost.
func (m *Machine) moves(w *member, to state) {
	before := state{w.lineage, w.step}
	w.hold(to)
	if before.of == nil || before.leadsTo(to) {
		return
	}
	kept := shared(before, to)
	for _, o := range m.members {
		if o != w && o.lineage != nil {
			kept = max(kept, shared(before, state{o.lineage, o.step}))
		}
	}
	if kept < before.steps {
		m.emit(&policy.Undo{ID: w.workers[0], Round: before.steps, Steps: before.steps - kept, Lineage: before.of.number, Other: to.of.number,
			Reason: policy.Reason{Rule: policy.RuleSplitBrain, Members: len(m.members)}})
	}
}

// shared returns the number of outer steps that a and b share, including those
// that a began with.
func shared(a, b state) int {
	steps := min(a.steps, b.steps)
	for {
		x, y := state{a.of, steps}.plain(), state{b.of, steps}.plain()
		if x == y && steps >= x.of.base {
			return steps
		}
		before := -1
		for _, l := range []*lineage{x.of, y.of} {
			if l.parent != nil {
				before = max(before, l.base)
			}
		}
		if before < 0 {
			for a.of.parent != nil {
				a.of = a.of.parent
			}
			return a.of.base
		}
		steps = before
	}
}
