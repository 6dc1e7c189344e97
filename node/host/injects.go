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
func (i *inside) schedule() {
	at := func(t policy.Time, do func()) {
		due := i.began.Add(i.Scenario.RealDuration(t - i.Scenario.FirstJoin()))
		time.AfterFunc(time.Until(due), func() { i.inbox <- do })
	}
	for _, w := range i.Scenario.Workers {
		if w.JoinAt > i.Scenario.FirstJoin() {
			at(w.JoinAt, func() { i.command(w.ID, node.Command{Op: node.OpJoin}) })
		}
	}
	for _, in := range i.Scenario.Injects {
		at(in.At, func() { i.inject(in) })
	}
}

// now is the scenario time, as the sandbox's init sees it.
func (i *inside) now() policy.Time {
	return i.Scenario.FirstJoin() + policy.Time(float64(time.Since(i.began))/1e3/i.Scenario.Real.TimeScale)
}

func (i *inside) inject(in scenarios.Inject) {
	c := i.nodes[scenarios.NodeName(*in.ID)]
	if c.ended || i.over {
		return
	}
	e := runlog.Event{T: i.now(), Node: c.name}
	switch in.Op {
	case scenarios.Crash:
		c.excused = true
		c.process.Kill()
		e.Type = runlog.Crash
	case scenarios.Leave:
		c.excused = true
		i.command(c.id, node.Command{Op: node.OpLeave, At: in.At})
		e.Type = runlog.Leave
	case scenarios.Slow:
		i.command(c.id, node.Command{Op: node.OpSlow, At: in.At, Factor: *in.Factor})
		e.Type, e.Factor = runlog.Slow, *in.Factor
	case scenarios.Restore:
		i.command(c.id, node.Command{Op: node.OpRestore, At: in.At})
		e.Type = runlog.Restore
	}
	i.tell(note{Event: &e})
}
