package policy

import "slices"

// blameLimit is the number of failed reductions of one round after which the
// member that had a part in most of them is evicted. After each, the ring is
// ordered so that the two that failed at each other are no longer neighbours:
// whoever is at fault keeps failing, and the others do not. So a round always
// ends, with a worker alone at the latest, and there is no limit to attempts.
const blameLimit = 3

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
