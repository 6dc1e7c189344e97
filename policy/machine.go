package policy

import (
	"fmt"
	"slices"
)

// phase is the state of the machine, by what it waits for.
//
//	collecting ── the round closes ─────────► reducing
//	     ◄── outer step, or nobody is left ──
//	collecting, reducing ── the last outer step, or the state is lost ──► finished
//	any ── restart from a checkpoint ──► collecting
//	any ── the policy does not answer ──► finished, for good
type phase int

const (
	collecting phase = iota // for arrivals, and at the start for members
	reducing                // for the participants of a reduction
	finished                // for nothing
)

func (p phase) String() string { return [...]string{"collecting", "reducing", "finished"}[p] }

// Machine is the coordinator's state machine. It is not safe for concurrent
// use.
type Machine struct {
	cfg        Config
	policy     Policy
	external   External // the policy, if it is one
	failed     bool     // the policy has failed
	asked      Round    // the Round that the policy was last shown
	phase      phase
	round      round
	reduction  reduction         // while reducing
	epoch      Epoch             // number of the last reduction begun
	apart      [][2]ID           // pairs that may not be neighbours in a ring, sender first
	members    []*member         // by ID
	learners   int               // of the members
	admissions map[ID]*admission // the last admission of each worker
	applicants []*member         // evicted, and waiting to be admitted again
	outage     bool              // the coordinator was down, and members are awaited

	nextCheck Time // for silent members
	wake      Time // time of the last WakeAt
	hasWake   bool // its Timer is still to come
	out       []Action
}

// New returns a machine without members.
func New(cfg Config) (*Machine, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Policy == nil {
		cfg.Policy = &Baseline{}
	}
	m := &Machine{cfg: cfg, policy: fresh(cfg.Policy), round: round{number: 1}, admissions: map[ID]*admission{}}
	m.external, _ = m.policy.(External)
	m.asked = Round{MinSlack: cfg.MinSlack, Seed: cfg.Seed, machine: m}
	return m, nil
}

// OuterSteps returns the number of outer steps that are final.
func (m *Machine) OuterSteps() int { return m.round.number - 1 }

// Members returns the number of members.
func (m *Machine) Members() int { return len(m.members) }

// Finished reports whether a Finish action has been given.
func (m *Machine) Finished() bool { return m.phase == finished }

// Close ends the policy's processes, if the policy is an External. If the
// policy could not answer, the error is a *FailedError.
func (m *Machine) Close() error {
	if m.external == nil {
		return nil
	}
	m.external.Close()
	if err := m.external.Err(); err != nil {
		return &FailedError{err}
	}
	return nil
}

// Step takes one event and returns the actions that follow from it, in order.
// The slice is valid until the next call. Times must not decrease. Obsolete
// events (of an evicted worker, an old round, an old epoch) have no effect.
func (m *Machine) Step(now Time, e Event) []Action {
	actions := m.step(now, e)
	if m.external == nil || m.failed {
		return actions
	}
	if err := m.external.Err(); err != nil { // decisions without it do not count
		m.failed, m.phase, m.reduction = true, finished, reduction{}
		m.out = append(m.out[:0], &Finish{Cause: err.Error(), Reason: Reason{Rule: RulePolicyFailed}})
		return m.out
	}
	return actions
}

func (m *Machine) step(now Time, e Event) []Action {
	if m.failed {
		return nil
	}
	m.out = m.out[:0]
	if r, ok := e.(Restarted); ok {
		m.restart(now, r)
	} else if m.phase == finished {
		return nil
	}
	switch e := e.(type) {
	case Join:
		m.join(now, e)
	case Leave:
		if w := m.find(e.ID); w != nil {
			m.evict(w, Reason{Rule: RuleLeave})
			m.settle(now)
		} else if m.withdraw(e.ID) {
			m.emit(&Reject{ID: e.ID, Reason: Reason{Rule: RuleLeave}})
		}
	case Heartbeat:
		m.heartbeat(now, e.ID)
	case Progress:
		m.heartbeat(now, e.ID)
		m.progress(now, e)
	case Lost:
		m.withdraw(e.ID)
		if w := m.find(e.ID); w != nil {
			m.evict(w, Reason{Rule: e.Rule, Silent: now - w.liveness.lastHeartbeat})
			m.settle(now)
		}
	case Unreachable:
		if w := m.find(e.ID); w != nil {
			w.liveness.unreachable = true
			m.checkUnreachable(now)
		}
	case Arrival:
		m.arrival(now, e)
	case Reduced:
		if w := m.participant(e.ID, e.Round, e.Epoch); w != nil && !w.reduction.done {
			w.reduction.done = true
			m.reduction.pending--
			m.settle(now)
		}
	case ReduceFailed:
		if w := m.participant(e.ID, e.Round, e.Epoch); w != nil {
			m.retry(now, w, e.Peer, Reason{Rule: RuleReduceFailed})
		}
	case StateFetched:
		m.fetched(now, e)
	case FetchFailed:
		if w := m.find(e.ID); w != nil && w.work == fetching {
			m.fetchFailed(now, w)
		}
	case Timer:
		m.hasWake = false // spent: a new one is asked for, even if it came too early
		m.timer(now)
	case Recovered:
		m.recover(now)
	}
	m.endOutage(now)
	m.setWake(now)
	return m.out
}

func (m *Machine) emit(a Action) { m.out = append(m.out, a) }

// enter sets the phase. Only the transitions below call it. A transition from
// any phase but those that it names is a bug in this package.
func (m *Machine) enter(to phase, from ...phase) {
	if !slices.Contains(from, m.phase) {
		panic(fmt.Sprintf("policy: internal error: the machine cannot go from %v to %v (round %d)", m.phase, to, m.round.number))
	}
	m.phase = to
}

// becomeCollecting begins the next round: from reducing, when every participant
// holds the outcome.
func (m *Machine) becomeCollecting(now Time) {
	m.enter(collecting, reducing)
	m.reduction = reduction{}
	next := round{number: m.round.number + 1, start: now, interrupted: m.outage}
	if m.cfg.Overlap { // the participants have worked on it since the last round closed
		next.start, next.ahead = m.round.closed, now-m.round.closed+m.round.waited
	}
	m.round = next
	for _, w := range m.members {
		w.round = memberRound{}
	}
}

// becomeCollectingAgain reopens the running round: from reducing, when no
// contributor is left. The members' work in it stays.
func (m *Machine) becomeCollectingAgain() {
	m.enter(collecting, reducing)
	m.reduction = reduction{}
	r := m.round
	m.round = round{number: r.number, start: r.start, ahead: r.ahead, interrupted: r.interrupted, cutoff: cutoff{overdue: true, lagging: m.round.cutoff.lagging}}
}

// becomeReducing begins a reduction: from collecting, when the round closes;
// from reducing, when an attempt was aborted and participants are left.
func (m *Machine) becomeReducing(now Time, participants []*member) {
	m.enter(reducing, collecting, reducing)
	m.epoch++
	m.reduction = reduction{participants: participants, pending: len(participants), progressAt: now}
	for _, w := range participants {
		w.reduction = memberReduction{epoch: m.epoch, received: w.reduction.received, progressAt: now}
	}
}

// becomeFinished ends the run: from collecting, when the round before was the
// last; from collecting or reducing, when nobody holds the outer state any
// more.
func (m *Machine) becomeFinished(complete bool, why Reason) {
	m.enter(finished, collecting, reducing)
	m.reduction = reduction{}
	m.emit(&Finish{Complete: complete, Reason: why})
}

// becomeRestarted begins the round after a checkpoint: from every phase.
// Members keep only their misses, whether they are sidelined, and whether they
// have begun a round.
func (m *Machine) becomeRestarted(now Time, outerSteps int) {
	m.enter(collecting, collecting, reducing, finished)
	m.reduction = reduction{}
	m.round = round{number: outerSteps + 1, start: now}
	m.apart, m.applicants, m.learners, m.outage, m.hasWake = nil, nil, 0, false, false
	m.scheduleCheck(now)
	for _, w := range m.members {
		*w = member{id: w.id, work: waiting, outerSteps: -1, begun: w.begun, misses: w.misses, sidelined: w.sidelined,
			liveness: liveness{lastHeartbeat: now}}
	}
}

// settle draws the consequences of a change in arrivals, in membership or in
// the progress of the reduction.
func (m *Machine) settle(now Time) {
	m.promoteLearners(now)
	if m.phase == collecting && len(m.members) > 0 {
		m.armDeadline(now)
		switch {
		case m.letsIn():
		case m.round.arrived > 0 && m.round.arrived == m.voters():
			m.close(now, RuleAllArrived)
		default:
			m.checkEnough(now)
		}
	}
	for m.phase == reducing {
		if lost := m.reduction.lost; len(lost) > 0 {
			m.reform(now, Reason{Rule: RuleLost, Lost: &lost[0].id})
			continue
		}
		if m.reduction.pending == 0 {
			m.outerStep(now)
		}
		return
	}
}

func (m *Machine) timer(now Time) {
	if len(m.members) > 0 && now >= m.nextCheck {
		m.checkUnreachable(now)
		m.checkHeartbeats(now)
		m.scheduleCheck(now)
	}
	if at, ok := m.stallAt(); ok && now >= at {
		m.stalled(now)
	}
	if m.phase == collecting && !m.outage {
		m.cutOff(now)
	}
}

// setWake asks for a Timer at the time of the next due event, if that time has
// changed or the last Timer is spent.
func (m *Machine) setWake(now Time) {
	if m.phase == finished || len(m.members) == 0 {
		m.hasWake = false
		return
	}
	at := m.nextCheck
	if m.phase == collecting && !m.outage {
		m.noteCredit(now)
		if cutoff, ok := m.cutoffAt(); ok {
			at = min(at, cutoff)
		}
	}
	if stall, ok := m.stallAt(); ok {
		at = min(at, stall)
	}
	at = max(at, now) // the credit may have left with its member
	if m.hasWake && at == m.wake {
		return
	}
	m.wake, m.hasWake = at, true
	m.emit(&WakeAt{At: at, Reason: Reason{Rule: RuleTimer}})
}
