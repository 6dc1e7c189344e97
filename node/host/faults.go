//go:build linux

package host

import (
	"fmt"

	"testbed/policy"
	"testbed/runlog"
	"testbed/scenarios"
	"testbed/shaping"
)

// changeLinks gives the network the faults of the scenario that are active
// from this time on. The plan is computed whole, never from the one before.
func (p *play) changeLinks(at policy.Time) error {
	if p.over {
		return nil
	}
	plan, err := shaping.Compose(p.plan, p.Scenario.LinkFaults(at))
	if err == nil {
		err = p.change(plan)
	}
	if err != nil {
		return fmt.Errorf("carrying out the injects at %d: %w", at, err)
	}
	for _, e := range linkEvents(p.Scenario, at) {
		e.T = p.now()
		p.tell(note{Event: &e})
	}
	return nil
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
