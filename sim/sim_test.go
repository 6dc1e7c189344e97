package sim_test

import (
	"testing"

	"testbed/policy"
	"testbed/scenarios"
	"testbed/sim"
)

// TestWallClocks holds the simulator to the published figures of
// persistent_straggler, and to the reconstructed model's for the others.
func TestWallClocks(t *testing.T) {
	for _, c := range []struct {
		scenario            string
		baseline, straggler policy.Time
	}{
		{"persistent_straggler", 92_050, 20_053},
		{"homogeneous", 11_050, 11_050},
		{"transient_slow", 20_050, 11_052},
		{"crash_mid_round", 13_740, 11_052},
		{"graceful_leave", 11_050, 11_050},
		{"late_join", 11_740, 11_051},
		{"partition_heal", 12_840, 11_051},
	} {
		s, err := scenarios.Load(c.scenario)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]policy.Time{scenarios.Baseline: c.baseline, scenarios.Straggler: c.straggler} {
			sum, err := sim.Run(s, name, nil)
			if err != nil {
				t.Fatal(err)
			}
			if sum.WallClock != want || !sum.Complete || sum.OuterSteps != 5 {
				t.Errorf("%s under %s: wall-clock %d µs after %d outer steps (complete %v), want %d after 5", c.scenario, name, sum.WallClock, sum.OuterSteps, sum.Complete, want)
			}
		}
	}
}
