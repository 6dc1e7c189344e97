package policy

import "slices"

// recover restarts the clocks of the members' silence, and of a stalled
// reduction, from now.
func (m *Machine) recover(now Time) {
	m.outage, m.round.interrupted, m.hasWake = true, true, false
	m.scheduleCheck(now)
	for _, w := range m.members {
		w.liveness = liveness{lastHeartbeat: now, awaited: true}
	}
	for _, a := range m.applicants {
		a.liveness.lastHeartbeat = now
	}
}

// endOutage ends an outage when every member has sent a heartbeat again. The
// deadline and the stall time of a reduction count from here.
func (m *Machine) endOutage(now Time) {
	if !m.outage || slices.ContainsFunc(m.members, func(w *member) bool { return w.liveness.awaited }) {
		return
	}
	m.outage, m.reduction.progressAt = false, now
	for _, w := range m.reduction.participants {
		w.reduction.progressAt = now
	}
	m.resumeCutoff(now)
}

// restart begins the round after the checkpoint with the present members.
func (m *Machine) restart(now Time, e Restarted) {
	m.becomeRestarted(now, e.OuterSteps)
	var begin []ID
	for _, w := range m.members {
		if slices.Contains(e.Holders, w.id) {
			w.work, w.outerSteps, w.begun, w.round.hasBegun, w.round.began = working, e.OuterSteps, true, true, now
			begin = append(begin, w.id)
		}
	}
	m.changed()
	if len(begin) > 0 {
		m.emit(&StartRound{Round: m.round.number, IDs: begin, Reason: Reason{Rule: RuleRestart, Members: len(m.members)}})
	}
	for _, w := range m.members {
		if w.work == waiting && m.phase != finished {
			w.fetch.resync = true
			m.fetch(w, Reason{Rule: RuleRestart})
		}
	}
}
