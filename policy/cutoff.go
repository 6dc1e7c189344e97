package policy

import "slices"

// cutoff is when the running round closes without the late.
type cutoff struct {
	deadline    Deadline
	hasDeadline bool
	early       bool // it was set before anyone had arrived
	overdue     bool // the deadline has come
	enough      bool // have arrived, says the policy, since enoughAt
	enoughAt    Time
	lagging     []*member // began the round late, having caught up, in this order
	credit      Time      // as of the last event
	credited    Time      // by which credit that is no longer given has put the deadline off
}

// ask fills in what the policy is shown of the running round.
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

// resumeCutoff has a deadline that came during an outage count from its end.
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

// cutoffAt is when a Timer may close a round that is collecting.
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

// noteCredit keeps what the deadline was put off by for a member that has arrived since,
// or is gone: from then on the round may close.
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

// cutOff closes the round if the policy lets it.
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

// checkEnough leaves the closing of a round that enough have arrived for to a
// Timer at the same time, so that the arrivals of one instant are judged
// together and their order does not matter.
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

// sideline counts a miss of the round that closes for those that are late, and
// evicts those that the policy tolerates no longer.
func (m *Machine) sideline(now Time, late []*member, why Reason) {
	for _, w := range late {
		// A round that was opened again counts once, and one that a joiner
		// has spent on getting its first state does not count.
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

// rejoin forgives a member whose contribution the round has.
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

// giveCredit puts the deadline off for a member that has just caught up. Where
// rounds overlap the others have not had to be told to begin, which saved them a
// round trip; the reduction before took one at least. And the first of them, from
// whose arrival a deadline counts, is at it since it arrived in the round before.
func (m *Machine) giveCredit(now Time, w *member) {
	w.round.lag = now - m.round.start + m.round.ahead
	m.round.cutoff.lagging = append(m.round.cutoff.lagging, w)
}

// credit is by how much the deadline is put off for those that are catching
// up: a member that was sidelined begins the next round late by the time that
// its fetch took. Without credit for it, one missed deadline would always lead
// to the next, and every sidelined member to its eviction. Who has caught up
// later lags more, and so the last one counts that is still at work. It is
// asked for at every event: those at the end that are done with the round are
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
