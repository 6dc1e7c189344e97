package policy

import (
	"cmp"
	"slices"
)

type work int

const (
	working   work = iota // on the inner steps of the running round
	finishing             // on the inner steps of a round that is over
	arrived               // its arrival has been counted, late or not
	fetching              // getting the outer state
	waiting               // holds a state, and waits for a round to begin
)

// member is a worker that was admitted and not evicted since.
type member struct {
	id         ID
	work       work
	outerSteps int  // version of the outer state it holds
	begun      bool // has begun a round: until then it misses none
	gone       bool // no longer a member
	// learner is, as in Raft, a member that rounds do not count on until it has
	// caught up: a joiner before its first round.
	learner bool

	sidelined bool // since it last contributed
	misses    int  // consecutive missed rounds

	liveness  liveness
	round     memberRound
	reduction memberReduction
	fetch     memberFetch
}

// counted reports whether the running round counts the member's contribution.
func (w *member) counted() bool { return w.work == arrived && !w.round.late }

func (m *Machine) search(id ID) (int, bool) {
	return slices.BinarySearchFunc(m.members, id, func(w *member, id ID) int { return cmp.Compare(w.id, id) })
}

func (m *Machine) find(id ID) *member {
	if i := int(id); i >= 0 && i < len(m.members) && m.members[i].id == id {
		return m.members[i] // IDs mostly count from 0
	}
	if i, ok := m.search(id); ok {
		return m.members[i]
	}
	return nil
}

func ids(members []*member) []ID {
	if len(members) == 0 {
		return nil
	}
	out := make([]ID, len(members))
	for i, w := range members {
		out[i] = w.id
	}
	return out
}

// admit makes a worker a member.
func (m *Machine) admit(now Time, e Join, why Reason) {
	m.admissions[e.ID] = &admission{incarnation: e.Incarnation}
	w := &member{id: e.ID, liveness: liveness{lastHeartbeat: now}}
	i, _ := m.search(e.ID)
	m.members = slices.Insert(m.members, i, w)
	m.changed()
	if len(m.members) == 1 {
		m.scheduleCheck(now)
		if m.OuterSteps() == 0 {
			m.round.start = now
		}
	}
	why.Members = len(m.members)
	m.emit(&Admit{ID: e.ID, Incarnation: e.Incarnation, Round: m.round.number, Reason: why})
	if e.HasState && m.OuterSteps() == 0 {
		m.begin(now, w, RuleJoin)
		return
	}
	if m.cfg.Join.Learns() {
		w.learner = true
		m.learners++
	}
	if m.cfg.Join == JoinBlocking && m.voters() > 0 {
		w.work, w.outerSteps = waiting, -1 // until the round lets it in
		return
	}
	m.fetch(w, Reason{Rule: RuleJoin})
}

// letIn sends joiners that wait for the running round, which could close, to
// fetch its state, once per round. It reports whether the round has to wait for
// them.
func (m *Machine) letIn(now Time) (wait bool) {
	if m.cfg.Join != JoinBlocking || m.learners == 0 || m.round.letIn {
		return false
	}
	m.round.letIn, m.round.letInAt = true, now
	for _, w := range m.members {
		if w.learner && w.work == waiting && w.outerSteps != m.OuterSteps() {
			m.fetch(w, Reason{Rule: RuleJoin})
		}
	}
	if wait = m.letsIn(); wait {
		m.round.cutoff.enough = false // judged again when they are in
	}
	return wait
}

// letsIn reports whether the running round waits for joiners.
func (m *Machine) letsIn() bool {
	return m.round.letIn && m.phase == collecting &&
		slices.ContainsFunc(m.members, func(w *member) bool { return w.learner && w.work == fetching })
}

// evict removes a member. The caller settles the consequences.
func (m *Machine) evict(w *member, why Reason) {
	i, _ := m.search(w.id)
	m.members = slices.Delete(m.members, i, i+1)
	m.changed()
	w.gone = true
	m.promote(w)
	if w.counted() {
		m.round.arrived--
	}
	if m.phase == reducing && w.reduction.epoch == m.epoch {
		m.reduction.lost = append(m.reduction.lost, w)
	}
	m.admissions[w.id].evicted, m.admissions[w.id].outerSteps = why.Rule, m.OuterSteps()
	m.emit(&Evict{ID: w.id, Round: m.round.number, Rejoin: m.cfg.Rejoin == RejoinAfterRounds && why.Rule != RuleLeave, Reason: why})
	m.apart = slices.DeleteFunc(m.apart, func(p [2]ID) bool { return p[0] == w.id || p[1] == w.id })
	// Members that fetch from it need another donor. If it was the last in its
	// region with the state, all members of the region do.
	for _, f := range slices.Clone(m.members) {
		if f.work == fetching && (f.fetch.donor == w.id || !f.fetch.agreed && m.orphaned(f)) && m.phase != finished {
			gone := w.id
			m.fetch(f, Reason{Rule: RuleFetchFailed, Lost: &gone})
		}
	}
}

// voters returns the number of members that the running round counts on, all
// but the learners.
func (m *Machine) voters() int { return len(m.members) - m.learners }

// promote makes a learner a voter.
func (m *Machine) promote(w *member) {
	if w.learner {
		w.learner = false
		m.learners--
		m.changed()
	}
}

// promoteLearners starts learners that hold the state on the running round, if
// no voter is left to work on it.
func (m *Machine) promoteLearners(now Time) {
	if m.phase != collecting || m.voters() > 0 {
		return
	}
	for _, w := range m.members {
		m.promote(w)
		switch {
		case w.work != waiting || m.phase == finished:
		case w.outerSteps == m.OuterSteps():
			m.begin(now, w, RuleState)
		default: // it has yet to be let in
			m.fetch(w, Reason{Rule: RuleJoin})
		}
	}
}

// contributesZeros reports whether the member is a learner that takes part in
// the reduction of a round in which it did no inner steps: it holds the state.
func (m *Machine) contributesZeros(w *member) bool {
	return w.learner && m.cfg.Join != JoinNext && w.work == waiting && w.outerSteps == m.OuterSteps()
}
