package policy

import (
	"cmp"
	"math"
	"slices"
)

// maxReduceAttempts bounds how often one round is reduced again after a
// participant gave up by itself. Evictions do not count.
const maxReduceAttempts = 5

type phase int

const (
	idle       phase = iota // nobody has joined yet
	collecting              // members work on inner steps and arrive
	reducing                // the participants reduce
	finished
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
	misses     int  // consecutive missed rounds
	missed     bool // the running round is counted in misses
	arrivedAt  Time
	lag        Time // by which it began the round late, because it had to catch up
	resync     bool // the fetch under way is for an outer step that it missed
	lastHeard  Time
	fetches    int // how often it has been a donor since the last round
	donor      ID  // where it fetches from
	epoch      int // of the last reduction that it took part in
	reduced    bool
	gone       bool // no longer a member
}

// counted reports whether the running round has the member's contribution.
func (w *member) counted() bool { return w.work == arrived && !w.late }

// Machine is the coordinator's state machine. It is not safe for concurrent
// use.
type Machine struct {
	cfg     Config
	phase   phase
	round   int       // the running round, from 1
	epoch   int       // number of the last reduction begun
	failed  int       // reductions of this round that participants gave up
	members []*member // by ID
	former  map[ID]bool
	history history

	roundStart   Time
	firstArrival Time
	hasArrival   bool
	deadline     Deadline
	hasDeadline  bool // the running round has a deadline
	overdue      bool // the deadline came without a quorum
	quorate      bool // overdue, and the quorum came at quorateAt
	quorateAt    Time

	// Kept by the way, because looking at every member in every event makes a
	// round cost the square of their number.
	present int       // members that are counted
	lagging []*member // that began the round late, having caught up

	participants []*member // of the running reduction
	unreduced    int       // of them, those whose reduction is not over
	lost         []*member // of them, those that are no longer members
	nextCheck    Time      // next heartbeat check
	wake         Time      // what the driver was last told
	hasWake      bool
	rounds       int // rounds in the history
	out          []Action
}

// New returns a machine in which nobody has joined yet.
func New(cfg Config) (*Machine, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Straggler != nil {
		s := *cfg.Straggler
		cfg.Straggler = &s
	}
	return &Machine{cfg: cfg, former: map[ID]bool{}}, nil
}

// OuterSteps returns the number of outer steps that are final.
func (m *Machine) OuterSteps() int {
	return max(m.round-1, 0)
}

// Members returns the number of members.
func (m *Machine) Members() int { return len(m.members) }

// Finished reports whether a Finish action has been given.
func (m *Machine) Finished() bool { return m.phase == finished }

// Step takes one event and returns what is to be done about it, in order. The
// slice is valid until the next call. Times must not decrease. Events that
// make no sense any more (of an evicted worker, an old round, an old epoch)
// have no effect.
func (m *Machine) Step(now Time, e Event) []Action {
	m.out = m.out[:0]
	if m.phase == finished {
		return nil
	}
	switch e := e.(type) {
	case Join:
		m.join(now, e)
	case Leave:
		if w := m.find(e.ID); w != nil {
			m.evict(w, Reason{Rule: RuleLeave})
			m.settle(now)
		}
	case Heartbeat:
		if w := m.find(e.ID); w != nil {
			w.lastHeard = now
		}
	case Arrival:
		m.arrival(now, e)
	case Reduced:
		if w := m.participant(e.ID, e.Round, e.Epoch); w != nil && !w.reduced {
			w.reduced = true
			m.unreduced--
			m.settle(now)
		}
	case ReduceFailed:
		if w := m.participant(e.ID, e.Round, e.Epoch); w != nil {
			m.retry(now, e.ID)
		}
	case StateFetched:
		m.fetched(now, e)
	case FetchFailed:
		if w := m.find(e.ID); w != nil && w.work == fetching {
			failed := w.donor
			m.fetch(w, Reason{Rule: RuleFetchFailed, Lost: &failed})
		}
	case Timer:
		m.hasWake = false // spent: ask again, also if it came too early
		m.timer(now)
	}
	m.setWake(now)
	return m.out
}

func (m *Machine) emit(a Action) { m.out = append(m.out, a) }

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

// participant returns the worker if it takes part in the running reduction.
func (m *Machine) participant(id ID, round, epoch int) *member {
	if m.phase != reducing || round != m.round || epoch != m.epoch {
		return nil
	}
	if w := m.find(id); w != nil && w.epoch == epoch {
		return w
	}
	return nil
}

func (m *Machine) join(now Time, e Join) {
	if m.former[e.ID] {
		m.emit(Reject{ID: e.ID, Reason: Reason{Rule: RuleRejoinDenied}})
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
	m.emit(Admit{ID: e.ID, Round: m.round, Reason: Reason{Rule: RuleJoin, Members: len(m.members)}})
	if e.HasState && m.OuterSteps() == 0 {
		m.begin(w, RuleJoin)
		return
	}
	m.fetch(w, Reason{Rule: RuleJoin})
}

// begin starts a single member on the running round.
func (m *Machine) begin(w *member, rule Rule) {
	if m.phase != collecting {
		w.work = waiting
		return
	}
	w.work = working
	m.emit(StartRound{Round: m.round, IDs: []ID{w.id}, Reason: Reason{Rule: rule}})
}

// fetch sends a member to a donor: of the members that hold the current state,
// the one that has served least since the last round, and the lowest ID among
// equals. A donor that has just failed is asked again only if it is the only
// one.
func (m *Machine) fetch(w *member, why Reason) {
	var donor *member
	better := func(a, b *member) bool {
		if why.Lost != nil && (a.id == *why.Lost) != (b.id == *why.Lost) {
			return b.id == *why.Lost
		}
		return a.fetches < b.fetches
	}
	for _, d := range m.members {
		if d == w || d.outerSteps != m.OuterSteps() || d.work == fetching {
			continue
		}
		if donor == nil || better(d, donor) {
			donor = d
		}
	}
	if donor == nil {
		m.finish(false, Reason{Rule: RuleStateLost, Members: len(m.members)})
		return
	}
	donor.fetches++
	w.work, w.donor = fetching, donor.id
	m.emit(Fetch{ID: w.id, From: donor.id, Round: m.round, OuterSteps: m.OuterSteps(), Reason: why})
}

func (m *Machine) fetched(now Time, e StateFetched) {
	w := m.find(e.ID)
	if w == nil || w.work != fetching {
		return
	}
	if e.OuterSteps < m.OuterSteps() {
		m.fetch(w, Reason{Rule: RuleStaleFetch})
		return
	}
	w.outerSteps = m.OuterSteps()
	m.emit(Fetched{ID: w.id, Round: m.round, Reason: Reason{Rule: RuleState}})
	if w.resync {
		w.lag = now - m.roundStart
		m.lagging = append(m.lagging, w)
	}
	m.begin(w, RuleState)
}

func (m *Machine) arrival(now Time, e Arrival) {
	w := m.find(e.ID)
	switch {
	case w == nil || e.Round < 1 || e.Round > m.round:
		return
	case e.Round < m.round:
		m.emit(Arrived{ID: e.ID, Round: e.Round, Late: true, Reason: Reason{Rule: RuleLate}})
		return
	case w.work != working:
		return // told twice
	}
	w.work, w.arrivedAt = arrived, now
	if w.late = m.phase != collecting; w.late {
		m.emit(Arrived{ID: e.ID, Round: e.Round, Offset: now - m.firstArrival, Late: true, Reason: Reason{Rule: RuleLate}})
		return
	}
	m.present++
	first := !m.hasArrival
	if first {
		m.firstArrival, m.hasArrival = now, true
	}
	m.emit(Arrived{ID: e.ID, Round: e.Round, Offset: now - m.firstArrival,
		Reason: Reason{Rule: RuleOnTime, Members: len(m.members), Arrived: m.present}})
	m.rejoin(w)
	if s := m.cfg.Straggler; first && s != nil && m.rounds >= s.MinHistory && !m.overdue {
		m.deadline = m.history.deadline(s)
		m.deadline.At = now + m.deadline.Offset
		m.hasDeadline = true
		d := m.deadline
		m.emit(ArmDeadline{Round: m.round, At: d.At, Reason: Reason{Rule: RuleDeadline, Deadline: &d}})
	}
	m.settle(now)
}

// rejoin forgives a member whose contribution the round has.
func (m *Machine) rejoin(w *member) {
	if w.misses == 0 {
		return
	}
	m.emit(Rejoin{ID: w.id, Round: m.round, Reason: Reason{Rule: RuleOnTime, Misses: w.misses, Limit: m.cfg.Straggler.SidelineLimit}})
	w.misses, w.missed = 0, false
}

// needed returns the quorum, ⌈quorum × members⌉, and at least one: a round needs
// a contribution. The small term keeps a product such as 0.7 × 10 from being
// rounded up by its binary representation.
func (m *Machine) needed() int {
	return max(1, int(math.Ceil(float64(m.cfg.Straggler.Quorum*float64(len(m.members)))-1e-9)))
}

// settle draws the consequences of a change in arrivals, membership or
// progress of the reduction.
func (m *Machine) settle(now Time) {
	if m.phase == collecting && len(m.members) > 0 {
		if m.present == len(m.members) {
			m.close(now, RuleAllArrived)
		} else {
			m.awaitEqual(now)
		}
	}
	for m.phase == reducing {
		if len(m.lost) > 0 {
			m.reform(now, Reason{Rule: RuleLost, Lost: &m.lost[0].id})
			continue
		}
		if m.unreduced == 0 {
			m.outerStep(now)
		}
		return
	}
}

// awaitEqual leaves the closing of an overdue round that has its quorum to a
// Timer at the same time, so that the arrivals of one instant are judged
// together and the order in which they are told does not matter.
func (m *Machine) awaitEqual(now Time) {
	had := m.quorate
	m.quorate = m.overdue && m.present >= m.needed()
	if m.quorate && !had {
		m.quorateAt = now
	}
}

func (m *Machine) close(now Time, rule Rule) {
	why := Reason{Rule: rule, Members: len(m.members), Arrived: m.present}
	if s := m.cfg.Straggler; s != nil {
		why.Needed = m.needed()
	}
	if m.hasDeadline {
		d := m.deadline
		d.Credit = m.credit()
		why.Deadline = &d
	}
	var late []*member
	var offsets []Time
	m.participants = nil
	for _, w := range m.members {
		if !w.counted() {
			late = append(late, w)
			continue
		}
		m.participants = append(m.participants, w)
		offsets = append(offsets, w.arrivedAt-m.firstArrival)
	}
	m.phase, m.quorate = reducing, false
	m.emit(Close{Round: m.round, Participants: ids(m.participants), Late: ids(late), Reason: why})
	if s := m.cfg.Straggler; s != nil {
		m.history.add(offsets, s.Window)
		m.rounds++
		for _, w := range late {
			if !w.missed { // a round that was opened again counts once
				w.misses++
				w.missed = true
			}
			miss := why
			miss.Rule, miss.Misses, miss.Limit = RuleLate, w.misses, s.SidelineLimit
			if w.misses > s.SidelineLimit {
				miss.Rule = RuleStraggler
				m.evict(w, miss)
				continue
			}
			m.emit(Sideline{ID: w.id, Round: m.round, Reason: miss})
		}
	}
	m.reduce(Reason{Rule: rule, Members: len(m.members), Arrived: len(m.participants)})
}

func (m *Machine) reduce(why Reason) {
	m.epoch++
	m.unreduced, m.lost = len(m.participants), nil
	for _, w := range m.participants {
		w.epoch, w.reduced = m.epoch, false
	}
	m.emit(Reduce{Round: m.round, Epoch: m.epoch, Participants: ids(m.participants), Reason: why})
}

// reform aborts the running reduction and begins it anew with the participants
// that are left. If none is left, the round is open again for those that were
// late, and closes as soon as it has a quorum of them.
func (m *Machine) reform(now Time, why Reason) {
	m.emit(Abort{Round: m.round, Epoch: m.epoch, Participants: ids(m.participants), Reason: why})
	m.participants = slices.DeleteFunc(m.participants, func(w *member) bool { return w.gone })
	if len(m.participants) > 0 {
		m.reduce(why)
		return
	}
	m.phase, m.lost = collecting, nil
	m.overdue = m.cfg.Straggler != nil
	m.hasDeadline, m.hasArrival = false, false
	for _, w := range m.members {
		if w.work == arrived && w.late {
			w.late = false
			m.present++
			m.rejoin(w)
			if !m.hasArrival || w.arrivedAt < m.firstArrival {
				m.firstArrival, m.hasArrival = w.arrivedAt, true
			}
		}
		if w.work == waiting {
			m.begin(w, RuleState)
		}
	}
	m.settle(now)
}

func (m *Machine) retry(now Time, by ID) {
	m.failed++
	why := Reason{Rule: RuleReduceFailed, Lost: &by, Misses: m.failed, Limit: maxReduceAttempts}
	if m.failed >= maxReduceAttempts {
		m.emit(Abort{Round: m.round, Epoch: m.epoch, Participants: ids(m.participants), Reason: why})
		m.finish(false, why)
		return
	}
	m.reform(now, why)
}

// outerStep makes the outcome of the round final and begins the next one.
func (m *Machine) outerStep(now Time) {
	took := ids(m.participants)
	m.emit(OuterStep{Round: m.round, Epoch: m.epoch, Participants: took,
		Reason: Reason{Rule: RuleReduced, Members: len(m.members), Arrived: len(took)}})
	for _, w := range m.participants {
		w.outerSteps, w.work = m.round, working
	}
	done := m.round
	m.round++
	m.participants = nil
	if done == m.cfg.TargetOuterSteps {
		m.finish(true, Reason{Rule: RuleTarget})
		return
	}
	m.phase, m.failed = collecting, 0
	m.hasArrival, m.hasDeadline, m.overdue = false, false, false
	m.roundStart, m.present, m.lagging = now, 0, nil
	m.emit(StartRound{Round: m.round, IDs: took, Reason: Reason{Rule: RuleNextRound}})
	for _, w := range m.members {
		w.fetches, w.late, w.missed, w.lag = 0, false, false, 0
	}
	for _, w := range m.members {
		if w.outerSteps < done && w.work != fetching && m.phase == collecting {
			w.resync = true
			m.fetch(w, Reason{Rule: RuleResync, Misses: w.misses})
		}
	}
}

func (m *Machine) finish(complete bool, why Reason) {
	m.phase = finished
	m.emit(Finish{Complete: complete, Reason: why})
}

// evict removes a member. The caller settles the consequences.
func (m *Machine) evict(w *member, why Reason) {
	i, _ := m.search(w.id)
	m.members = slices.Delete(m.members, i, i+1)
	w.gone = true
	if w.counted() {
		m.present--
	}
	if m.phase == reducing && w.epoch == m.epoch {
		m.lost = append(m.lost, w)
	}
	m.emit(Evict{ID: w.id, Round: m.round, Reason: why})
	// Whoever fetches from it needs another donor.
	for _, f := range slices.Clone(m.members) {
		if f.work == fetching && f.donor == w.id && m.phase != finished {
			gone := w.id
			m.fetch(f, Reason{Rule: RuleFetchFailed, Lost: &gone})
		}
	}
}

func (m *Machine) timer(now Time) {
	if len(m.members) > 0 && now >= m.nextCheck {
		m.checkHeartbeats(now)
		m.nextCheck = now - now%m.cfg.HeartbeatPeriod + m.cfg.HeartbeatPeriod
	}
	if m.phase != collecting {
		return
	}
	rule := RuleQuorum
	if m.hasDeadline && !m.overdue && now >= m.deadline.At+m.credit() {
		m.overdue, rule = true, RuleDeadline
	}
	if m.overdue && m.present >= m.needed() {
		m.close(now, rule)
		m.settle(now)
		return
	}
	m.quorate = false // a join may have raised the quorum since
}

// credit is by how much the deadline is put off for those that are catching
// up: a member that was sidelined begins the next round late by the time that
// its fetch took. Without credit for it, one missed deadline would always lead
// to the next, and every sidelined member to its eviction.
func (m *Machine) credit() Time {
	var most Time
	for _, w := range m.lagging {
		if w.work == working && !w.gone {
			most = max(most, w.lag)
		}
	}
	return most
}

func (m *Machine) checkHeartbeats(now Time) {
	limit := m.cfg.HeartbeatPeriod * Time(m.cfg.HeartbeatMissThreshold)
	evicted := false
	for _, w := range slices.Clone(m.members) {
		silent := now - w.lastHeard
		misses := int(silent / m.cfg.HeartbeatPeriod)
		if misses == 0 || m.phase == finished {
			continue
		}
		why := Reason{Rule: RuleHeartbeat, Misses: misses, Limit: m.cfg.HeartbeatMissThreshold, Silent: silent}
		if silent < limit {
			m.emit(HeartbeatMiss{ID: w.id, Round: m.round, Reason: why})
			continue
		}
		m.evict(w, why)
		evicted = true
	}
	if evicted && m.phase != finished {
		m.settle(now)
	}
}

// setWake tells the driver when the next thing is due, if that has changed or
// the last wake-up is spent.
func (m *Machine) setWake(now Time) {
	if m.phase == finished || len(m.members) == 0 {
		m.hasWake = false
		return
	}
	at := m.nextCheck
	if m.phase == collecting && m.hasDeadline && !m.overdue {
		at = min(at, m.deadline.At+m.credit())
	}
	if m.phase == collecting && m.quorate {
		at = min(at, m.quorateAt)
	}
	at = max(at, now) // the credit may have gone with the member that had it
	if m.hasWake && at == m.wake {
		return
	}
	m.wake, m.hasWake = at, true
	m.emit(WakeAt{At: at, Reason: Reason{Rule: RuleTimer}})
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
