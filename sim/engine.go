package sim

import (
	"errors"
	"fmt"

	"testbed/policy"
	"testbed/record"
	"testbed/scenarios/resolved"
	"testbed/shaping/fidelity"
)

// engine plays a scenario on a network. It has the clock, the scheduled events,
// the coordinator's machine, and the record.
type engine struct {
	scenario *resolved.Scenario
	network  network
	machine  policy.Coordinator
	heap     heap
	pending  []func() // scheduled functions, at index a of their entries
	free     []int    // places in pending
	now      policy.Time
	wakeUps  int // number of wake-ups that the coordinator's machine has asked for; only the last counts
	joining  int // joins still to come
	done     bool
	failed   error // why the run cannot go on
	told     func(record.Event)
	sum      *record.Summarizer
}

// network decides how long work, messages, reductions and state fetches take, and in
// which order messages arrive. There are three: churn's, the planned links, and the
// recorded one.
type network interface {
	// begin schedules the events that are known before the run.
	begin()
	// carryOut carries out an action of the coordinator's machine, and records it.
	carryOut(a policy.Action)
	// wakeUp wakes the coordinator's machine at the requested time.
	wakeUp()
	// handle plays an event that the network has scheduled by a kind of its own.
	handle(e entry)
}

// The kinds of events.
const (
	wakes    kind = iota // the coordinator's machine is woken up
	calls                // a function is called
	stepDone             // a worker has completed an inner step
	beats                // a worker sends a heartbeat
	reduced              // a reduction is over

	// Of churn's network alone.
	arrives // an arrival reaches the coordinator
	fetched // a state fetch is over
)

// newEngine returns an engine whose clock stands at 0. note is given every event of the
// record; it may be nil.
func newEngine(r *resolved.Scenario, cfg policy.Config, note func(record.Event)) (engine, error) {
	machine, err := policy.NewCoordinator(cfg)
	if err != nil {
		return engine{}, fmt.Errorf("simulating %s: %w", r.Name, err)
	}
	return engine{scenario: r, machine: machine, told: note, sum: record.NewSummarizer(r.Setup())}, nil
}

// run plays the scenario on a network to its end.
func (e *engine) run(n network, run record.Run) (record.Summary, error) {
	e.network = n
	n.begin()
	run.Schema, run.Scenario, run.Policy = record.Schema, e.scenario.Name, e.scenario.PolicyName
	e.note(&record.Event{Type: record.RunStart, Run: &run})
	for !e.done {
		next, ok := e.heap.pop()
		if !ok || next.at > e.scenario.Horizon {
			e.now = e.scenario.Horizon
			e.note(&record.Event{Type: record.Horizon})
			e.end()
			break
		}
		e.now = max(e.now, next.at) // a record may have an effect before its cause
		switch next.kind {
		case wakes:
			if int(next.a) == e.wakeUps {
				n.wakeUp()
			}
		case calls:
			e.call(int(next.a))
		default:
			n.handle(next)
		}
		if e.joining == 0 && e.machine.Members() == 0 && !e.done {
			e.end() // no worker is left and none will come
		}
	}
	if err := errors.Join(e.failed, e.machine.Close()); err != nil {
		return record.Summary{}, err
	}
	sum := e.sum.Summary()
	sum.Fidelity.Verdict = fidelity.Valid // a logical clock is never late
	return sum, nil
}

// end ends a run that has not reached its last outer step.
func (e *engine) end() {
	e.done = true
	complete := false
	e.note(&record.Event{Type: record.RunEnd, Complete: &complete})
}

// fail ends a run that cannot go on.
func (e *engine) fail(err error) { e.failed, e.done = err, true }

func (e *engine) note(ev *record.Event) {
	ev.T = e.now
	e.sum.Add(ev)
	if e.told != nil {
		e.told(*ev)
	}
}

// noteAction records an action of the coordinator's machine.
func (e *engine) noteAction(a policy.Action) {
	if ev, ok := record.FromAction(e.now, a); ok {
		e.note(&ev)
	}
}

// later schedules a call.
func (e *engine) later(at policy.Time, do func()) { e.heap.push(at, calls, e.keep(do), 0) }

// keep stores a scheduled function and returns its place.
func (e *engine) keep(do func()) (place int) {
	if n := len(e.free); n > 0 {
		place = e.free[n-1]
		e.free, e.pending[place] = e.free[:n-1], do
		return place
	}
	e.pending = append(e.pending, do)
	return len(e.pending) - 1
}

func (e *engine) call(place int) {
	do := e.pending[place]
	e.pending[place] = nil
	e.free = append(e.free, place)
	do()
}

// wakeAt schedules the wake-up of the coordinator's machine. It comes after everything
// else of its time: an arrival exactly at the deadline is on time.
func (e *engine) wakeAt(at policy.Time) {
	e.wakeUps++
	e.heap.pushLast(max(at, e.now), wakes, e.wakeUps, 0)
}

// step gives the coordinator's machine an event. The network carries its actions out.
func (e *engine) step(ev policy.Event) {
	if e.done {
		return
	}
	for _, a := range e.machine.Step(e.now, ev) {
		e.network.carryOut(a)
	}
}
