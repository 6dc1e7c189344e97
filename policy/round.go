package policy

// round is the running round, from its start to its outer step.
type round struct {
	number       int // from 1
	start        Time
	arrived      int // members that are counted
	firstArrival Time
	hasArrival   bool
	closed       Time // when the collection of arrivals last ended
	waited       Time // from the first arrival to the close, less credit
	ahead        Time // with overlapping rounds: waited of the round before, and its reduction
	interrupted  bool // the coordinator was down in it
	letIn        bool // it has let joiners in, and has waited for them since letInAt
	letInAt      Time
	cutoff       cutoff
}

// count counts an arrival in the round.
func (r *round) count(at Time) {
	r.arrived++
	if !r.hasArrival || at < r.firstArrival {
		r.firstArrival, r.hasArrival = at, true
	}
}

// memberRound is a member's work in the running round, as it was counted.
type memberRound struct {
	hasBegun  bool
	began     Time // if it hasBegun
	arrivedAt Time
	late      bool // it arrived after the round had closed
	missed    bool // the round is counted in its misses
	lag       Time // by which it began late, because it had to catch up
	served    int  // fetches for which it was a donor
	failures  int  // failed reductions that involved it
}

// begin starts a single member on the running round.
func (m *Machine) begin(now Time, w *member, rule Rule) {
	if m.phase != collecting || w.learner {
		w.work = waiting
		return
	}
	w.work, w.begun, w.round.hasBegun, w.round.began = working, true, true, now
	m.changed()
	m.emit(&StartRound{Round: m.round.number, IDs: []ID{w.id}, Reason: Reason{Rule: rule}})
}

func (m *Machine) arrival(now Time, e Arrival) {
	w := m.find(e.ID)
	switch {
	case w == nil || e.Round < 1 || e.Round > m.round.number:
		return
	case e.Round < m.round.number:
		m.emit(&Arrived{ID: e.ID, Round: e.Round, Late: true, Reason: Reason{Rule: RuleLate}})
		if w.work == finishing {
			m.resync(w)
		}
		return
	case w.work != working:
		return // a duplicate
	}
	w.work, w.round.arrivedAt = arrived, now
	if w.round.late = m.phase != collecting; w.round.late {
		m.emit(&Arrived{ID: e.ID, Round: e.Round, Offset: now - m.round.firstArrival, Late: true, Reason: Reason{Rule: RuleLate}})
		return
	}
	m.round.count(now)
	m.emit(&Arrived{ID: e.ID, Round: e.Round, Offset: now - m.round.firstArrival,
		Reason: Reason{Rule: RuleOnTime, Members: m.voters(), Arrived: m.round.arrived}})
	m.rejoin(now, w)
	m.settle(now)
}

// close ends the collection of arrivals and starts the reduction of the counted
// ones. It may have to let joiners in before.
func (m *Machine) close(now Time, rule Rule) {
	if m.letIn(now) {
		return
	}
	if m.round.closed = now; !m.round.cutoff.early {
		m.round.waited = max(0, now-m.round.firstArrival-m.credit())
	}
	why := Reason{Rule: rule, Members: m.voters(), Arrived: m.round.arrived}
	why.Needed, why.Deadline = m.cutoffReason(now)
	var overslept Time
	if rule == RuleQuorum && m.round.cutoff.enough {
		overslept = now - m.round.cutoff.enoughAt
	}
	var late []*member
	participants := make([]*member, 0, len(m.members))
	for _, w := range m.members {
		switch {
		case w.counted(), m.contributesZeros(w):
			participants = append(participants, w)
		case !w.learner:
			late = append(late, w)
		}
	}
	var held Time
	if m.round.letIn {
		held = now - m.round.letInAt
	}
	m.emit(&Close{Round: m.round.number, Participants: ids(participants), Late: ids(late), Overslept: overslept, Held: held, Reason: why})
	if !m.round.interrupted { // otherwise arrivals say more about the coordinator than about the workers
		m.policy.Closed(m.ask(now))
	}
	m.sideline(now, late, why)
	m.reduce(now, participants, Reason{Rule: rule, Members: m.voters(), Arrived: why.Arrived})
}

// outerStep makes the outcome of the round final and begins the next one.
func (m *Machine) outerStep(now Time) {
	done, took := m.round.number, ids(m.reduction.participants)
	m.emit(&OuterStep{Round: done, Epoch: m.epoch, Participants: took,
		Reason: Reason{Rule: RuleReduced, Members: len(m.members), Arrived: len(took)}})
	for _, w := range m.reduction.participants {
		w.outerSteps, w.work = done, working
		m.promote(w)
	}
	m.becomeCollecting(now)
	if done == m.cfg.TargetOuterSteps {
		m.becomeFinished(true, Reason{Rule: RuleTarget})
		return
	}
	m.emit(&StartRound{Round: m.round.number, IDs: took, Reason: Reason{Rule: RuleNextRound}})
	for _, w := range m.members {
		w.round.hasBegun, w.round.began = w.outerSteps == done, m.round.start
		w.begun = w.begun || w.round.hasBegun
		switch {
		case w.outerSteps == done || w.work == fetching || m.phase == finished:
		case w.learner && m.cfg.Join == JoinBlocking: // until this round lets it in
		case m.mayFinishSteps(w):
			w.work = finishing
		default:
			m.resync(w)
		}
	}
	m.changed()
	m.admitApplicants(now)
	if m.phase == collecting {
		m.armDeadline(now)
	}
}
