//go:build linux

package host

import (
	"fmt"
	"time"

	"testbed/policy"
	"testbed/runlog"
	"testbed/scenarios"
	"testbed/shaping"
)

// layFaults gives the network the faults of the scenario that are active from
// this time on, since scenario time zero. The plan is computed whole, never
// from the one before.
func (i *inside) layFaults(at time.Duration) error {
	plan, err := shaping.Compose(i.plan, i.Scenario.LinkFaults(at))
	if err == nil {
		i.laid, err = plan, i.change(plan)
	}
	if err != nil {
		return fmt.Errorf("carrying out the injects of links at %v: %w", at, err)
	}
	return nil
}

// scheduleFaults has the faults of links laid on a clock that began at zero,
// the scenario time of its beginning, and then does what else there is to do.
func (i *inside) scheduleFaults(began time.Time, zero policy.Time, then func(before, at time.Duration)) {
	start := began.Add(-i.Scenario.RealDuration(zero))
	var await func(before time.Duration)
	await = func(before time.Duration) {
		at, ok := i.Scenario.NextLinkFault(before)
		if !ok {
			return
		}
		time.AfterFunc(time.Until(start.Add(at)), func() {
			i.inbox <- func() error {
				if i.closing {
					return nil
				}
				if err := i.layFaults(at); err != nil {
					return err
				}
				then(before, at)
				await(at)
				return nil
			}
		})
	}
	await(-1)
}

// recordFaults records which faults of links have begun and ended after one
// time and until another.
func (p *play) recordFaults(before, at time.Duration) {
	due := p.began.Add(at - p.Scenario.RealDuration(p.Scenario.FirstJoin()))
	if at > p.Scenario.RealDuration(p.since) { // else it has been recorded before
		p.monitor.injected(time.Since(due))
		for _, e := range linkEvents(p.Scenario, before, at) {
			e.T = p.now()
			p.tell(note{Event: &e})
		}
	}
	// A refusal ends a worker's connection to the coordinator, and so its part.
	for _, w := range p.Scenario.Workers {
		name := scenarios.NodeName(w.ID)
		if p.laid.Paths[p.laid.Index(name)][p.laid.Index(scenarios.Coordinator)].Refused {
			if c := p.nodes[name]; c != nil {
				c.excused = true
			}
		}
	}
}

func linkEvents(s *scenarios.Scenario, before, at time.Duration) (events []runlog.Event) {
	for _, in := range s.Injects {
		switch t := s.RealDuration(in.At); {
		case t <= before || t > at:
		case in.Op == scenarios.Partition:
			events = append(events, runlog.Event{Type: runlog.Partition, IDs: in.IDs})
		case in.Op == scenarios.ClearPartition:
			events = append(events, runlog.Event{Type: runlog.Heal, IDs: in.IDs})
		}
	}
	return append(events, runlog.LinkChanges(s, before, at)...)
}
