package policy

import (
	"cmp"
	"slices"
)

type work int

const (
	working  work = iota // on the inner steps of the round
	arrived              // its arrival has been counted, late or not
	fetching             // getting the outer state
	waiting              // holds a state; the next round tells it what to do
)

type member struct {
	id         ID
	work       work
	outerSteps int  // version of the outer state it holds
	late       bool // its arrival came after the round had closed
	begun      bool // has begun a round: before that it misses none
	misses     int  // consecutive missed rounds
	missed     bool // the running round is counted in misses
	sidelined  bool // since it last contributed
	arrivedAt  Time
	lag        Time // by which it began the round late, because it had to catch up
	resync     bool // the fetch under way is for an outer step that it missed
	lastHeard  Time
	fetches    int // how often it has been a donor since the last round
	donor      ID  // where it fetches from
	failures   int // fetches in a row that failed
	epoch      int // of the last reduction that it took part in
	reduced    bool
	gone       bool // no longer a member
	spectator  bool // a joiner whose first round is still to come
	finishing  bool // still works on the inner steps of a round that is over

	awaited     bool  // has not been heard since the coordinator was away
	unreachable bool  // says the network, since its last heartbeat
	blame       int   // failed reductions of this round it had a part in
	moved       int64 // what it last said it has received
	movedAt     Time  // when that last grew, or the reduction began
	from        *ID   // whom it receives from
}

// counted reports whether the running round has the member's contribution.
func (w *member) counted() bool { return w.work == arrived && !w.late }

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

func (m *Machine) join(now Time, e Join) {
	if m.former[e.ID] {
		m.emit(&Reject{ID: e.ID, Reason: Reason{Rule: RuleRejoinDenied}})
		return
	}
	m.former[e.ID] = true
	w := &member{id: e.ID, lastHeard: now}
	i, _ := m.search(e.ID)
	m.members = slices.Insert(m.members, i, w)
	if m.phase == idle {
		m.phase, m.round = collecting, 1
	}
	if len(m.members) == 1 {
		m.nextCheck = now - now%m.cfg.HeartbeatPeriod + m.cfg.HeartbeatPeriod
	}
	if m.phase == collecting && m.round == 1 && len(m.members) == 1 {
		m.roundStart = now
	}
	m.emit(&Admit{ID: e.ID, Round: m.round, Reason: Reason{Rule: RuleJoin, Members: len(m.members)}})
	if e.HasState && m.OuterSteps() == 0 {
		m.begin(w, RuleJoin)
		return
	}
	if m.cfg.Join == JoinNext || m.cfg.Join == JoinZeros {
		w.spectator = true
		m.spectators++
	}
	m.fetch(w, Reason{Rule: RuleJoin})
}

// evict removes a member. The caller settles the consequences.
func (m *Machine) evict(w *member, why Reason) {
	i, _ := m.search(w.id)
	m.members = slices.Delete(m.members, i, i+1)
	w.gone = true
	m.activate(w)
	if w.counted() {
		m.present--
	}
	if m.phase == reducing && w.epoch == m.epoch {
		m.lost = append(m.lost, w)
	}
	m.emit(&Evict{ID: w.id, Round: m.round, Reason: why})
	m.apart = slices.DeleteFunc(m.apart, func(p [2]ID) bool { return p[0] == w.id || p[1] == w.id })
	// Whoever fetches from it needs another donor.
	for _, f := range slices.Clone(m.members) {
		if f.work == fetching && f.donor == w.id && m.phase != finished {
			gone := w.id
			m.fetch(f, Reason{Rule: RuleFetchFailed, Lost: &gone})
		}
	}
}

// actors returns the number of members that the running round counts on.
func (m *Machine) actors() int { return len(m.members) - m.spectators }

// activate ends a spectator's watching.
func (m *Machine) activate(w *member) {
	if w.spectator {
		w.spectator = false
		m.spectators--
	}
}

// promote has spectators that hold the state begin the running round if nobody
// else is left to work on it.
func (m *Machine) promote() {
	if m.phase != collecting || m.actors() > 0 {
		return
	}
	for _, w := range m.members {
		m.activate(w)
		if w.work == waiting {
			m.begin(w, RuleState)
		}
	}
}
