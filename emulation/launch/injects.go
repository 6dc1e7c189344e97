package launch

import (
	"fmt"
	"strings"

	"testbed/policy"
	"testbed/scenarios/faults"
	"testbed/scenarios/resolved"
)

// injectsOf returns the injects of a scenario that act on programs. Injects
// that act on links are not among them. unfit describes the injects that cannot
// act on a program. cannot has reasons for injects that these programs cannot
// suffer.
func injectsOf(s *resolved.Scenario, central bool, cannot map[faults.Op]string) (injects []Inject, unfit []string) {
	zero := s.ClockDuration(s.FirstJoin())
	var left []string
	for _, in := range s.Injects {
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
			if !central {
				left = append(left, in.String())
				continue
			}
			i.Op, i.Node, i.After = faults.Restart, policy.CoordinatorNode, s.ClockDuration(in.Down)
		case faults.Crash, faults.Resume, faults.Restore:
		default:
			left = append(left, in.String())
			continue
		}
		injects = append(injects, i)
	}
	if len(left) > 0 {
		unfit = append(unfit, "injects that cannot apply to programs are left out: "+strings.Join(left, ", "))
	}
	return injects, unfit
}
