package policy

// begin starts a single member on the running round.
func (m *Machine) begin(w *member, rule Rule) {
	if m.phase != collecting || w.spectator {
		w.work = waiting
		return
	}
	w.work, w.begun = working, true
	m.emit(&StartRound{Round: m.round, IDs: []ID{w.id}, Reason: Reason{Rule: rule}})
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
