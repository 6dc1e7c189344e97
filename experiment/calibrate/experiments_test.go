package calibrate

import (
	"testing"

	"testbed/scenarios"
	"testbed/sim"
)

// TestExperimentsCanBePlayed, are named apart, and end as meant in the
// simulator.
func TestExperimentsCanBePlayed(t *testing.T) {
	names := map[string]bool{}
	for _, e := range Experiments() {
		if names[e.Name] {
			t.Errorf("two experiments are named %s", e.Name)
		}
		names[e.Name] = true
		s, err := scenarios.Parse(e.Name+".yaml", e.Source)
		if err != nil {
			t.Fatal(err)
		}
		sum, err := onLinks(s, e.Policy, sim.Costs{}, nil)
		if err != nil || !sum.Complete {
			t.Errorf("%s: complete %v: %v", e.Name, sum.Complete, err)
		}
		if e.Policy == scenarios.Straggler && len(sum.Sidelined) < 2 {
			t.Errorf("%s sidelines nobody twice: %v", e.Name, sum.Sidelined)
		}
		t.Logf("%-18s %7.1f s", e.Name, float64(sum.WallClock)/1e6)
	}
}
