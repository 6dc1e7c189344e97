package policy

import "slices"

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
