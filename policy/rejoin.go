package policy

import "slices"

// RejoinMode determines whether an evicted worker may come back, if it still
// lives or was evicted for its slowness. A new process of a lost worker is
// always admitted.
type RejoinMode string

// The rejoin modes.
const (
	// RejoinNever leaves an evicted worker out for the rest of the run.
	RejoinNever RejoinMode = "never"
	// RejoinAfterRounds: the worker waits for RejoinRounds outer steps and joins
	// again.
	RejoinAfterRounds RejoinMode = "after_rounds"
)

// RejoinModes lists the rejoin modes.
var RejoinModes = []RejoinMode{RejoinNever, RejoinAfterRounds}

// admission is the record of a worker that has been admitted, kept for its next
// request.
type admission struct {
	incarnation int
	evicted     Rule // cause of its last eviction
	outerSteps  int  // outer steps that were final then
}

// join decides on a request to join.
//
// A newer incarnation is another process, and proof that the one before is
// gone. With it a lost worker comes back at once, even before its loss was
// noticed. A worker evicted for slowness may be slow because of its machine, so
// a new process changes nothing. It waits, as do processes that were evicted
// alive, if they may come back at all.
func (m *Machine) join(now Time, e Join) {
	m.withdraw(e.ID)
	before, w := m.admissions[e.ID], m.find(e.ID)
	newer := before != nil && e.Incarnation > before.incarnation
	switch {
	case before == nil:
		m.admit(now, e, Reason{Rule: RuleJoin})
	case newer && w != nil:
		m.evict(w, Reason{Rule: RuleReplaced, Silent: now - w.liveness.lastHeartbeat})
		m.settle(now)
		if m.phase != finished {
			m.admit(now, e, Reason{Rule: RuleJoin})
		}
	case newer && before.evicted != RuleStraggler:
		m.admit(now, e, Reason{Rule: RuleJoin})
	case w != nil || e.Incarnation < before.incarnation || m.cfg.Rejoin != RejoinAfterRounds:
		m.emit(&Reject{ID: e.ID, Reason: Reason{Rule: RuleRejoinDenied}})
	default:
		before.incarnation = e.Incarnation
		m.applicants = append(m.applicants, &member{id: e.ID, liveness: liveness{lastHeartbeat: now}})
		m.admitApplicants(now)
	}
}

// admitApplicants admits applicants that have waited long enough, in the order
// of their requests. It drops those that have fallen silent.
func (m *Machine) admitApplicants(now Time) {
	patience := m.cfg.HeartbeatPeriod * Time(m.cfg.HeartbeatMissThreshold)
	for _, a := range slices.Clone(m.applicants) {
		before := m.admissions[a.id]
		why := Reason{Rule: RuleRejoin, Misses: m.OuterSteps() - before.outerSteps, Limit: max(1, m.cfg.RejoinRounds)}
		if why.Misses >= why.Limit && now-a.liveness.lastHeartbeat < patience && m.phase != finished {
			m.withdraw(a.id)
			m.admit(now, Join{ID: a.id, Incarnation: before.incarnation}, why)
		}
	}
}

// withdraw forgets that a worker wants to come back, and reports whether it did.
func (m *Machine) withdraw(id ID) bool {
	n := len(m.applicants)
	m.applicants = slices.DeleteFunc(m.applicants, func(a *member) bool { return a.id == id })
	return len(m.applicants) < n
}
