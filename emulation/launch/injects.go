package launch

import (
	"fmt"
	"strings"

	"testbed/policy"
	"testbed/scenarios/faults"
	"testbed/scenarios/resolved"
)

// applies reports whether an inject can act on programs at all, with or without a central
// one.
func applies(in faults.Inject, central bool) bool {
	switch in.Op {
	case faults.Leave, faults.Fail, faults.FailReduce:
		return false
	case faults.CoordinatorCrash:
		return central
	}
	return true
}

// LeftOut are the injects of a scenario that act on no program, with reasons. cannot has
// reasons as in Options.
func LeftOut(s *resolved.Scenario, central bool, cannot map[faults.Op]string) (all []string) {
	for _, in := range s.Injects {
		switch why := cannot[in.Op]; {
		case why != "":
			all = append(all, fmt.Sprintf("%s: %s", in, why))
		case !applies(in, central):
			all = append(all, fmt.Sprintf("%s: this inject cannot apply to programs", in))
		}
	}
	return all
}

// injectsOf returns the injects of a scenario that act on programs. Injects
// that act on links are not among them. unfit describes the injects that cannot
// act on a program. cannot has reasons for injects that these programs cannot
// suffer.
func injectsOf(s *resolved.Scenario, central bool, cannot map[faults.Op]string) (injects []Inject, unfit []string) {
	zero := s.ClockDuration(s.FirstJoin())
	var left []string
	for _, in := range s.Injects {
		if !applies(in, central) && cannot[in.Op] == "" {
			left = append(left, in.String())
			continue
		}
		i := Inject{Op: in.Op, At: s.ClockDuration(in.At) - zero}
		if in.ID != nil {
			i.Node = in.ID.Node()
		}
		if why := cannot[in.Op]; why != "" {
			unfit = append(unfit, fmt.Sprintf("%s is left out: %s", in, why))
			continue
		}
		switch in.Op {
		case faults.Partition, faults.ClearPartition:
			continue
		case faults.Pause:
			if in.Heartbeats {
				unfit = append(unfit, fmt.Sprintf("Pause %[1]s with heartbeats: true cuts %[1]s off from the other workers, but does not stop the program of %[1]s", i.Node))
				continue
			}
		case faults.Slow:
			i.Factor = *in.Factor
		case faults.Restart:
			i.After = s.ClockDuration(in.After)
		case faults.Preempt:
			i.Notice = s.ClockDuration(in.Notice)
		case faults.CoordinatorCrash:
			i.Op, i.Node, i.After = faults.Restart, policy.CoordinatorNode, s.ClockDuration(in.Down)
		}
		injects = append(injects, i)
	}
	if len(left) > 0 {
		unfit = append(unfit, "injects that cannot apply to programs are left out: "+strings.Join(left, ", "))
	}
	return injects, unfit
}
