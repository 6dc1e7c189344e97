package policy

type phase int

const (
	idle       phase = iota // nobody has joined yet
	collecting              // members work on inner steps and arrive
	reducing                // the participants reduce
	finished
)

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

func (m *Machine) finish(complete bool, why Reason) {
	m.phase = finished
	m.emit(&Finish{Complete: complete, Reason: why})
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
