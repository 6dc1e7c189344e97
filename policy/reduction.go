package policy

import "slices"

// failureLimit is the number of failed reductions of one round after which the
// member involved in most of them is evicted. After each failure the ring is
// ordered so that the two workers involved are no longer neighbours: the worker
// at fault keeps failing, and the others do not. So every round ends, if only
// with a single worker left, and attempts need no limit.
const failureLimit = 3

// reduction is one attempt to reduce the contributions of a round.
type reduction struct {
	participants []*member
	pending      int       // participants without the outcome
	lost         []*member // participants that are no longer members
	progressAt   Time      // when a participant last received something, or the begin
}

// memberReduction is a member's part in its last reduction.
type memberReduction struct {
	epoch      Epoch
	done       bool  // holds the outcome
	received   int64 // in this and all earlier reductions, as of its last Progress
	progressAt Time  // when that last grew, or the begin
	from       *ID   // worker that it receives from
	due        int64 // frames that it has still to receive; 0: it does not report them
}

// participant returns the member if it takes part in the running reduction.
func (m *Machine) participant(id ID, round int, epoch Epoch) *member {
	if m.phase != reducing || round != m.round.number || epoch != m.epoch {
		return nil
	}
	if w := m.find(id); w != nil && w.reduction.epoch == epoch {
		return w
	}
	return nil
}

// reduce begins a reduction.
func (m *Machine) reduce(now Time, participants []*member, why Reason) {
	m.becomeReducing(now, participants)
	var zero []ID
	for _, w := range participants {
		if w.learner {
			zero = append(zero, w.id)
		}
	}
	m.emit(&Reduce{Round: m.round.number, Epoch: m.epoch, Participants: m.ring(), Zero: zero, Reason: why})
}

func (m *Machine) progress(now Time, e Progress) {
	w := m.participant(e.ID, m.round.number, e.Epoch)
	if w == nil {
		return
	}
	if r := &w.reduction; e.Received != r.received {
		r.received, r.progressAt, m.reduction.progressAt = e.Received, now, now
	}
	w.reduction.from, w.reduction.due = &e.From, e.Due
}

// reform aborts the running reduction and begins another one with the
// participants that are left. If none of those did inner steps, the round
// reopens for late members, and closes as soon as it has a quorum of them:
// zeros alone are no contribution.
func (m *Machine) reform(now Time, why Reason) {
	m.emit(&Abort{Round: m.round.number, Epoch: m.epoch, Participants: ids(m.reduction.participants), Reason: why})
	left := slices.DeleteFunc(m.reduction.participants, func(w *member) bool { return w.gone })
	if slices.ContainsFunc(left, func(w *member) bool { return !w.learner }) {
		m.reduce(now, left, why)
		return
	}
	m.becomeCollectingAgain()
	for _, w := range m.members {
		if w.work == arrived && w.round.late {
			w.round.late = false
			m.round.count(w.round.arrivedAt)
			m.rejoin(now, w)
		}
		if w.work == waiting {
			m.begin(now, w, RuleState)
		}
	}
	m.settle(now)
}

// retry begins another reduction after one has failed between two workers, one
// of which may be unknown. A participant that was involved in too many failures
// is evicted: of those with the most failures, the one with the highest ID.
func (m *Machine) retry(now Time, by *member, peer *ID, why Reason) {
	why.Lost, why.Peer, why.Limit = &by.id, peer, failureLimit
	by.round.failures++
	if peer != nil && *peer != by.id {
		if w := m.participant(*peer, m.round.number, m.epoch); w != nil {
			w.round.failures++
		}
		if pair := [2]ID{*peer, by.id}; !slices.Contains(m.apart, pair) {
			m.apart = append(m.apart, pair)
		}
	}
	most := m.reduction.participants[0]
	for _, w := range m.reduction.participants {
		if w.round.failures > most.round.failures || w.round.failures == most.round.failures && w.id > most.id {
			most = w
		}
	}
	why.Misses = most.round.failures
	if why.Misses >= failureLimit {
		m.evict(most, why)
		if m.phase == finished {
			return
		}
		for _, w := range m.reduction.participants {
			w.round.failures = 0
		}
	}
	m.reform(now, why)
	m.settle(now)
}

// stallAt is when the running reduction will have stalled for too long.
func (m *Machine) stallAt() (at Time, ok bool) {
	if m.phase != reducing || m.cfg.StallAfter == 0 || m.outage {
		return 0, false
	}
	return m.reduction.progressAt + m.cfg.StallAfter, true
}

// stalled handles a stalled reduction. It evicts a participant that has missed
// two heartbeats. If all are alive, a link is at fault: see standstill.
func (m *Machine) stalled(now Time) {
	why := Reason{Rule: RuleProgress, Stalled: now - m.reduction.progressAt}
	var silent *member
	for _, w := range m.reduction.participants {
		if now-w.liveness.lastHeartbeat >= 2*m.cfg.HeartbeatPeriod && (silent == nil || w.liveness.lastHeartbeat < silent.liveness.lastHeartbeat) {
			silent = w
		}
	}
	if silent != nil {
		why.Silent = now - silent.liveness.lastHeartbeat
		m.evict(silent, why)
		m.settle(now)
		return
	}
	first := m.standstill()
	m.retry(now, first, first.reduction.from, why)
}

// standstill returns the participant at which a reduction stalls. The link to
// it, from the worker that it waits for, is at fault.
//
// It waits for the worker that most participants wait for. In a ring each waits
// for another one. There the participant behind the faulty link has most left
// to receive, because its successors have all that it had itself. A tie goes to
// the participant involved in the fewest failures, so that failures add up for
// the other end. If no worker reports what is due, it is the first that stopped
// receiving.
func (m *Machine) standstill() (at *member) {
	waitedFor, told := map[ID]int{}, false
	for _, w := range m.reduction.participants {
		if r := &w.reduction; !r.done && r.due > 0 && r.from != nil && *r.from != w.id {
			waitedFor[*r.from]++
			told = true
		}
	}
	for _, w := range m.reduction.participants {
		if w.reduction.done || told && (w.reduction.from == nil || w.reduction.due == 0) {
			continue
		}
		if at == nil || m.rather(w, at, waitedFor, told) {
			at = w
		}
	}
	return at
}

// rather reports whether a reduction stalls at w rather than at another participant.
func (m *Machine) rather(w, other *member, waitedFor map[ID]int, told bool) bool {
	a, b := &w.reduction, &other.reduction
	if told {
		if x, y := waitedFor[*a.from], waitedFor[*b.from]; x != y {
			return x > y
		}
		if a.due != b.due {
			return a.due > b.due
		}
		if w.round.failures != other.round.failures {
			return w.round.failures < other.round.failures
		}
	}
	return a.progressAt < b.progressAt
}

// ring orders the participants by ID. If possible, nobody receives from a
// worker at which it has failed.
func (m *Machine) ring() []ID {
	sorted := ids(m.reduction.participants)
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
