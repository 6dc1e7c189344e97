package experiment_test

import (
	"strings"
	"testing"

	"testbed/experiment"
	"testbed/policy"
	"testbed/policy/torchft"
	"testbed/scenarios"
)

// TestCompareJoinTimeout: the round has no faults in it, and the comparison turns where
// the join timeout equals it.
func TestCompareJoinTimeout(t *testing.T) {
	compare := func(name string, change func(*scenarios.Scenario)) *experiment.JoinTimeout {
		t.Helper()
		s, err := scenarios.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if change != nil {
			change(s)
		}
		return experiment.CompareJoinTimeout(s, "torchft")
	}
	plain := compare("homogeneous", nil)
	if plain == nil || plain.Below || plain.JoinTimeout != 10_000 || plain.Round < 2000 || plain.Round > 3000 {
		t.Fatalf("homogeneous: %+v", plain)
	}
	for _, same := range []string{"persistent_straggler", "crash_mid_round", "late_join", "partition_heal"} {
		if j := compare(same, nil); j == nil || *j != *plain {
			t.Errorf("%s: %+v, want %+v", same, j, plain)
		}
	}
	for below := range 2 {
		j := compare("homogeneous", func(s *scenarios.Scenario) {
			p := torchft.Policy{MinReplicas: 1, JoinTimeout: plain.Round - policy.Time(below)}
			s.Policy.Parameters["torchft"] = &p
		})
		if j == nil || j.Below != (below == 1) || strings.Contains(j.String(), "is not shorter") == j.Below {
			t.Errorf("%d µs below a round: %v", below, j)
		}
	}
	if j := compare("torchft_t18", nil); j == nil || !j.Below {
		t.Errorf("torchft_t18: %v", j)
	}
	// A parameter in the policy's name counts, and other policies have none.
	s, err := scenarios.Load("homogeneous")
	if err != nil {
		t.Fatal(err)
	}
	for name, below := range map[string]bool{"torchft:join_timeout=1500": true, "torchft:join_timeout=3500": false} {
		if j := experiment.CompareJoinTimeout(s, name); j == nil || j.Below != below || j.Round != plain.Round {
			t.Errorf("%s: %+v", name, j)
		}
	}
	if j := experiment.CompareJoinTimeout(s, "quorum:join_timeout=1500"); j != nil {
		t.Errorf("another policy: %v", j)
	}
	// Its scenario has more groups in a quorum than ask either lighthouse.
	if j := compare("torchft_t03", nil); j == nil || j.Below {
		t.Errorf("torchft_t03: %v", j)
	}
	if j := compare("charlm_regions", nil); j != nil { // which the policy refuses
		t.Errorf("charlm_regions: %v", j)
	}
}
