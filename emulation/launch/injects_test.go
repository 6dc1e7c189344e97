package launch

import (
	"slices"
	"testing"

	"testbed/policy"
	"testbed/scenarios/faults"
	"testbed/scenarios/resolved"
)

// TestLeftOut: every inject acts on programs or links, or is left out with a reason.
func TestLeftOut(t *testing.T) {
	one := policy.ID(1)
	s := &resolved.Scenario{Workers: []resolved.Worker{{ID: 0}, {ID: 1}}}
	for _, op := range faults.Ops {
		s.Injects = append(s.Injects, faults.Inject{Op: op, ID: &one, Factor: new(2.)})
	}
	cannot := map[faults.Op]string{faults.Leave: "nobody can leave"}
	for central, want := range map[bool][]string{
		true: {
			"Fail w1: this inject cannot apply to programs", "FailReduce w1: this inject cannot apply to programs", "Leave w1: nobody can leave",
		},
		false: {
			"CoordinatorCrash w1: this inject cannot apply to programs", "Fail w1: this inject cannot apply to programs", "FailReduce w1: this inject cannot apply to programs", "Leave w1: nobody can leave",
		},
	} {
		got := LeftOut(s, central, cannot)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("central: %v: %q, want %q", central, got, want)
		}
		injects, unfit := injectsOf(s, central, cannot)
		for _, i := range injects {
			if i.Op == faults.Leave || i.Op == faults.Fail || i.Op == faults.FailReduce || i.Op == faults.CoordinatorCrash {
				t.Errorf("%+v", i)
			}
		}
		if len(unfit) != 2 {
			t.Errorf("%q", unfit)
		}
	}
}
