//go:build linux

package emulation

import (
	"errors"
	"time"

	"testbed/node"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios/faults"
	"testbed/scenarios/resolved"
)

// at schedules do at a scenario time.
func (p *player) at(t policy.Time, do func() error) {
	time.AfterFunc(time.Until(p.clock.due(t)), func() { p.s.Post(do) })
}

// schedule schedules the joins and injects of the scenario on the run's clock.
func (p *player) schedule() {
	first := p.spec.Scenario.FirstJoin()
	for _, w := range p.spec.Scenario.Workers {
		if w.JoinAt > first {
			p.at(w.JoinAt, func() error {
				p.command(w.ID, node.Command{Op: node.OpJoin})
				return nil
			})
		}
	}
	for _, in := range p.spec.Scenario.Injects {
		if in.ID != nil {
			p.at(in.At, func() error { return p.inject(in) })
		}
		if in.Op == faults.CoordinatorCrash && in.At > p.clock.resumed {
			p.at(in.At, func() error { return p.crashCoordinator(in) })
		}
	}
	p.faults.Schedule(p.clock.began, first, p.linksChanged)
}

// inject applies an inject of the scenario to a worker.
func (p *player) inject(in faults.Inject) error {
	w := p.worker(*in.ID)
	if p.over {
		return nil
	}
	switch back := in.At + in.After; {
	case in.Op == faults.Slow:
		p.slowed[*in.ID] = *in.Factor
	case in.Op == faults.Restore:
		delete(p.slowed, *in.ID)
	case in.Op == faults.Restart && back > p.clock.resumed:
		p.at(back, func() error { return p.restart(*in.ID) })
	}
	if w == nil || w.child.Ended {
		return nil
	}
	e := record.Event{T: p.clock.now(), Node: w.name}
	switch in.Op {
	case faults.Pause:
		if !in.Heartbeats {
			p.pause(w)
			return nil // recorded when it has stopped
		}
		w.paused = true
		w.command(node.Command{Op: node.OpPause, At: in.At, Heartbeats: true})
		e.Type, e.Heartbeats = record.Pause, true
	case faults.Resume:
		e.Type = record.Resume
		err := p.record(e)
		p.resume(w)
		awaits := w.awaits
		w.awaits = nil
		for _, in := range awaits {
			err = errors.Join(err, p.inject(in))
		}
		return err
	case faults.Crash, faults.Restart:
		w.excused = true
		w.child.Kill()
		e.Type = record.Crash
	case faults.Preempt:
		w.excused = true
		if in.Notice > 0 {
			w.command(node.Command{Op: node.OpPreempt, At: in.At})
		}
		end := in.At + in.Notice
		p.at(end, func() error { return p.endNotice(w, end) })
		e.Type, e.Duration = record.Preempt, in.Notice
	case faults.Leave, faults.Fail, faults.FailReduce:
		if w.paused || w.pausing {
			w.awaits = append(w.awaits, in)
			return nil
		}
		if in.Op == faults.FailReduce {
			w.command(node.Command{Op: node.OpFailReduce, At: in.At, Alone: in.Alone})
			e.Type, e.Alone = record.FailReduce, in.Alone
			break
		}
		w.excused = true
		if in.Op == faults.Fail {
			w.fails = true
			w.command(node.Command{Op: node.OpFail, At: in.At})
			e.Type = record.Fail
			break
		}
		w.left = true
		w.command(node.Command{Op: node.OpLeave, At: in.At})
		e.Type = record.Leave
	case faults.Slow:
		w.command(node.Command{Op: node.OpSlow, At: in.At, Factor: *in.Factor})
		e.Type, e.Factor = record.Slow, *in.Factor
	case faults.Restore:
		w.command(node.Command{Op: node.OpRestore, At: in.At})
		e.Type = record.Restore
	}
	if in.At <= p.clock.resumed {
		return nil // it has been recorded before
	}
	return p.record(e)
}

// endNotice ends the process of a preempted worker, if it is still the worker's
// last one.
func (p *player) endNotice(w *worker, at policy.Time) error {
	switch {
	case p.worker(w.id) != w || w.child.Ended:
		return nil
	case w.left:
		w.child.Kill() // the record has its departure
		return nil
	}
	return p.inject(faults.Inject{Op: faults.Crash, At: at, ID: &w.id})
}

// linksChanged records the faults of links that have begun and ended after one
// real time of the scenario and until another.
func (p *player) linksChanged(before, at time.Duration) error {
	s := p.spec.Scenario
	if at > s.RealDuration(p.clock.resumed) { // otherwise it has been recorded before
		p.monitor.Injected(time.Since(p.clock.began.Add(s.OnClock(at - s.RealDuration(s.FirstJoin())))))
		for _, e := range resolved.NetworkChanges(s.Faults, before, at) {
			e.T = p.clock.now()
			if err := p.record(e); err != nil {
				return err
			}
		}
	}
	// A refusal ends a worker's connection to the coordinator, and so its part in
	// the run.
	plan := p.faults.Current
	for name, w := range p.workers {
		if plan.Paths[plan.Index(name)][plan.Index(policy.CoordinatorNode)].Refused {
			w.excused = true
		}
	}
	return nil
}
