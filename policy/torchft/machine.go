package torchft

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"testbed/policy"
	"testbed/quorum"
)

// phase is what the machine waits for.
//
//	asking ── a quorum ──► healing ── all hold the state ──► reducing
//	     ◄── no commit ───┴─────────────── commit or not ──┘
type phase int

const (
	asking   phase = iota // for a quorum
	healing               // for those in it that are behind
	reducing              // for what its reduction comes to
	finished
)

// Machine is the coordinator under torchft's protocol: the lighthouse, and as much
// of the managers as decides on others than themselves. A worker is a replica
// group of one rank. It is not safe for concurrent use.
type Machine struct {
	cfg        policy.Config
	policy     Policy
	lighthouse *quorum.Lighthouse
	phase      phase
	outerSteps int // committed
	epoch      int // the number of the last reduction begun
	members    []*member
	lives      map[policy.ID]*lives
	running    attempt // while healing or reducing

	first    policy.Time // arrival since the last quorum
	hasFirst bool
	deadline *policy.Deadline // of the join timeout under way

	nextCheck policy.Time // of heartbeats
	wake      policy.Time
	hasWake   bool
	out       []policy.Action
}

// lives is what is kept of a worker beyond its life as a replica.
type lives struct {
	incarnation int
	begun       int // lives so far, each with a replica id of its own
	killed      int // by the quorum timeout
}

// attempt is the outer step of a quorum.
type attempt struct {
	participants []*member
	why          policy.Reason // of the close of the round
	issued       policy.Time
	held         policy.Time // for those that were behind
	reduces      bool        // the reduction has begun
}

// New returns a machine in which nobody has joined yet.
func New(cfg policy.Config, p Policy) (*Machine, error) {
	if cfg.HeartbeatPeriod < 1 || cfg.HeartbeatMissThreshold < 1 || cfg.TargetOuterSteps < 1 {
		return nil, errors.New("torchft: heartbeat period, miss threshold and number of outer steps must be at least 1")
	}
	if cfg.Region != nil {
		return nil, errors.New("torchft: it has one outer state for all, and train.regions one for each region; choose another policy, or take train.regions out")
	}
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("torchft: %w", err)
	}
	m := &Machine{cfg: cfg, policy: p.resolved(cfg), lives: map[policy.ID]*lives{}}
	return m, m.newLighthouse()
}

// newLighthouse begins with a lighthouse that knows nobody.
func (m *Machine) newLighthouse() (err error) {
	m.lighthouse, err = quorum.New(quorum.Config{MinReplicas: m.policy.MinReplicas, JoinTimeout: m.policy.JoinTimeout, HeartbeatTimeout: m.policy.HeartbeatTimeout})
	return err
}

// OuterSteps returns the number of outer steps that are committed.
func (m *Machine) OuterSteps() int { return m.outerSteps }

// Members returns the number of workers that have joined and are not known to be
// gone, silent or not.
func (m *Machine) Members() int { return len(m.members) }

// Finished reports whether a Finish action has been given.
func (m *Machine) Finished() bool { return m.phase == finished }

// Step takes one event and returns what is to be done about it, in order. The
// slice is valid until the next call. Times must not decrease. Events that make
// no sense any more have no effect.
func (m *Machine) Step(now policy.Time, e policy.Event) []policy.Action {
	m.out = m.out[:0]
	if r, ok := e.(policy.Restarted); ok {
		m.restart(now, r)
	} else if m.phase == finished {
		return nil
	}
	switch e := e.(type) {
	case policy.Heartbeat:
		m.heartbeat(now, e.ID)
		return nil
	case policy.Progress:
		m.heartbeat(now, e.ID)
		return nil
	case policy.Join:
		m.join(now, e)
	case policy.Leave:
		m.lose(now, e.ID, policy.RuleLeave)
	case policy.Lost:
		m.lose(now, e.ID, e.Rule)
	case policy.Unreachable:
		if w := m.find(e.ID); w != nil {
			w.unreachable = true
			m.checkUnreachable(now)
		}
	case policy.Arrival:
		m.arrival(now, e)
	case policy.Reduced:
		if w := m.participant(e.ID, e.Round, e.Epoch); w != nil {
			w.reduced = true
			m.commit(now)
		}
	case policy.ReduceFailed:
		if w := m.participant(e.ID, e.Round, e.Epoch); w != nil {
			m.fail(now, policy.Reason{Rule: policy.RuleReduceFailed, Lost: &w.id, Peer: e.Peer})
		}
	case policy.StateFetched:
		m.fetched(now, e)
	case policy.FetchFailed:
		m.fetchFailed(now, e.ID)
	case policy.Timer:
		m.hasWake = false
		m.timer(now)
	case policy.Recovered:
		m.recover(now)
	}
	m.setWake(now)
	return m.out
}

func (m *Machine) emit(a policy.Action) { m.out = append(m.out, a) }

func (m *Machine) finish(complete bool, why policy.Reason) {
	m.phase, m.running = finished, attempt{}
	m.emit(&policy.Finish{Complete: complete, Reason: why})
}

// ask has a member ask for the next quorum, and wait for it.
func (m *Machine) ask(now policy.Time, w *member) {
	if m.phase == finished || w.gone {
		return
	}
	w.work, w.asked, w.beat, w.begins = waiting, now, now, false
	m.tell(now, quorum.Request{Member: quorum.Member{ReplicaID: w.replica, Step: int64(w.step), WorldSize: 1, CommitFailures: w.failures}})
}

// tell gives the lighthouse an event and carries out what it decides.
func (m *Machine) tell(now policy.Time, e quorum.Event) {
	for _, a := range m.lighthouse.Step(now, e) {
		switch a := a.(type) {
		case *quorum.Issue:
			m.issued(now, a)
		case *quorum.Hold:
			m.hold(a)
		}
	}
}

// hold records until when a join timeout has the living waited for.
func (m *Machine) hold(a *quorum.Hold) {
	if a.Rule != quorum.RuleJoinTimeout || m.phase != asking || m.deadline != nil && m.deadline.At == a.Until {
		return
	}
	m.deadline = &policy.Deadline{At: a.Until, Offset: m.policy.JoinTimeout, Numbers: map[string]float64{"join_timeout_us": float64(m.policy.JoinTimeout)}}
	m.emit(&policy.ArmDeadline{Round: m.outerSteps + 1, At: a.Until, Reason: policy.Reason{Rule: policy.RuleDeadline, Deadline: m.deadline}})
}

// reason is the lighthouse's in the terms of all policies: all that live have
// asked, the join timeout is over, or enough have asked.
func (m *Machine) reason(now policy.Time, a *quorum.Issue) policy.Reason {
	why := policy.Reason{Rule: policy.RuleQuorum, Members: a.Healthy, Arrived: a.Ready, Needed: max(a.MinReplicas, a.Healthy/2+1), QuorumID: a.Quorum.ID, Deadline: m.deadline}
	switch {
	case a.Ready == a.Healthy:
		why.Rule = policy.RuleAllArrived
	case a.Reason.Rule == quorum.RuleFastQuorum:
		why.Needed, why.Deadline = len(a.Quorum.Participants), nil
	case m.deadline != nil && now >= m.deadline.At:
		why.Rule = policy.RuleDeadline
	}
	return why
}

// issued begins the outer step of a quorum.
func (m *Machine) issued(now policy.Time, a *quorum.Issue) {
	var in []*member
	maxStep := -1
	for _, p := range a.Quorum.Participants {
		if w := m.replica(p.ReplicaID); w != nil {
			in, maxStep = append(in, w), max(maxStep, w.step)
		}
	}
	if m.phase != asking || maxStep < m.outerSteps {
		m.split(now, in, a)
		return
	}
	why := m.reason(now, a)
	m.running = attempt{participants: in, why: why, issued: now}
	m.phase, m.deadline, m.hasFirst = healing, nil, false
	contributions := false
	for _, w := range in {
		w.work, w.reduced = ready, false
		contributions = contributions || w.contributes && w.step == maxStep
		if w.sidelined {
			m.emit(&policy.Rejoin{ID: w.id, Round: m.outerSteps + 1, Reason: policy.Reason{Rule: policy.RuleOnTime, Misses: w.misses, QuorumID: why.QuorumID}})
			w.sidelined, w.misses = false, 0
		}
	}
	if !contributions {
		m.beginAnew(now, in, a)
		return
	}
	m.heal(a)
	m.reduce(now)
}

// heal has those that are behind fetch the state, each from the one that the
// quorum says.
func (m *Machine) heal(a *quorum.Issue) {
	for _, p := range a.Quorum.Participants {
		w := m.replica(p.ReplicaID)
		r, err := a.Quorum.Results(p.ReplicaID, 0, false)
		if err != nil || !r.Heal {
			continue
		}
		why := policy.Reason{Rule: policy.RuleResync, Misses: w.misses, QuorumID: r.QuorumID}
		if w.step < 0 {
			why.Rule = policy.RuleJoin
		}
		w.work, w.contributes = fetching, false
		w.donor = m.replica(r.ReplicaIDs[*r.RecoverSrcReplicaRank]).id
		m.emit(&policy.Fetch{ID: w.id, From: w.donor, Round: m.outerSteps + 1, OuterSteps: m.outerSteps, Reason: why})
	}
}

// beginAnew has the members of a quorum that has nothing to reduce do the inner
// steps of its round. Those that are behind fetch the state before.
func (m *Machine) beginAnew(now policy.Time, in []*member, a *quorum.Issue) {
	m.phase, m.running = asking, attempt{}
	m.heal(a)
	for _, w := range in {
		if w.begins = w.work == fetching; !w.begins {
			m.begin(now, []*member{w}, policy.RuleState)
		}
	}
}

// split ends a run in which a quorum has come about beside the one that has the
// newest state: torchft would commit different updates for one outer step. If
// nobody has that state any more, it is lost.
func (m *Machine) split(now policy.Time, in []*member, a *quorum.Issue) {
	why := policy.Reason{Rule: policy.RuleStateLost, Members: a.Healthy, Arrived: len(in), Needed: a.MinReplicas, QuorumID: a.Quorum.ID}
	for _, w := range m.members {
		if w.step == m.outerSteps && m.alive(now, w) {
			why.Rule = policy.RuleSplitBrain
		}
	}
	m.finish(false, why)
}

// reduce begins the reduction once all participants hold the state.
func (m *Machine) reduce(now policy.Time) {
	r := &m.running
	if m.phase != healing || slices.ContainsFunc(r.participants, func(w *member) bool { return w.work == fetching }) {
		return
	}
	r.held = now - r.issued
	m.close(now)
	m.phase, r.reduces = reducing, true
	m.epoch++
	var zero []policy.ID
	for _, w := range r.participants {
		if !w.contributes {
			zero = append(zero, w.id)
		}
	}
	m.emit(&policy.Reduce{Round: m.outerSteps + 1, Epoch: m.epoch, Participants: ids(r.participants), Zero: zero,
		Reason: policy.Reason{Rule: r.why.Rule, Members: r.why.Members, Arrived: r.why.Arrived, QuorumID: r.why.QuorumID}})
}

// close records who takes part, and who lives and does not.
func (m *Machine) close(now policy.Time) {
	r := &m.running
	var late []*member
	for _, w := range m.members {
		if w.begun && m.alive(now, w) && !slices.Contains(r.participants, w) {
			late = append(late, w)
		}
	}
	if r.held > 0 && r.why.Rule == policy.RuleDeadline {
		r.why.Rule = policy.RuleQuorum // the deadline came before
	}
	m.emit(&policy.Close{Round: m.outerSteps + 1, Participants: ids(r.participants), Late: ids(late), Held: r.held, Reason: r.why})
	for _, w := range late {
		if w.missed != m.outerSteps+1 { // a step that is tried again counts once
			w.missed, w.misses = m.outerSteps+1, w.misses+1
		}
		w.sidelined = true
		why := r.why
		why.Rule, why.Misses = policy.RuleLate, w.misses
		m.emit(&policy.Sideline{ID: w.id, Round: m.outerSteps + 1, Reason: why})
	}
}

// commit makes the outer step final if every participant holds its outcome, and
// they are enough.
func (m *Machine) commit(now policy.Time) {
	in := m.running.participants
	if slices.ContainsFunc(in, func(w *member) bool { return !w.reduced }) {
		return
	}
	id := m.running.why.QuorumID
	if len(in) < m.policy.MinReplicas {
		m.fail(now, policy.Reason{Rule: policy.RuleReduceFailed, Arrived: len(in), Needed: m.policy.MinReplicas})
		return
	}
	m.outerSteps++
	m.phase, m.running = asking, attempt{}
	m.emit(&policy.OuterStep{Round: m.outerSteps, Epoch: m.epoch, Participants: ids(in),
		Reason: policy.Reason{Rule: policy.RuleReduced, Members: len(m.members), Arrived: len(in), QuorumID: id}})
	for _, w := range in {
		w.step, w.failures = m.outerSteps, 0
	}
	if m.outerSteps == m.cfg.TargetOuterSteps {
		m.finish(true, policy.Reason{Rule: policy.RuleTarget})
		return
	}
	m.begin(now, in, policy.RuleNextRound)
}

// begin has members do the inner steps of the next round.
func (m *Machine) begin(now policy.Time, in []*member, rule policy.Rule) {
	for _, w := range in {
		w.work, w.begun, w.contributes = training, true, false
	}
	m.emit(&policy.StartRound{Round: m.outerSteps + 1, IDs: ids(in), Reason: policy.Reason{Rule: rule}})
}

// fail ends the running outer step without a commit: nobody's step changes, what
// they contribute is kept, and those that are left ask again. That one of them
// failed to commit gives the next quorum another id.
func (m *Machine) fail(now policy.Time, why policy.Reason) {
	r := m.running
	m.phase, m.running = asking, attempt{}
	why.QuorumID = r.why.QuorumID
	if r.reduces {
		for _, w := range r.participants {
			why.Misses = max(why.Misses, int(w.failures)+1)
		}
		m.emit(&policy.Abort{Round: m.outerSteps + 1, Epoch: m.epoch, Participants: ids(r.participants), Reason: why})
	}
	for _, w := range r.participants {
		w.failures++
	}
	for _, w := range r.participants {
		switch {
		case w.work != ready: // its fetch goes on
		case now-w.lastHeartbeat < 2*m.cfg.HeartbeatPeriod:
			m.ask(now, w)
		default:
			w.work = unheard
		}
	}
}

// timer does what is due.
func (m *Machine) timer(now policy.Time) {
	if len(m.members) > 0 && now >= m.nextCheck {
		m.checkUnreachable(now)
		m.checkHeartbeats(now)
		m.scheduleCheck(now)
	}
	if m.phase == healing || m.phase == reducing {
		silent := slices.IndexFunc(m.running.participants, func(w *member) bool { return !m.alive(now, w) })
		switch {
		case silent >= 0:
			w := m.running.participants[silent]
			m.fail(now, policy.Reason{Rule: policy.RuleHeartbeat, Lost: &w.id, Silent: now - w.lastHeartbeat})
		case now >= m.running.issued+m.policy.Timeout:
			m.fail(now, policy.Reason{Rule: policy.RuleTimeout, Stalled: now - m.running.issued})
		}
	}
	if m.phase != finished {
		m.tell(now, quorum.Tick{})
	}
	for _, w := range slices.Clone(m.members) {
		if m.phase != finished && w.work == waiting && now >= w.asked+m.policy.QuorumTimeout {
			l := m.lives[w.id]
			l.killed++
			m.evict(now, w, policy.Reason{Rule: policy.RuleQuorumTimeout, Misses: l.killed, Limit: m.policy.Restarts, Stalled: now - w.asked}, l.killed <= m.policy.Restarts)
		}
	}
}

// setWake asks for a Timer when the next thing is due. One that is asked for
// already may come too early.
func (m *Machine) setWake(now policy.Time) {
	if m.phase == finished || len(m.members) == 0 {
		m.hasWake = false
		return
	}
	at := m.nextCheck
	if next, ok := m.lighthouse.Next(); ok {
		at = min(at, next)
	}
	if m.phase == healing || m.phase == reducing {
		at = min(at, m.running.issued+m.policy.Timeout)
	}
	for _, w := range m.members {
		if w.work == waiting {
			at = min(at, w.asked+m.policy.QuorumTimeout)
		}
	}
	if at = max(at, now); m.hasWake && at >= m.wake {
		return
	}
	m.wake, m.hasWake = at, true
	m.emit(&policy.WakeAt{At: at, Reason: policy.Reason{Rule: policy.RuleTimer}})
}

func ids(members []*member) []policy.ID {
	var out []policy.ID
	for _, w := range members {
		out = append(out, w.id)
	}
	return out
}

func (m *Machine) search(id policy.ID) (int, bool) {
	return slices.BinarySearchFunc(m.members, id, func(w *member, id policy.ID) int { return cmp.Compare(w.id, id) })
}
