package policy

// liveness is the coordinator's knowledge of whether a member is alive.
type liveness struct {
	lastHeartbeat Time // or when it joined, or when the coordinator came back
	unreachable   bool // according to the network, since its last heartbeat
	awaited       bool // no heartbeat since the coordinator was down
}

// scheduleCheck puts the next check for silent members on the grid.
func (m *Machine) scheduleCheck(now Time) {
	m.nextCheck = now - now%m.cfg.HeartbeatPeriod + m.cfg.HeartbeatPeriod
}

func (m *Machine) heartbeat(now Time, id ID) {
	if w := m.find(id); w != nil {
		w.liveness = liveness{lastHeartbeat: now}
	}
	for _, a := range m.applicants {
		if a.id == id {
			a.liveness.lastHeartbeat = now
		}
	}
}

// silent returns the members without a heartbeat for a heartbeat period.
func (m *Machine) silent(now Time) []*member {
	var silent []*member
	for _, w := range m.members {
		if now-w.liveness.lastHeartbeat >= m.cfg.HeartbeatPeriod {
			silent = append(silent, w)
		}
	}
	return silent
}

// checkUnreachable evicts members that are unreachable and have missed a
// heartbeat.
func (m *Machine) checkUnreachable(now Time) {
	for _, w := range m.silent(now) {
		if w.liveness.unreachable && m.phase != finished {
			m.evict(w, Reason{Rule: RuleConnection, Silent: now - w.liveness.lastHeartbeat})
		}
	}
	if m.phase != finished {
		m.settle(now)
	}
}

func (m *Machine) checkHeartbeats(now Time) {
	limit := m.cfg.HeartbeatPeriod * Time(m.cfg.HeartbeatMissThreshold)
	for _, w := range m.silent(now) {
		silent := now - w.liveness.lastHeartbeat
		if w.liveness.awaited {
			silent = max(0, silent-m.cfg.StallAfter) // it has to find its way back first
		}
		misses := int(silent / m.cfg.HeartbeatPeriod)
		if misses == 0 || m.phase == finished {
			continue
		}
		why := Reason{Rule: RuleHeartbeat, Misses: misses, Limit: m.cfg.HeartbeatMissThreshold, Silent: silent}
		if silent < limit {
			m.emit(&HeartbeatMiss{ID: w.id, Round: m.round.number, Reason: why})
			continue
		}
		m.evict(w, why)
	}
	if m.phase != finished {
		m.settle(now)
	}
}
