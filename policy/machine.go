package policy

import (
	"cmp"
	"math"
	"slices"
)

// blameLimit is the number of failed reductions of one round after which the
// member that had a part in most of them is evicted. After each, the ring is
// ordered so that the two that failed at each other are no longer neighbours:
// whoever is at fault keeps failing, and the others do not. So a round always
// ends, with a worker alone at the latest, and there is no limit to attempts.
const blameLimit = 3

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

// Machine is the coordinator's state machine. It is not safe for concurrent
// use.
type Machine struct {
	cfg     Config
	phase   phase
	round   int       // the running round, from 1
	epoch   int       // number of the last reduction begun
	apart   [][2]ID   // pairs that may not be neighbours, sender first
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

	outage    bool // the coordinator was away, and members are awaited
	disturbed bool // it was, in the running round

	// Kept by the way, because looking at every member in every event makes a
	// round cost the square of their number.
	present int // members that are counted
	// spectators counts the members whose first round is still to come.
	spectators int
	// lagging are those that began the round late, having caught up, in the
	// order in which they began it.
	lagging []*member

	participants []*member // of the running reduction
	unreduced    int       // of them, those whose reduction is not over
	movedAt      Time      // when one of them last received something
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
	if r, ok := e.(Restarted); ok {
		m.restart(now, r)
	} else if m.phase == finished {
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
		m.heartbeat(now, e.ID)
	case Progress:
		m.heartbeat(now, e.ID)
		if w := m.participant(e.ID, m.round, e.Epoch); w != nil {
			if e.Moved != w.moved {
				w.moved, w.movedAt, m.movedAt = e.Moved, now, now
			}
			w.from = &e.From
		}
	case Lost:
		if w := m.find(e.ID); w != nil {
			m.evict(w, Reason{Rule: e.Rule, Silent: now - w.lastHeard})
			m.settle(now)
		}
	case Unreachable:
		if w := m.find(e.ID); w != nil {
			w.unreachable = true
			m.checkUnreachable(now)
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
			m.retry(now, w, e.Peer, Reason{Rule: RuleReduceFailed})
		}
	case StateFetched:
		m.fetched(now, e)
	case FetchFailed:
		if w := m.find(e.ID); w != nil && w.work == fetching {
			m.fetchFailed(now, w)
		}
	case Timer:
		m.hasWake = false // spent: ask again, also if it came too early
		m.timer(now)
	case Recovered:
		m.recover(now)
	}
	m.reunite(now)
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

// recover has the members' silence, and the standstill of a reduction, count
// from now.
func (m *Machine) recover(now Time) {
	m.outage, m.disturbed, m.hasWake = true, true, false
	m.nextCheck = now - now%m.cfg.HeartbeatPeriod + m.cfg.HeartbeatPeriod
	for _, w := range m.members {
		w.lastHeard, w.awaited, w.unreachable = now, true, false
	}
}

// reunite ends an outage when every member has been heard again: from here the
// deadline counts.
func (m *Machine) reunite(now Time) {
	if !m.outage || slices.ContainsFunc(m.members, func(w *member) bool { return w.awaited }) {
		return
	}
	m.outage, m.movedAt = false, now
	for _, w := range m.participants {
		w.movedAt = now
	}
	if m.quorate {
		m.quorateAt = now
	}
	if m.phase == collecting && m.hasDeadline && !m.overdue {
		m.deadline.At = max(m.deadline.At, now+m.deadline.Offset)
		d := m.deadline
		m.emit(&ArmDeadline{Round: m.round, At: d.At, Reason: Reason{Rule: RuleDeadline, Deadline: &d}})
	}
}

// restart begins the round after the checkpoint with the present members.
func (m *Machine) restart(now Time, e Restarted) {
	m.phase, m.round = collecting, e.OuterSteps+1
	m.participants, m.unreduced, m.lost, m.apart, m.lagging = nil, 0, nil, nil, nil
	m.hasArrival, m.hasDeadline, m.overdue, m.quorate = false, false, false, false
	m.outage, m.disturbed, m.hasWake = false, false, false
	m.present, m.spectators, m.roundStart = 0, 0, now
	m.nextCheck = now - now%m.cfg.HeartbeatPeriod + m.cfg.HeartbeatPeriod
	var begin []ID
	for _, w := range m.members {
		*w = member{id: w.id, begun: w.begun, misses: w.misses, sidelined: w.sidelined, lastHeard: now, work: waiting, outerSteps: -1}
		if slices.Contains(e.Holders, w.id) {
			w.work, w.outerSteps, w.begun = working, e.OuterSteps, true
			begin = append(begin, w.id)
		}
	}
	if len(begin) > 0 {
		m.emit(&StartRound{Round: m.round, IDs: begin, Reason: Reason{Rule: RuleRestart, Members: len(m.members)}})
	}
	for _, w := range m.members {
		if w.work == waiting && m.phase != finished {
			w.resync = true
			m.fetch(w, Reason{Rule: RuleRestart})
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

// begin starts a single member on the running round.
func (m *Machine) begin(w *member, rule Rule) {
	if m.phase != collecting || w.spectator {
		w.work = waiting
		return
	}
	w.work, w.begun = working, true
	m.emit(&StartRound{Round: m.round, IDs: []ID{w.id}, Reason: Reason{Rule: rule}})
}

// helpers is how many donors may help the one that a member fetches from.
const helpers = 2

// fetch sends a member to a donor: of the members that hold the current state,
// the one that has served least since the last round, and the lowest ID among
// equals. A donor that has just failed is asked again only if it is the only
// one.
func (m *Machine) fetch(w *member, why Reason) {
	better := func(a, b *member) bool {
		if why.Lost != nil && (a.id == *why.Lost) != (b.id == *why.Lost) {
			return b.id == *why.Lost
		}
		return a.fetches < b.fetches
	}
	donors := make([]*member, 0, 2+helpers) // the best, in order
	current := m.OuterSteps()
	for _, d := range m.members {
		if d == w || d.outerSteps != current || d.work == fetching {
			continue
		}
		at := len(donors)
		for at > 0 && better(d, donors[at-1]) {
			at--
		}
		if at <= helpers {
			donors = slices.Insert(donors, at, d)
			donors = donors[:min(len(donors), 1+helpers)]
		}
		if len(donors) > helpers {
			if least := donors[helpers]; least.fetches == 0 && (why.Lost == nil || least.id != *why.Lost) {
				break // nobody is better than that
			}
		}
	}
	if len(donors) == 0 {
		m.finish(false, Reason{Rule: RuleStateLost, Members: len(m.members)})
		return
	}
	donor := donors[0]
	donor.fetches++
	w.work, w.donor = fetching, donor.id
	m.emit(&Fetch{ID: w.id, From: donor.id, Helpers: ids(donors[1:]), Round: m.round, OuterSteps: m.OuterSteps(), Reason: why})
}

// fetchLimit is the number of fetches in a row that a member may fail before
// the others wait for it no more.
const fetchLimit = 5

func (m *Machine) fetchFailed(now Time, w *member) {
	failed := w.donor
	why := Reason{Rule: RuleFetchFailed, Lost: &failed}
	if w.failures++; w.failures == fetchLimit {
		why.Misses, why.Limit = w.failures, fetchLimit
		m.evict(w, why)
		m.settle(now)
		return
	}
	m.fetch(w, why)
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
	w.outerSteps, w.failures = m.OuterSteps(), 0
	m.emit(&Fetched{ID: w.id, Round: m.round, Reason: Reason{Rule: RuleState}})
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
		m.emit(&Arrived{ID: e.ID, Round: e.Round, Late: true, Reason: Reason{Rule: RuleLate}})
		if w.finishing && m.phase != finished {
			m.resync(w)
		}
		return
	case w.work != working || w.finishing:
		return // told twice
	}
	w.work, w.arrivedAt = arrived, now
	if w.late = m.phase != collecting; w.late {
		m.emit(&Arrived{ID: e.ID, Round: e.Round, Offset: now - m.firstArrival, Late: true, Reason: Reason{Rule: RuleLate}})
		return
	}
	m.present++
	first := !m.hasArrival
	if first {
		m.firstArrival, m.hasArrival = now, true
	}
	m.emit(&Arrived{ID: e.ID, Round: e.Round, Offset: now - m.firstArrival,
		Reason: Reason{Rule: RuleOnTime, Members: m.actors(), Arrived: m.present}})
	m.rejoin(w)
	if s := m.cfg.Straggler; first && s != nil && m.rounds >= s.MinHistory && !m.overdue {
		m.deadline = m.history.deadline(s)
		m.deadline.At = now + m.deadline.Offset
		m.hasDeadline = true
		d := m.deadline
		m.emit(&ArmDeadline{Round: m.round, At: d.At, Reason: Reason{Rule: RuleDeadline, Deadline: &d}})
	}
	m.settle(now)
}

// rejoin forgives a member whose contribution the round has.
func (m *Machine) rejoin(w *member) {
	if !w.sidelined {
		return
	}
	m.emit(&Rejoin{ID: w.id, Round: m.round, Reason: Reason{Rule: RuleOnTime, Misses: w.misses, Limit: m.cfg.Straggler.SidelineLimit}})
	w.misses, w.missed, w.sidelined = 0, false, false
}

// needed returns the quorum, ⌈quorum × members⌉ without spectators, and at least
// one: a round needs a contribution. The small term keeps a product such as
// 0.7 × 10 from being rounded up by its binary representation.
func (m *Machine) needed() int {
	return max(1, int(math.Ceil(float64(m.cfg.Straggler.Quorum*float64(m.actors()))-1e-9)))
}

// settle draws the consequences of a change in arrivals, membership or
// progress of the reduction.
func (m *Machine) settle(now Time) {
	m.promote()
	if m.phase == collecting && len(m.members) > 0 {
		if m.present > 0 && m.present == m.actors() {
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
	why := Reason{Rule: rule, Members: m.actors(), Arrived: m.present}
	if s := m.cfg.Straggler; s != nil {
		why.Needed = m.needed()
	}
	if m.hasDeadline {
		d := m.deadline
		d.Credit = m.credit()
		why.Deadline = &d
	}
	var late []*member
	offsets := make([]Time, 0, m.present)
	m.participants = make([]*member, 0, len(m.members))
	for _, w := range m.members {
		if w.spectator {
			if m.cfg.Join == JoinZeros && w.work == waiting && w.outerSteps == m.OuterSteps() {
				m.participants = append(m.participants, w)
			}
			continue
		}
		if !w.counted() {
			late = append(late, w)
			continue
		}
		m.participants = append(m.participants, w)
		offsets = append(offsets, w.arrivedAt-m.firstArrival)
	}
	m.phase, m.quorate = reducing, false
	m.emit(&Close{Round: m.round, Participants: ids(m.participants), Late: ids(late), Reason: why})
	if s := m.cfg.Straggler; s != nil {
		if !m.disturbed { // else they say more of the coordinator than of the workers
			m.history.add(offsets, s.Window)
			m.rounds++
		}
		for _, w := range late {
			// A round that was opened again counts once, and one that a joiner
			// has spent on getting its first state does not count.
			if !w.missed && w.begun {
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
			w.sidelined = true
			m.emit(&Sideline{ID: w.id, Round: m.round, Reason: miss})
		}
	}
	m.reduce(now, Reason{Rule: rule, Members: m.actors(), Arrived: why.Arrived})
}

func (m *Machine) reduce(now Time, why Reason) {
	m.epoch++
	m.unreduced, m.lost, m.movedAt = len(m.participants), nil, now
	var zero []ID
	for _, w := range m.participants {
		w.epoch, w.reduced, w.movedAt, w.from = m.epoch, false, now, nil
		if w.spectator {
			zero = append(zero, w.id)
		}
	}
	m.emit(&Reduce{Round: m.round, Epoch: m.epoch, Participants: m.ring(), Zero: zero, Reason: why})
}

// reform aborts the running reduction and begins it anew with the participants
// that are left. If none is left, the round is open again for those that were
// late, and closes as soon as it has a quorum of them.
func (m *Machine) reform(now Time, why Reason) {
	m.emit(&Abort{Round: m.round, Epoch: m.epoch, Participants: ids(m.participants), Reason: why})
	m.participants = slices.DeleteFunc(m.participants, func(w *member) bool { return w.gone })
	if slices.ContainsFunc(m.participants, func(w *member) bool { return !w.spectator }) {
		m.reduce(now, why)
		return
	}
	m.phase, m.participants, m.lost = collecting, nil, nil // zeros alone are no contribution
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

// retry begins the reduction anew after it has failed between two workers, of
// which one may not be known. If one of them has had a part in too many
// failures it goes: of those with most the one with the highest ID.
func (m *Machine) retry(now Time, by *member, peer *ID, why Reason) {
	why.Lost, why.Peer, why.Limit = &by.id, peer, blameLimit
	by.blame++
	if peer != nil && *peer != by.id {
		if w := m.participant(*peer, m.round, m.epoch); w != nil {
			w.blame++
		}
		if pair := [2]ID{*peer, by.id}; !slices.Contains(m.apart, pair) {
			m.apart = append(m.apart, pair)
		}
	}
	worst := m.participants[0]
	for _, w := range m.participants {
		if w.blame > worst.blame || w.blame == worst.blame && w.id > worst.id {
			worst = w
		}
	}
	why.Misses = worst.blame
	if worst.blame >= blameLimit {
		m.evict(worst, why)
		if m.phase == finished {
			return
		}
		for _, w := range m.participants {
			w.blame = 0
		}
	}
	m.reform(now, why)
	m.settle(now)
}

// stalled is when the running reduction has stood still for too long.
func (m *Machine) stalled() (at Time, ok bool) {
	if m.phase != reducing || m.cfg.StallAfter == 0 || m.outage {
		return 0, false
	}
	return m.movedAt + m.cfg.StallAfter, true
}

// unstall names who holds up a reduction that stands still. A participant that
// has missed two heartbeats is the one. If all are alive a link is at fault,
// one end of which is the participant that was the first to receive nothing
// more: there the standstill began.
func (m *Machine) unstall(now Time) {
	at, _ := m.stalled()
	why := Reason{Rule: RuleProgress, Stalled: now - at + m.cfg.StallAfter}
	var silent, first *member
	for _, w := range m.participants {
		if now-w.lastHeard >= 2*m.cfg.HeartbeatPeriod && (silent == nil || w.lastHeard < silent.lastHeard) {
			silent = w
		}
		if !w.reduced && (first == nil || w.movedAt < first.movedAt) {
			first = w
		}
	}
	if silent != nil {
		why.Silent = now - silent.lastHeard
		m.evict(silent, why)
		m.settle(now)
		return
	}
	m.retry(now, first, first.from, why)
}

// ring orders the participants by ID, but so that nobody receives from a worker
// at which it has failed, if there is such an order.
func (m *Machine) ring() []ID {
	sorted := ids(m.participants)
	if len(m.apart) == 0 || len(sorted) < 3 {
		return sorted
	}
	order, tries := []ID{sorted[0]}, 0
	var extend func() bool
	extend = func() bool {
		last := order[len(order)-1]
		if len(order) == len(sorted) {
			return !slices.Contains(m.apart, [2]ID{last, order[0]})
		}
		for _, id := range sorted {
			if tries++; tries > 10_000 {
				return false
			}
			if slices.Contains(order, id) || slices.Contains(m.apart, [2]ID{last, id}) {
				continue
			}
			order = append(order, id)
			if extend() {
				return true
			}
			order = order[:len(order)-1]
		}
		return false
	}
	if !extend() {
		return sorted
	}
	return order
}

// outerStep makes the outcome of the round final and begins the next one.
func (m *Machine) outerStep(now Time) {
	took := ids(m.participants)
	m.emit(&OuterStep{Round: m.round, Epoch: m.epoch, Participants: took,
		Reason: Reason{Rule: RuleReduced, Members: len(m.members), Arrived: len(took)}})
	for _, w := range m.participants {
		w.outerSteps, w.work, w.begun = m.round, working, true
		m.activate(w)
	}
	done := m.round
	m.round++
	m.participants = nil
	if done == m.cfg.TargetOuterSteps {
		m.finish(true, Reason{Rule: RuleTarget})
		return
	}
	m.phase = collecting
	m.hasArrival, m.hasDeadline, m.overdue = false, false, false
	m.roundStart, m.present, m.lagging, m.disturbed = now, 0, nil, m.outage
	m.emit(&StartRound{Round: m.round, IDs: took, Reason: Reason{Rule: RuleNextRound}})
	for _, w := range m.members {
		w.fetches, w.late, w.missed, w.lag, w.blame = 0, false, false, 0, 0
	}
	for _, w := range m.members {
		switch {
		case w.outerSteps == done || w.work == fetching || m.phase != collecting:
		case m.cfg.Straggler != nil && m.cfg.Straggler.FinishSteps && w.work == working:
			w.finishing = true
		default:
			m.resync(w)
		}
	}
}

// resync has a member get what it has missed.
func (m *Machine) resync(w *member) {
	m.activate(w)
	w.resync, w.finishing = true, false
	m.fetch(w, Reason{Rule: RuleResync, Misses: w.misses})
}

func (m *Machine) finish(complete bool, why Reason) {
	m.phase = finished
	m.emit(&Finish{Complete: complete, Reason: why})
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

func (m *Machine) timer(now Time) {
	if len(m.members) > 0 && now >= m.nextCheck {
		m.checkUnreachable(now)
		m.checkHeartbeats(now)
		m.nextCheck = now - now%m.cfg.HeartbeatPeriod + m.cfg.HeartbeatPeriod
	}
	if at, ok := m.stalled(); ok && now >= at {
		m.unstall(now)
	}
	if m.phase != collecting || m.outage {
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
// to the next, and every sidelined member to its eviction. Who has caught up
// later lags more, and so the last one counts that is still at work. It is
// asked for at every event: those at the end that are done with the round are
// forgotten.
func (m *Machine) credit() Time {
	for n := len(m.lagging); n > 0; n-- {
		if w := m.lagging[n-1]; !w.gone && w.work != arrived {
			break
		}
		m.lagging = m.lagging[:n-1]
	}
	for _, w := range slices.Backward(m.lagging) {
		if w.work == working && !w.gone {
			return w.lag
		}
	}
	return 0
}

func (m *Machine) heartbeat(now Time, id ID) {
	if w := m.find(id); w != nil {
		w.lastHeard, w.unreachable, w.awaited = now, false, false
	}
}

// silent returns the members that have not been heard for a heartbeat period.
func (m *Machine) silent(now Time) []*member {
	var silent []*member
	for _, w := range m.members {
		if now-w.lastHeard >= m.cfg.HeartbeatPeriod {
			silent = append(silent, w)
		}
	}
	return silent
}

// checkUnreachable evicts whoever is unreachable and has missed a heartbeat.
func (m *Machine) checkUnreachable(now Time) {
	for _, w := range m.silent(now) {
		if w.unreachable && m.phase != finished {
			m.evict(w, Reason{Rule: RuleConnection, Silent: now - w.lastHeard})
		}
	}
	if m.phase != finished {
		m.settle(now)
	}
}

func (m *Machine) checkHeartbeats(now Time) {
	limit := m.cfg.HeartbeatPeriod * Time(m.cfg.HeartbeatMissThreshold)
	evicted := false
	for _, w := range m.silent(now) {
		silent := now - w.lastHeard
		if w.awaited {
			silent = max(0, silent-m.cfg.StallAfter) // it has to find its way back first
		}
		misses := int(silent / m.cfg.HeartbeatPeriod)
		if misses == 0 || m.phase == finished {
			continue
		}
		why := Reason{Rule: RuleHeartbeat, Misses: misses, Limit: m.cfg.HeartbeatMissThreshold, Silent: silent}
		if silent < limit {
			m.emit(&HeartbeatMiss{ID: w.id, Round: m.round, Reason: why})
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
	if m.phase == collecting && m.hasDeadline && !m.overdue && !m.outage {
		at = min(at, m.deadline.At+m.credit())
	}
	if stalled, ok := m.stalled(); ok {
		at = min(at, stalled)
	}
	if m.phase == collecting && m.quorate && !m.outage {
		at = min(at, m.quorateAt)
	}
	at = max(at, now) // the credit may have gone with the member that had it
	if m.hasWake && at == m.wake {
		return
	}
	m.wake, m.hasWake = at, true
	m.emit(&WakeAt{At: at, Reason: Reason{Rule: RuleTimer}})
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
