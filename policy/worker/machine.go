// Package worker decides what a worker of distributed training does: when it
// begins a round, which steps it keeps and which it drops, whether it can take
// part in a reduction, what it fetches, when it may leave, and what it tells the
// coordinator.
//
// The package is pure: it reads no clock, does no I/O, starts no goroutine and
// uses no randomness. The real worker and the simulator of planned links drive
// the same Machine, as both drive the coordinator's (package policy), so that
// they differ in durations, never in what workers do.
package worker

import (
	"fmt"
	"slices"

	"testbed/policy"
)

// KeptOutcomes is how many outer steps a peer may have missed and still be
// brought up to date with their quantised outcomes alone. An outcome takes an
// eighth of the outer state's bytes.
const KeptOutcomes = 4

// RequestBytes is how many bytes of the outer state, before compression, a fetch
// asks for at a time, one request after the other from each donor. A state of
// one request has one donor.
const RequestBytes = 1 << 20

// task is what a worker is busy with, besides reductions. It has one task at a
// time.
type task int

const (
	waiting  task = iota // for the coordinator
	stepping             // an inner step
	fetching             // the outer state
)

// Machine is the state machine of one worker. It is not safe for concurrent
// use.
type Machine struct {
	id         policy.ID
	innerSteps int
	overlap    int // inner steps of a round that the reduction before may take

	task  task
	round int // of the inner steps
	step  int // the inner step under way, from 1
	// ahead reports that the inner steps of round have begun before the outer step
	// of the round before, whose outcome is still to be merged. due reports that
	// this outer step has been taken.
	ahead, due bool

	reducing bool
	reduced  int          // the round of the reduction under way
	epoch    policy.Epoch // of it

	// The outer state that it holds.
	outerSteps int  // its version
	current    bool // the state is one of the run, though an old one, and not the initial state
	agreed     bool // the state that it fetches is one that all regions agreed on
	kept       int  // number of last outer steps whose outcomes it can serve

	fails *FailReduce // how the next reduction fails, or the one under way

	contribution int          // round of its pseudo-gradient, or 0
	late         int          // contribution, until a reduction has asked for it
	outcome      policy.Epoch // epoch of the reduction whose outcome is to be applied, or 0

	factor  float64 // by which inner steps take longer
	stepped bool    // an inner step has begun
	queued  []Event // changes of speed until then

	leaving   bool // it is to leave as soon as it may
	preempted bool // it is to leave after the round
	left      bool // it has said goodbye
	out       []Action
}

// New returns the machine of a worker before the coordinator's first message. A
// round has innerSteps inner steps. With an overlap the worker goes on with the
// next round during a reduction. It merges the outcome after exactly overlap
// steps of that round, at most all of them, so that training does not depend on
// time.
func New(id policy.ID, innerSteps, overlap int) *Machine {
	return &Machine{id: id, innerSteps: innerSteps, overlap: overlap, factor: 1}
}

// Restored gives a machine that has not begun an outer state of the run.
func (m *Machine) Restored(outerSteps int) { m.outerSteps, m.current = outerSteps, true }

// OuterSteps returns the version of the outer state that the worker holds.
func (m *Machine) OuterSteps() int { return m.outerSteps }

// bound reports whether the worker takes part in a reduction whose outcome it
// has still to apply.
func (m *Machine) bound() bool { return m.reducing || m.outcome != 0 }

// Reduces reports whether the reduction of this epoch is under way.
func (m *Machine) Reduces(epoch policy.Epoch) bool { return m.reducing && m.epoch == epoch }

// KeptOutcomes returns the number of the last outer steps whose outcomes the
// worker can serve to peers.
func (m *Machine) KeptOutcomes() int { return m.kept }

// Missed returns the number of outer steps that a peer lacks. The peer holds
// the outer state after have steps, the donor the one after held. ok reports
// whether the donor's last kept outcomes bring the peer up to date; otherwise
// it needs the whole state.
func Missed(have, held, kept int) (outerSteps int, ok bool) {
	missed := held - have
	return missed, missed >= 0 && missed <= kept
}

// Step takes one event and returns the actions that follow from it, in order.
// The slice is valid until the next call. The end of a task after a Stop must
// not be reported. The end of a task that is not under way has no effect.
func (m *Machine) Step(e Event) []Action {
	m.out = m.out[:0]
	switch e := e.(type) {
	case Start:
		m.start(e)
	case Reduce:
		m.reduce(e)
	case Abort:
		m.abort(e)
	case Fetch:
		m.fetch(e)
	case Finish:
		m.stop()
		if m.outcome != 0 && e.OuterSteps > 0 && !m.apply(e.OuterSteps) {
			break
		}
		m.emit(&End{})
	case Evict:
		m.evict(e)
	case Leave:
		m.leaving = true
		m.depart()
	case Preempt:
		m.preempted = true
		if m.task == fetching || m.task == waiting && m.contribution == 0 {
			m.leaving = true
			m.depart()
		}
	case Slow:
		m.changeSpeed(e, e.AtJoin)
	case Restore:
		m.changeSpeed(e, e.AtJoin)
	case FailReduce:
		if m.fails = &e; m.reducing && !e.Alone {
			m.emit(&StopReduce{})
			m.reduceFails()
		}
	case StepDone:
		m.stepDone()
	case Reduced:
		if m.reducing && m.fails == nil {
			m.reducing, m.outcome = false, m.epoch
			m.say(policy.Reduced{ID: m.id, Round: m.reduced, Epoch: m.epoch})
			m.depart()
		} else if m.reducing {
			m.reduceFails()
		}
	case ReduceFailed:
		if m.reducing {
			m.reducing = false
			m.say(policy.ReduceFailed{ID: m.id, Round: m.reduced, Epoch: m.epoch, Peer: e.Peer})
			m.depart()
		}
	case Fetched:
		if m.end(fetching) {
			m.outerSteps, m.current, m.kept = e.OuterSteps, true, 0
			m.say(policy.StateFetched{ID: m.id, OuterSteps: e.OuterSteps, Agreed: m.agreed})
			m.depart()
		}
	case FetchFailed:
		if m.end(fetching) {
			m.say(policy.FetchFailed{ID: m.id})
			m.depart()
		}
	}
	return m.out
}

func (m *Machine) emit(a Action) { m.out = append(m.out, a) }

func (m *Machine) say(e policy.Event) { m.emit(&Say{Event: e}) }

// stop ends the task under way, if there is one.
func (m *Machine) stop() {
	m.stopTask()
	m.stopReducing()
}

func (m *Machine) stopTask() {
	m.ahead = false
	if m.task != waiting {
		m.task = waiting
		m.emit(&Stop{})
	}
}

func (m *Machine) stopReducing() {
	if m.reducing {
		m.reducing = false
		m.emit(&StopReduce{})
	}
}

// end notes the end of a task of this kind, and reports whether there was one.
func (m *Machine) end(kind task) bool {
	if m.task != kind {
		return false
	}
	m.task = waiting
	return true
}

// start begins a round, after the outer step of the round before.
func (m *Machine) start(e Start) {
	took := m.outerSteps < e.OuterSteps && m.outcome != 0
	ahead := took && m.ahead && m.round == e.Round && m.round == e.OuterSteps+1
	if !ahead {
		m.stop()
	}
	if took && !m.apply(e.OuterSteps) {
		return
	}
	if m.outerSteps != e.OuterSteps {
		m.emit(&GiveUp{fmt.Sprintf("the coordinator asked for round %d from outer step %d, but the worker is at outer step %d", e.Round, e.OuterSteps, m.outerSteps)})
		return
	}
	m.outcome, m.contribution, m.current = 0, 0, true
	if took && m.overlap == 0 { // otherwise only a worker that contributed zeros is not ahead
		m.emit(&Merge{OuterSteps: e.OuterSteps})
	}
	if e.Checkpoint || e.Residual {
		m.emit(&Save{Stateless: !e.Checkpoint})
	}
	if m.leaving = m.leaving || m.preempted; m.leaving {
		m.depart()
		return
	}
	if ahead {
		if m.due = true; m.task == waiting {
			m.merge()
			m.goOn()
		}
		return
	}
	m.round, m.step = e.Round, 0
	m.beginStep()
	m.stepped = true
	for _, q := range m.queued {
		m.changeSpeed(q, false)
	}
	m.queued = nil
}

// apply takes the outer step to the given version with the outcome that waits
// for it. It returns false if they do not fit.
func (m *Machine) apply(outerSteps int) bool {
	if m.outerSteps != outerSteps-1 {
		m.emit(&GiveUp{fmt.Sprintf("the coordinator asked for outer step %d, but the worker is at outer step %d", outerSteps, m.outerSteps)})
		return false
	}
	m.outerSteps, m.outcome, m.kept = outerSteps, 0, min(m.kept+1, KeptOutcomes)
	m.emit(&Apply{OuterSteps: outerSteps})
	return true
}

// merge adds the outcome of the round before to the parameters of the round
// under way.
func (m *Machine) merge() {
	m.ahead = false
	m.emit(&Merge{OuterSteps: m.round - 1, Step: m.step})
}

// beginStep begins the next inner step of the round.
func (m *Machine) beginStep() {
	m.step++
	m.task = stepping
	b := &BeginStep{Round: m.round, Step: m.step, Factor: m.factor, Last: m.step == m.innerSteps}
	if b.Last {
		b.Late = m.late
	}
	m.emit(b)
}

func (m *Machine) stepDone() {
	switch {
	case !m.end(stepping):
	case m.ahead && m.step == m.overlap && !m.due: // Start follows
	default:
		if m.ahead && m.step == m.overlap {
			m.merge()
		}
		m.goOn()
	}
}

// goOn continues after an inner step: with the next one or, after the last,
// with the arrival and, where rounds overlap, with the next round.
func (m *Machine) goOn() {
	if m.step < m.innerSteps {
		m.beginStep()
		return
	}
	m.contribution, m.late = m.round, m.round
	m.say(policy.Arrival{ID: m.id, Round: m.round})
	m.depart()
	if m.overlap > 0 && !m.left {
		m.round, m.step, m.ahead, m.due = m.round+1, 0, true, false
		m.beginStep()
	}
}

// reduce begins a reduction, if the worker has something to contribute to it.
func (m *Machine) reduce(e Reduce) {
	m.stopReducing()
	if !m.ahead {
		m.stopTask()
	}
	in := slices.Contains(e.Ring, m.id)
	if e.Zero && in { // it has just joined
		m.contribution = e.Round
	}
	if !in || m.contribution != e.Round {
		m.emit(&Say{
			Event:   policy.ReduceFailed{ID: m.id, Round: e.Round, Epoch: e.Epoch},
			Problem: "this worker has no contribution to the round",
		})
		return
	}
	// Whether or not the reduction succeeds, a state that this worker fetches
	// later may contain the contribution.
	m.late = 0
	m.reducing, m.reduced, m.epoch, m.outcome = true, e.Round, e.Epoch, 0
	if m.fails != nil && !m.fails.Alone {
		m.reduceFails()
		return
	}
	m.emit(&BeginReduce{Round: e.Round, Epoch: e.Epoch, Ring: e.Ring, Zero: e.Zero, Repeats: e.Repeats})
}

// reduceFails ends a reduction as the scenario demands.
func (m *Machine) reduceFails() {
	failed := policy.ReduceFailed{ID: m.id, Round: m.reduced, Epoch: m.epoch, Alone: m.fails.Alone}
	m.reducing, m.fails = false, nil
	m.emit(&Say{Event: failed, Problem: "the scenario makes the reduction fail"})
	m.depart()
}

func (m *Machine) abort(e Abort) {
	if m.outcome == e.Epoch {
		m.outcome = 0
	}
	if m.epoch == e.Epoch {
		m.stopReducing()
	}
	if e.Confirm {
		m.say(policy.ReduceFailed{ID: m.id, Round: m.reduced, Epoch: e.Epoch})
	}
}

// fetch gets the outer state. The worker drops all other work.
func (m *Machine) fetch(e Fetch) {
	m.stop()
	m.outcome = 0
	if m.preempted {
		m.leaving = true
		m.depart()
		return
	}
	if len(e.Donors) == 0 {
		m.emit(&Say{Event: policy.FetchFailed{ID: m.id}, Problem: "the coordinator named no donor"})
		return
	}
	m.task, m.agreed = fetching, e.Agreed
	m.emit(&BeginFetch{OuterSteps: e.OuterSteps, Donors: e.Donors, Current: m.current && !e.Whole, Agreed: e.Agreed})
}

// evict ends the worker, unless it may join again and does not have to leave
// anyway.
func (m *Machine) evict(e Evict) {
	m.stop()
	if !e.Rejoin || m.leaving || m.left || m.preempted {
		m.emit(&End{Evicted: true})
		return
	}
	*m = Machine{
		id: m.id, innerSteps: m.innerSteps, overlap: m.overlap, outerSteps: m.outerSteps, current: m.current, kept: m.kept,
		factor: m.factor, stepped: m.stepped, queued: m.queued, fails: m.fails, out: m.out,
	}
	m.emit(&Rejoin{})
}

// depart announces the worker's departure. A worker that takes part in a
// reduction leaves when that is over. The coordinator answers with an eviction.
func (m *Machine) depart() {
	if !m.leaving || m.bound() {
		return
	}
	m.leaving, m.left = false, true
	m.stop()
	m.say(policy.Leave{ID: m.id})
}

// changeSpeed carries out a Slow or a Restore. A change at the very time of the
// join takes effect after the first inner step has begun.
func (m *Machine) changeSpeed(e Event, atJoin bool) {
	if atJoin && !m.stepped {
		m.queued = append(m.queued, e)
		return
	}
	change := &SpeedChanged{}
	if s, ok := e.(Slow); ok {
		m.factor, change.Slow = s.Factor, true
	} else {
		m.factor = 1
	}
	change.Factor = m.factor
	m.emit(change)
}
