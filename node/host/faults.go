//go:build linux

package host

import (
	"fmt"
	"slices"

	"testbed/policy"
	"testbed/runlog"
	"testbed/scenarios"
	"testbed/shaping"
)

// faults are the faults of the network that are active now.
type faults struct {
	partitions [][]policy.ID
}

// partition cuts these workers off from everybody else.
func (f *faults) partition(ids []policy.ID) {
	f.partitions = append(f.partitions, slices.Clone(ids))
}

// clear ends the partitions for these workers, or for all if there are none
// named.
func (f *faults) clear(ids []policy.ID) {
	var left [][]policy.ID
	for _, p := range f.partitions {
		p = slices.DeleteFunc(p, func(id policy.ID) bool { return ids == nil || slices.Contains(ids, id) })
		if len(p) > 0 {
			left = append(left, p)
		}
	}
	f.partitions = left
}

// active lists the faults as the network understands them.
func (f *faults) active() []shaping.Fault {
	var all []shaping.Fault
	for _, p := range f.partitions {
		var nodes []string
		for _, id := range p {
			nodes = append(nodes, scenarios.NodeName(id))
		}
		all = append(all, shaping.Partition{Nodes: nodes})
	}
	return all
}

// injectFault changes the network on the run's clock: the plan with all active
// faults is computed whole and installed in place.
func (p *play) injectFault(in scenarios.Inject) error {
	e := runlog.Event{Type: runlog.Heal, IDs: in.IDs}
	if in.Op == scenarios.Partition {
		e.Type = runlog.Partition
		p.faults.partition(in.IDs)
	} else {
		p.faults.clear(in.IDs)
	}
	plan, err := shaping.Compose(p.plan, p.faults.active())
	if err != nil {
		return fmt.Errorf("%s at %d: %w", in.Op, in.At, err)
	}
	if err := p.change(plan); err != nil {
		return fmt.Errorf("%s at %d: %w", in.Op, in.At, err)
	}
	e.T = p.now()
	p.tell(note{Event: &e})
	return nil
}
