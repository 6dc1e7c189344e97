//go:build linux

package host

import (
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
	return p.Scenario.FirstJoin() + p.scenarioTime(time.Since(p.began))
}

func (p *play) scenarioTime(d time.Duration) policy.Time {
	return policy.Time(float64(d) / 1e3 / p.Scenario.Real.TimeScale)
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

// inject does to a worker what the scenario has in store for it.
func (p *play) inject(in scenarios.Inject) error {
	c := p.nodes[scenarios.NodeName(*in.ID)]
	if c == nil || c.ended || p.over {
		return nil
	}
	e := runlog.Event{T: p.now(), Node: c.name}
	switch in.Op {
	case scenarios.Crash:
		c.excused = true
		c.process.Kill()
		e.Type = runlog.Crash
	case scenarios.Leave:
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
