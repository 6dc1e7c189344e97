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
// this time on. The plan is computed whole, never from the one before.
func (i *inside) layFaults(at policy.Time) error {
	plan, err := shaping.Compose(i.plan, i.Scenario.LinkFaults(at))
	if err == nil {
		err = i.change(plan)
	}
	if err != nil {
		return fmt.Errorf("carrying out the injects at %d: %w", at, err)
	}
	return nil
}

// scheduleFaults has the faults of links laid on a clock that began at zero,
// the scenario time of its beginning, and then does what else there is to do.
func (i *inside) scheduleFaults(began time.Time, zero policy.Time, then func(policy.Time)) {
	for _, t := range i.Scenario.LinkFaultTimes() {
		due := began.Add(i.Scenario.RealDuration(t - zero))
		time.AfterFunc(time.Until(due), func() {
			i.inbox <- func() error {
				if i.closing {
					return nil
				}
				if err := i.layFaults(t); err != nil {
					return err
				}
				then(t)
				return nil
			}
		})
	}
}

// recordFaults records which faults of links begin and end at a time.
func (p *play) recordFaults(at policy.Time) {
	for _, e := range linkEvents(p.Scenario, at) {
		e.T = p.now()
		p.tell(note{Event: &e})
	}
}

// linkEvents records which faults begin and end at a time.
func linkEvents(s *scenarios.Scenario, at policy.Time) (events []runlog.Event) {
	for _, in := range s.Injects {
		switch {
		case in.At != at:
		case in.Op == scenarios.Partition:
			events = append(events, runlog.Event{Type: runlog.Partition, IDs: in.IDs})
		case in.Op == scenarios.ClearPartition:
			events = append(events, runlog.Event{Type: runlog.Heal, IDs: in.IDs})
		}
	}
	for _, in := range s.Real.Injects {
		e := runlog.Event{Type: runlog.LinkFault, From: in.From, To: in.To}
		if in.ID != nil {
			e.Node = scenarios.NodeName(*in.ID)
		}
		switch {
		case in.At == at:
			events = append(events, e)
		case in.Until != nil && *in.Until == at:
			e.Type = runlog.LinkRestored
			events = append(events, e)
		}
	}
	return events
}
