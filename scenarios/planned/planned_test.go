package planned_test

import (
	"strings"
	"testing"

	"testbed/scenarios"
	"testbed/scenarios/planned"
)

// TestWrite: whatever the library has is shown, links that change too.
func TestWrite(t *testing.T) {
	all, err := scenarios.Library()
	if err != nil {
		t.Fatal(err)
	}
	wants := map[string][]string{
		"homogeneous":   {"homogeneous: 5 nodes; 1 ms of scenario time takes", "coordinator", "one-way delay ± jitter, loss", "·"},
		"mixed_gpus":    {"inner steps, in scenario time", "a100"},
		"lognormal_16":  {"272 paths; see --json"},
		"flapping_link": {"what happens to links, in real time", "down for"},
		"mobile_uplink": {"Mbit/s on average, from"},
	}
	for _, s := range all {
		plan, err := s.Plan()
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := planned.Write(&out, s, plan); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		for _, want := range wants[s.Name] {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in\n%s", s.Name, want, out.String())
			}
		}
	}
}
