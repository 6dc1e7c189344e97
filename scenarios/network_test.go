package scenarios_test

import (
	"strings"
	"testing"

	"testbed/scenarios"
	"testbed/shaping"
)

// TestWriteNetworkRing: the order that is asked for, and what it gains.
func TestWriteNetworkRing(t *testing.T) {
	s, err := scenarios.Load("homogeneous")
	if err != nil {
		t.Fatal(err)
	}
	slow := shaping.Rate(10e6)
	s.Real.Links.Pairs = []shaping.Pair{{From: "w1", To: "w2", Path: shaping.Path{Rate: &slow}}}
	for order, want := range map[string]string{
		"naive":          "",
		"planned_rates":  "ring of all workers (order: planned_rates): w0 → w3 → w2 → w1 → w0\n  slowest hop 200mbit (10mbit if the ring followed the order of the ids)\n  longest delay",
		"measured_rates": "  this order follows from the plan; a run measures the links first, and may choose another order\n  slowest hop 200mbit",
		"planned":        "(order: planned): w0 → w1 → w2 → w3 → w0\n  longest delay of a chunk around the ring 60ms (60ms if the ring followed the order of the ids)\n",
	} {
		s.Real.AllReduce.Order = order
		plan, err := s.Plan()
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := scenarios.WriteNetwork(&out, s, plan); err != nil || !strings.Contains(out.String(), want) || strings.Contains(out.String(), "ring") != (want != "") {
			t.Errorf("%s: %v, no %q in\n%s", order, err, want, out.String())
		}
		if network, err := scenarios.NewNetwork(s, plan); err != nil || (network.Ring != nil) != (want != "") {
			t.Errorf("%s: %+v, %v", order, network, err)
		}
	}
}

// TestWriteNetwork: whatever the library has is shown, links that change too.
func TestWriteNetwork(t *testing.T) {
	all, err := scenarios.Library()
	if err != nil {
		t.Fatal(err)
	}
	wants := map[string][]string{
		"homogeneous":   {"homogeneous: 5 nodes; 1 ms of scenario time takes", "coordinator", "one-way delay ± jitter, loss", "·"},
		"mixed_gpus":    {"inner steps, in scenario time", "a100"},
		"lognormal_16":  {"272 paths, which --json lists"},
		"flapping_link": {"changes of links, in real time", "down for"},
		"mobile_uplink": {"Mbit/s on average, from"},
	}
	for _, s := range all {
		plan, err := s.Plan()
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := scenarios.WriteNetwork(&out, s, plan); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		for _, want := range wants[s.Name] {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in\n%s", s.Name, want, out.String())
			}
		}
	}
}
