package policy

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
