package scenarios

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"testbed/policy"
	"testbed/shaping"
)

// The injects of links.
const (
	Link Op = "Link" // the access link of a worker, or a path, has other properties
	Cut  Op = "Cut"  // a path carries nothing, one way
)

// LinkInject is something that happens to a link for a while.
type LinkInject struct {
	Op Op          `yaml:"op" json:"op" need:"yes"`
	At policy.Time `yaml:"at" json:"at" need:"yes"`
	// Until is when it is over; nil: never.
	Until *policy.Time `yaml:"until" json:"until,omitempty"`
	// ID is the worker whose access link changes, From and To the nodes
	// whose path does.
	ID             *policy.ID `yaml:"id" json:"id,omitempty"`
	From           string     `yaml:"from" json:"from,omitempty"`
	To             string     `yaml:"to" json:"to,omitempty"`
	shaping.Access `yaml:",inline"`
	shaping.Path   `yaml:",inline"`
}

// fault is the inject as shaping has it.
func (in LinkInject) fault() shaping.Fault {
	switch {
	case in.Op == Cut:
		return shaping.Cut{Paths: []shaping.Direction{{From: in.From, To: in.To}}}
	case in.ID != nil:
		return shaping.AccessChange{Node: NodeName(*in.ID), Access: in.Access}
	}
	return shaping.PathChange{From: in.From, To: in.To, Path: in.Path}
}

// LinkFaults returns what is wrong with links at a time: the partitions of
// Injects that are not cleared, and the Real.Injects that are not over.
func (s *Scenario) LinkFaults(at policy.Time) []shaping.Fault {
	var faults []shaping.Fault
	for _, part := range s.partitions(at) {
		nodes := make([]string, len(part))
		for i, id := range part {
			nodes[i] = NodeName(id)
		}
		faults = append(faults, shaping.Partition{Nodes: nodes})
	}
	for _, i := range s.activeLinks(at) {
		faults = append(faults, s.Real.Injects[i].fault())
	}
	return faults
}

// LinkFaultTimes returns the times at which LinkFaults may change, ascending.
func (s *Scenario) LinkFaultTimes() []policy.Time {
	var times []policy.Time
	for _, in := range s.Injects {
		if in.Op == Partition || in.Op == ClearPartition {
			times = append(times, in.At)
		}
	}
	for _, in := range s.Real.Injects {
		times = append(times, in.At)
		if in.Until != nil {
			times = append(times, *in.Until)
		}
	}
	slices.Sort(times)
	return slices.Compact(times)
}

// partitions returns the workers that are cut off together at a time.
func (s *Scenario) partitions(at policy.Time) (parts [][]policy.ID) {
	injects := slices.Clone(s.Injects)
	slices.SortStableFunc(injects, func(a, b Inject) int { return cmp.Compare(a.At, b.At) })
	for _, in := range injects {
		switch {
		case in.At > at:
		case in.Op == Partition:
			parts = append(parts, slices.Clone(in.IDs))
		case in.Op == ClearPartition && in.IDs == nil:
			parts = nil
		case in.Op == ClearPartition:
			for k := range parts {
				parts[k] = slices.DeleteFunc(parts[k], func(id policy.ID) bool { return slices.Contains(in.IDs, id) })
			}
			parts = slices.DeleteFunc(parts, func(part []policy.ID) bool { return len(part) == 0 })
		}
	}
	return parts
}

// activeLinks returns the positions of the link injects under way at a time,
// the latest last, so that it counts.
func (s *Scenario) activeLinks(at policy.Time) (active []int) {
	for i, in := range s.Real.Injects {
		if in.At <= at && (in.Until == nil || at < *in.Until) {
			active = append(active, i)
		}
	}
	slices.SortStableFunc(active, func(a, b int) int { return cmp.Compare(s.Real.Injects[a].At, s.Real.Injects[b].At) })
	return active
}

func (p *parser) validateLinkInjects(s *Scenario, plan *shaping.Plan) error {
	for i, in := range s.Real.Injects {
		if err := p.validateLinkInject(s, fmt.Sprintf("real.injects[%d]", i), in); err != nil {
			return err
		}
		if _, err := shaping.Compose(plan, []shaping.Fault{in.fault()}); err != nil {
			return p.failLink(err, []int{i})
		}
	}
	for _, t := range s.LinkFaultTimes() {
		active := s.activeLinks(t)
		if len(active) < 2 {
			continue // each by itself makes sense
		}
		faults := make([]shaping.Fault, len(active))
		for k, i := range active {
			faults[k] = s.Real.Injects[i].fault()
		}
		if _, err := shaping.Compose(plan, faults); err != nil {
			return p.failLink(err, active)
		}
	}
	return nil
}

// failLink names the inject that a fault came from.
func (p *parser) failLink(err error, injects []int) error {
	bad, ok := errors.AsType[*shaping.FieldError](err)
	if !ok {
		return p.fail("real.injects", err.Error())
	}
	var k int
	_, _ = fmt.Sscanf(bad.Path, "faults[%d]", &k)
	_, field, _ := strings.Cut(bad.Path, "].")
	field = strings.TrimPrefix(field, "paths[0].")
	return p.fail(fmt.Sprintf("real.injects[%d].%s", injects[k], field), bad.Problem)
}

func (p *parser) validateLinkInject(s *Scenario, path string, in LinkInject) error {
	access, properties := !reflect.ValueOf(in.Access).IsZero(), !reflect.ValueOf(in.Path).IsZero()
	if in.Op != Link && in.Op != Cut {
		return p.fail(path+".op", fmt.Sprintf("%q is no inject of a link; choose one of %s", in.Op, quoted([]Op{Link, Cut})))
	}
	if err := p.between(path+".at", int64(in.At), 0, int64(maxTime)); err != nil {
		return err
	}
	switch {
	case in.Until != nil && *in.Until <= in.At:
		return p.fail(path+".until", fmt.Sprintf("is %d, but the inject begins at %d; let it end later, or leave until out", *in.Until, in.At))
	case in.ID != nil && (in.From != "" || in.To != ""):
		return p.fail(path+".id", "there is from or to beside it; give id for an access link, or from and to for a path")
	case in.Op == Cut && in.ID != nil:
		return p.fail(path+".id", "Cut takes a path: give from and to; Partition cuts a worker off")
	case in.Op == Cut && (access || properties):
		return p.fail(path, "Cut takes no properties; remove them, or write Link")
	case in.ID != nil && properties:
		return p.fail(path, "changes a path, but names an access link; give from and to instead of id")
	case in.ID == nil && access:
		return p.fail(path, "changes an access link, but names a path; give id instead of from and to")
	case in.Op == Link && !access && !properties:
		return p.fail(path, "changes nothing; give at least one property, for example rate_up")
	case in.ID != nil:
		return p.worker(s, path+".id", *in.ID)
	}
	return nil
}
