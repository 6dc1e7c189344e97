package policy

import "slices"

// cutoff determines when the running round closes without late members.
type cutoff struct {
	deadline    Deadline
	hasDeadline bool
	early       bool // it was set before anyone had arrived
	overdue     bool // the deadline has come
	enough      bool // enough have arrived by the policy's judgement, since enoughAt
	enoughAt    Time
	lagging     []*member // members that began the round late, having caught up, in this order
	credit      Time      // as of the last event
	credited    Time      // by which a credit that has ended has put the deadline off
}

// ask fills in the Round that the policy is shown.
func (m *Machine) ask(now Time) *Round {
	r, c := &m.asked, &m.round.cutoff
	r.Number, r.Now, r.Start, r.Members = m.round.number, now, m.round.start, m.voters()
	r.Arrived, r.First, r.Overdue = m.round.arrived, m.round.firstArrival, c.overdue
	if c.hasDeadline != (r.Deadline != nil) {
		if r.Deadline = nil; c.hasDeadline {
			r.Deadline = &c.deadline
		}
	}
	return r
}

// changed records that the members, or the times when they began, differ from
// those that the policy last saw.
func (m *Machine) changed() { m.asked.Changes++ }

// armDeadline sets the deadline of the running round, if the policy has another
// one now.
func (m *Machine) armDeadline(now Time) {
	c := &m.round.cutoff
	if c.overdue {
		return
	}
	if d := m.policy.Deadline(m.ask(now)); d != nil {
		c.deadline, c.hasDeadline = *d, true
		since := m.round.start
		if c.early = !m.round.hasArrival; !c.early {
			since = m.round.firstArrival
		}
		c.deadline.Offset = c.deadline.At - since
		m.emitDeadline(c.deadline)
	}
}

func (m *Machine) emitDeadline(d Deadline) {
	m.emit(&ArmDeadline{Round: m.round.number, At: d.At, Reason: Reason{Rule: RuleDeadline, Deadline: &d}})
}

// resumeCutoff restarts a deadline that came during an outage from the end of
// the outage.
func (m *Machine) resumeCutoff(now Time) {
	c := &m.round.cutoff
	if c.enough {
		c.enoughAt = now
	}
	if m.phase == collecting && c.hasDeadline && !c.overdue {
		c.deadline.At = max(c.deadline.At, now+c.deadline.Offset)
		m.emitDeadline(c.deadline)
	}
}

// cutoffAt is the time at which a Timer may close a collecting round.
func (m *Machine) cutoffAt() (at Time, ok bool) {
	c := &m.round.cutoff
	switch {
	case c.enough:
		return c.enoughAt, true
	case c.hasDeadline && !c.overdue:
		return c.deadline.At + m.credit(), true
	}
	return 0, false
}

// noteCredit keeps the credit given to a member that has arrived since, or is
// gone: the deadline stays put off by it.
func (m *Machine) noteCredit(now Time) {
	c, credit := &m.round.cutoff, m.credit()
	if c.hasDeadline && !c.overdue && credit < c.credit && c.deadline.At+credit < now {
		c.credited = min(now-c.deadline.At, c.credit)
	}
	c.credit = credit
}

// enough asks the policy whether the round may close with those that have
// arrived. It needs one contribution in any case.
func (m *Machine) enough(now Time) bool {
	if m.round.arrived == 0 {
		return false
	}
	_, enough := m.policy.Enough(m.ask(now))
	return enough
}

// cutOff closes the round if the policy allows it.
func (m *Machine) cutOff(now Time) {
	c, rule := &m.round.cutoff, RuleQuorum
	if c.hasDeadline && !c.overdue && now >= c.deadline.At+m.credit() {
		c.overdue, rule = true, RuleDeadline
	}
	if m.letsIn() {
		return
	}
	if !m.enough(now) {
		c.enough = false // a join may have raised what is needed since
		return
	}
	m.close(now, rule)
	if m.settle(now); m.letsIn() {
		m.cutOff(now) // its deadline may be another one by now
	}
}

// checkEnough leaves the closing of a round with enough arrivals to a Timer at
// the same time. So all arrivals of one instant are judged together, and their
// order does not matter.
func (m *Machine) checkEnough(now Time) {
	c := &m.round.cutoff
	had := c.enough
	if c.enough = m.enough(now); c.enough && !had {
		c.enoughAt = now
	}
}

// cutoffReason returns the numbers on which the running round closes now.
func (m *Machine) cutoffReason(now Time) (needed int, deadline *Deadline) {
	needed, _ = m.policy.Enough(m.ask(now))
	if c := &m.round.cutoff; c.hasDeadline {
		d := c.deadline
		d.Credit = max(m.credit(), c.credited)
		if m.round.hasArrival { // it was set before, or an outage has put it off
			d.Offset = d.At - m.round.firstArrival
		}
		deadline = &d
	}
	return needed, deadline
}

// sideline counts a miss for every member that is late for the closing round.
// It evicts members with more misses than the policy tolerates.
func (m *Machine) sideline(now Time, late []*member, why Reason) {
	for _, w := range late {
		// A reopened round counts once. A round that a joiner spent on getting its
		// first state does not count.
		if !w.round.missed && w.begun {
			w.misses++
			w.round.missed = true
		}
		limit, evict := m.policy.Late(m.ask(now), w.shown())
		why.Rule, why.Misses, why.Limit = RuleLate, w.misses, limit
		if evict {
			why.Rule = RuleStraggler
			m.evict(w, why)
			continue
		}
		w.sidelined = true
		m.emit(&Sideline{ID: w.id, Round: m.round.number, Reason: why})
	}
}

// rejoin ends a member's sidelining when the round has its contribution.
func (m *Machine) rejoin(now Time, w *member) {
	if !w.sidelined {
		return
	}
	limit, _ := m.policy.Late(m.ask(now), w.shown())
	m.emit(&Rejoin{ID: w.id, Round: m.round.number, Reason: Reason{Rule: RuleOnTime, Misses: w.misses, Limit: limit}})
	w.misses, w.round.missed, w.sidelined = 0, false, false
}

// mayFinishSteps reports whether a member that the outer step left behind
// finishes its inner steps before it catches up.
func (m *Machine) mayFinishSteps(w *member) bool {
	f, ok := m.policy.(Finisher)
	return ok && f.FinishesSteps() && (w.work == working || w.work == finishing)
}

// giveCredit puts the deadline off for a member that has just caught up. If
// rounds overlap, the other members were not told to begin, which saved them a
// round trip. The reduction before took at least one round trip. The first
// arrival, from which a deadline counts, has been at work since it arrived in
// the round before.
func (m *Machine) giveCredit(now Time, w *member) {
	w.round.lag = now - m.round.start + m.round.ahead
	m.round.cutoff.lagging = append(m.round.cutoff.lagging, w)
	m.changed()
}

// credit is the time by which the deadline is put off for members that are
// catching up. A sidelined member begins the next round late by the time of its
// fetch. Without credit, one missed deadline would always lead to the next, and
// every sidelined member to its eviction. The members that caught up later lag
// more, so only the last one still at work counts. credit is called at every
// event: members at the end of the list that are done with the round are
// forgotten.
func (m *Machine) credit() Time {
	c := &m.round.cutoff
	for n := len(c.lagging); n > 0; n-- {
		if w := c.lagging[n-1]; !w.gone && w.work != arrived {
			break
		}
		c.lagging = c.lagging[:n-1]
	}
	for _, w := range slices.Backward(c.lagging) {
		if w.work == working && !w.gone {
			return w.round.lag
		}
	}
	return 0
}
