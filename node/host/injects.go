//go:build linux

package host

import (
	"syscall"
	"time"

	"testbed/node"
	"testbed/policy"
	"testbed/runlog"
	"testbed/scenarios"
)

// schedule has the joins and injects of the scenario carried out on the run's
// clock.
func (p *play) schedule() {
	at := func(t policy.Time, do func() error) {
		due := p.began.Add(p.Scenario.RealDuration(t - p.Scenario.FirstJoin()))
		time.AfterFunc(time.Until(due), func() { p.inbox <- do })
	}
	for _, w := range p.Scenario.Workers {
		if w.JoinAt > p.Scenario.FirstJoin() {
			at(w.JoinAt, func() error {
				p.command(w.ID, node.Command{Op: node.OpJoin})
				return nil
			})
		}
	}
	for _, in := range p.Scenario.Injects {
		if in.ID != nil {
			at(in.At, func() error { return p.inject(in) })
		}
		if in.Op == scenarios.CoordinatorCrash && in.At > p.since {
			at(in.At, func() error { return p.crashCoordinator(in) })
		}
	}
	p.scheduleFaults(p.began, p.Scenario.FirstJoin(), p.recordFaults)
}

// now is the scenario time, as the sandbox's init sees it.
func (p *play) now() policy.Time {
	return p.scenarioTimeAt(time.Now())
}

func (p *play) scenarioTimeAt(t time.Time) policy.Time {
	return p.Scenario.FirstJoin() + p.scenarioTime(t.Sub(p.began))
}

func (p *play) scenarioTime(d time.Duration) policy.Time {
	return p.Scenario.ScenarioTime(d)
}

// crashCoordinator kills the coordinator. Another one takes its place when it
// has ended and its time has come.
func (p *play) crashCoordinator(in scenarios.Inject) error {
	c := p.nodes[scenarios.Coordinator]
	if p.away || p.over || c.ended {
		return nil
	}
	p.away, p.back = true, time.Now().Add(p.Scenario.RealDuration(in.Down))
	p.tell(note{Event: &runlog.Event{T: p.now(), Type: runlog.CoordinatorCrash}})
	c.process.Kill()
	return nil
}

// pausePatience bounds how long a worker may take to say that it knows of its
// pause. One that has other things to do is stopped all the same; its inner
// step then ends during the pause.
const pausePatience = 100 * time.Millisecond

// pause tells a worker that it is about to be stopped, and then has it stopped.
func (p *play) pause(c *child) {
	c.pausing = true
	p.command(c.id, node.Command{Op: node.OpPause})
	time.AfterFunc(pausePatience, func() {
		p.inbox <- func() error {
			p.stop(c)
			return nil
		}
	})
}

// stop stops the process of a worker that is to be paused.
func (p *play) stop(c *child) {
	if !c.pausing || c.ended || p.over {
		return
	}
	c.pausing, c.paused = false, true
	_ = c.process.SignalGroup(syscall.SIGSTOP) // the only error is that it has ended
	if p.began.IsZero() {
		return
	}
	p.tell(note{Event: &runlog.Event{T: p.now(), Type: runlog.Pause, Node: c.name}})
}

// resume has a stopped worker go on.
func (p *play) resume(c *child) {
	c.pausing, c.paused = false, false
	p.command(c.id, node.Command{Op: node.OpResume})
	_ = c.process.SignalGroup(syscall.SIGCONT)
}

// inject does to a worker what the scenario has in store for it.
func (p *play) inject(in scenarios.Inject) error {
	c := p.nodes[scenarios.NodeName(*in.ID)]
	if c == nil || c.ended || p.over {
		return nil
	}
	e := runlog.Event{T: p.now(), Node: c.name}
	switch in.Op {
	case scenarios.Pause:
		p.pause(c)
		return nil // recorded when it has stopped
	case scenarios.Resume:
		p.tell(note{Event: &runlog.Event{T: e.T, Type: runlog.Resume, Node: c.name}})
		p.resume(c)
		if c.leaving {
			return p.inject(scenarios.Inject{Op: scenarios.Leave, At: in.At, ID: in.ID})
		}
		return nil
	case scenarios.Crash:
		c.excused = true
		c.process.Kill()
		e.Type = runlog.Crash
	case scenarios.Leave:
		if c.leaving = c.paused || c.pausing; c.leaving {
			return nil
		}
		c.excused = true
		p.command(c.id, node.Command{Op: node.OpLeave, At: in.At})
		e.Type = runlog.Leave
	case scenarios.Slow:
		p.command(c.id, node.Command{Op: node.OpSlow, At: in.At, Factor: *in.Factor})
		e.Type, e.Factor = runlog.Slow, *in.Factor
	case scenarios.Restore:
		p.command(c.id, node.Command{Op: node.OpRestore, At: in.At})
		e.Type = runlog.Restore
	}
	if in.At > p.since { // else it has been recorded before
		p.tell(note{Event: &e})
	}
	return nil
}
