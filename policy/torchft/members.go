package torchft

import (
	"fmt"
	"slices"

	"testbed/policy"
	"testbed/quorum"
)

// work is what a member is at.
type work int

const (
	training work = iota // the inner steps of the round after its step
	waiting              // for a quorum
	fetching             // the state
	ready                // in the running quorum, with the state
	unheard              // has seen a step fail, and asks when it is heard again
	unsaid               // is to drop a reduction that took too long, and asks when it says that it has
)

// member is a life of a worker: a replica.
type member struct {
	id      policy.ID
	replica string // its id
	house   *house // that it asks
	work    work
	gone    bool
	begun   bool // it has begun a round

	lineage     *lineage // of the state that it holds, or nil
	step        int      // outer steps in it, or -1
	initial     bool     // its process has not held another state than the initial one
	contributes bool     // to the outer step after it
	failures    int64    // outer steps in a row that it failed to commit
	in          *attempt // that is under way, or nil
	vote        vote     // on its reduction
	confirms    int      // the epoch of the reduction that it is to drop
	donor       *member
	fetches     state       // that it is to get, or one after it
	begins      bool        // the round, once it has fetched the state
	asked       policy.Time // for the quorum that it waits for
	again       policy.Time // when it repeats a request that was lost, or 0
	group       group       // the process group that it has configured

	lastHeartbeat policy.Time // or when it joined
	heard         bool        // since the last check
	beat          policy.Time // its last sign of life for the lighthouse
	unreachable   bool        // says the network, since its last heartbeat

	sidelined bool
	misses    int // rounds in a row that went on without it
	missed    int // the last of them
}

func (m *Machine) find(id policy.ID) *member {
	if i, ok := m.search(id); ok {
		return m.members[i]
	}
	return nil
}

// replica returns the member of a replica id, or nil if its life is over.
func (m *Machine) replica(id string) *member {
	i := slices.IndexFunc(m.members, func(w *member) bool { return w.replica == id })
	if i < 0 {
		return nil
	}
	return m.members[i]
}

// alive reports whether the lighthouse takes a member for alive.
func (m *Machine) alive(now policy.Time, w *member) bool {
	return now-w.beat < m.policy.HeartbeatTimeout
}

// participant returns the member if it takes part in the reduction of this epoch.
func (m *Machine) participant(id policy.ID, round, epoch int) *member {
	if w := m.find(id); w != nil && w.in != nil && w.in.epoch == epoch && w.in.from.steps == round-1 && epoch > 0 {
		return w
	}
	return nil
}

// join admits a worker, in whichever life: nobody is out for good. A life that
// was not known to be over is over now.
func (m *Machine) join(now policy.Time, e policy.Join) {
	l, w := m.lives[e.ID], m.find(e.ID)
	switch {
	case l == nil:
		l = &lives{}
		m.lives[e.ID] = l
	case e.Incarnation < l.incarnation || e.Incarnation == l.incarnation && w != nil:
		m.emit(&policy.Reject{ID: e.ID, Reason: policy.Reason{Rule: policy.RuleRejoinDenied}})
		return
	case w != nil:
		m.evict(now, w, policy.Reason{Rule: policy.RuleReplaced, Silent: now - w.lastHeartbeat}, false)
		if m.finished {
			return
		}
	}
	fresh := l.begun == 0 || e.Incarnation != l.incarnation
	l.incarnation = e.Incarnation
	l.begun++
	// Replica ids are ordered as the workers are, and so are ranks.
	w = &member{id: e.ID, replica: fmt.Sprintf("w%020d:%06d", e.ID, l.begun), house: m.houseOf(e.ID, e.Incarnation), step: -1, initial: fresh, lastHeartbeat: now, beat: now}
	i, _ := m.search(e.ID)
	m.members = slices.Insert(m.members, i, w)
	if len(m.members) == 1 {
		m.scheduleCheck(now)
	}
	if e.HasState {
		m.outerSteps = max(m.outerSteps, e.OuterSteps)
	}
	m.emit(&policy.Admit{ID: e.ID, Incarnation: e.Incarnation, Round: m.outerSteps + 1, Reason: policy.Reason{Rule: policy.RuleJoin, Members: len(m.members)}})
	if e.HasState && (e.OuterSteps > 0 || !m.taken) {
		w.lineage, w.step = m.root(e.OuterSteps), e.OuterSteps
		m.tell(now, w.house, quorum.Heartbeat{ReplicaID: w.replica})
		m.begin([]*member{w}, policy.RuleJoin)
		return
	}
	m.ask(now, w)
}

// lose removes a worker that is known to be gone. It may come back, unless it left.
func (m *Machine) lose(now policy.Time, id policy.ID, rule policy.Rule) {
	if w := m.find(id); w != nil {
		m.evict(now, w, policy.Reason{Rule: rule, Silent: now - w.lastHeartbeat}, rule != policy.RuleLeave)
	}
}

// evict ends a life. The lighthouse takes it for alive until its heartbeats are
// too old, since nobody tells it; a call that waits there ends with it.
func (m *Machine) evict(now policy.Time, w *member, why policy.Reason, rejoin bool) {
	i, _ := m.search(w.id)
	m.members = slices.Delete(m.members, i, i+1)
	w.gone = true
	if why.Rule == policy.RuleLeave {
		why.Silent = 0
	}
	m.emit(&policy.Evict{ID: w.id, Round: m.outerSteps + 1, Rejoin: rejoin, Reason: why})
	if w.work == waiting {
		m.tell(now, w.house, quorum.Cancel{ReplicaID: w.replica})
	}
	if r := w.in; r != nil { // the others' connections to it are gone
		r.participants = slices.DeleteFunc(slices.Clone(r.participants), func(p *member) bool { return p == w })
		w.in = nil
		m.decide(now, r, policy.Reason{Rule: policy.RuleLost, Lost: &w.id})
	}
}

func (m *Machine) arrival(now policy.Time, e policy.Arrival) {
	w := m.find(e.ID)
	if w == nil || w.work != training || e.Round != w.step+1 {
		return
	}
	h := w.house
	late := slices.ContainsFunc(m.attempts, func(r *attempt) bool { return r.house == h && r.lineage == w.lineage }) ||
		slices.ContainsFunc(m.members, func(o *member) bool {
			return o.house == h && o.step > w.step && (state{w.lineage, w.step}).leadsTo(state{o.lineage, o.step})
		})
	if !h.hasFirst {
		h.first, h.hasFirst = now, true
	}
	why := policy.Reason{Rule: policy.RuleOnTime, Members: len(m.members)}
	if late {
		why.Rule = policy.RuleLate
	}
	m.emit(&policy.Arrived{ID: w.id, Round: e.Round, Offset: now - h.first, Late: late, Reason: why})
	w.contributes = true
	m.ask(now, w)
}

func (m *Machine) fetched(now policy.Time, e policy.StateFetched) {
	w := m.find(e.ID)
	if w == nil || w.work != fetching || e.OuterSteps < w.fetches.steps { // that is of a fetch before
		return
	}
	got, newer := w.fetches, state{w.donor.lineage, w.donor.step}
	w.initial = false
	switch {
	case !w.donor.gone && newer.of != nil && got.leadsTo(newer): // it may have gone on meanwhile
		got = state{newer.of, min(e.OuterSteps, newer.steps)}.plain()
	case e.OuterSteps != got.steps: // of the donor's next life, or of another lineage
		w.lineage, w.step = nil, -1
		m.fetchFailed(now, e.ID)
		return
	}
	m.emit(&policy.Fetched{ID: w.id, Round: got.of.steps + 1, Reason: policy.Reason{Rule: policy.RuleState}})
	m.moves(w, got)
	switch {
	case w.in != nil:
		w.work = ready
		m.reduce(now, w.in)
	case w.begins && (w.step == w.lineage.steps || newer.of != nil && newer.plain() == got): // nobody that it was with has gone on
		m.begin([]*member{w}, policy.RuleState)
	default: // the quorum that it was for is over
		m.ask(now, w)
	}
}

// fetchFailed has the step fail that waits for a fetch, and the member ask anew.
func (m *Machine) fetchFailed(now policy.Time, id policy.ID) {
	w := m.find(id)
	if w == nil || w.work != fetching {
		return
	}
	if w.in == nil {
		m.ask(now, w)
		return
	}
	w.work = ready
	donor := w.donor.id
	m.decide(now, w.in, policy.Reason{Rule: policy.RuleFetchFailed, Lost: &w.id, Peer: &donor})
}

func (m *Machine) scheduleCheck(now policy.Time) {
	m.nextCheck = now - now%m.cfg.HeartbeatPeriod + m.cfg.HeartbeatPeriod
}

// heartbeat notes a sign of life, of which the lighthouse hears at the next check:
// so a recorded run, which has the checks, can be replayed.
func (m *Machine) heartbeat(now policy.Time, id policy.ID) {
	if w := m.find(id); w != nil {
		w.heard = w.heard || now > w.lastHeartbeat // a replay repeats the last one
		w.lastHeartbeat, w.unreachable = now, false
	}
}

// checkHeartbeats tells the lighthouse who has given a sign of life since the last
// check, and records who is silent.
func (m *Machine) checkHeartbeats(now policy.Time) {
	for _, w := range slices.Clone(m.members) {
		if silent := now - w.lastHeartbeat; silent >= m.cfg.HeartbeatPeriod {
			m.emit(&policy.HeartbeatMiss{ID: w.id, Round: m.outerSteps + 1, Reason: policy.Reason{Rule: policy.RuleHeartbeat, Silent: silent,
				Misses: int(silent / m.cfg.HeartbeatPeriod), Limit: int(m.policy.HeartbeatTimeout / m.cfg.HeartbeatPeriod)}})
		}
		if !w.heard {
			continue
		}
		w.heard, w.beat = false, now
		m.tell(now, w.house, quorum.Heartbeat{ReplicaID: w.replica})
		if w.work == unheard {
			m.ask(now, w)
		}
	}
}

// checkUnreachable removes whoever is unreachable and has missed a heartbeat.
func (m *Machine) checkUnreachable(now policy.Time) {
	for _, w := range slices.Clone(m.members) {
		if w.unreachable && now-w.lastHeartbeat >= m.cfg.HeartbeatPeriod && !m.finished && !w.gone {
			m.evict(now, w, policy.Reason{Rule: policy.RuleConnection, Silent: now - w.lastHeartbeat}, true)
		}
	}
}

// recover has all time-outs count from now: the coordinator was away, and has
// missed heartbeats and requests meanwhile. It comes back with its journal, and so
// the lighthouse does not forget, unless it is to.
func (m *Machine) recover(now policy.Time, e policy.Recovered) {
	m.scheduleCheck(now)
	m.hasWake = false
	for _, r := range m.attempts {
		r.issued = now
	}
	for _, w := range m.members {
		w.lastHeartbeat, w.beat, w.unreachable = now, now, false
	}
	if e.Forgets {
		m.forget(now, now-e.Away)
		return
	}
	for _, w := range m.members {
		m.tell(now, w.house, quorum.Heartbeat{ReplicaID: w.replica})
	}
	for _, w := range slices.Clone(m.members) {
		if w.work == waiting && !m.finished {
			m.tell(now, w.house, quorum.Cancel{ReplicaID: w.replica})
			m.ask(now, w)
		}
	}
}

// forget begins with a lighthouse that knows nobody until it hears from them, and
// whose ids count from 1. The requests that waited when the one before died are
// lost: a manager repeats its own as often as it may, in equal parts of its
// time-out, and waits for that if none of them comes late enough.
func (m *Machine) forget(now, died policy.Time) {
	if err := m.newHouses(); err != nil {
		panic(err) // the same configuration as at first
	}
	pause := max(m.policy.QuorumTimeout/policy.Time(m.policy.QuorumRetries+1), 1)
	for _, w := range m.members {
		w.heard = false
		if next := max((now-died+pause-1)/pause, 1); w.work == waiting && next <= policy.Time(m.policy.QuorumRetries) {
			w.again = died + next*pause
		}
	}
}

// group is a process group as a member has configured it. It does so when the
// quorum has another id, and knows nothing else of the quorum.
type group struct {
	id      int64
	members []string // replica ids
}

// stale returns a participant whose process group is not the quorum's, though its
// id is, or nil, when all others have configured theirs.
func (r *attempt) stale() (of *member) {
	var with []string
	for _, w := range r.participants {
		with = append(with, w.replica)
	}
	for _, w := range r.participants {
		if w.group.id != r.why.QuorumID {
			w.group = group{r.why.QuorumID, with}
		} else if !slices.Equal(w.group.members, with) {
			of = w
		}
	}
	return of
}

// restart begins the round after a checkpoint with the present members, all of
// them new replicas at a new lighthouse.
func (m *Machine) restart(now policy.Time, e policy.Restarted) {
	if err := m.newHouses(); err != nil {
		panic(err) // the same configuration as at first
	}
	at := &lineage{steps: e.OuterSteps}
	m.finished, m.attempts, m.outerSteps, m.taken = false, nil, e.OuterSteps, true
	m.lineages, m.begunLineages, m.hasWake = []*lineage{at}, 1, false
	m.scheduleCheck(now)
	var holders []*member
	for _, w := range m.members {
		l := m.lives[w.id]
		l.begun++
		*w = member{id: w.id, replica: fmt.Sprintf("w%020d:%06d", w.id, l.begun), house: w.house, step: -1, lastHeartbeat: now, beat: now}
		m.tell(now, w.house, quorum.Heartbeat{ReplicaID: w.replica})
		if slices.Contains(e.Holders, w.id) {
			w.lineage, w.step = at, e.OuterSteps
			holders = append(holders, w)
		}
	}
	if len(holders) > 0 {
		m.begin(holders, policy.RuleRestart)
	}
	for _, w := range m.members {
		if w.step < 0 {
			m.ask(now, w)
		}
	}
}
