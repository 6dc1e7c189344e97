package estimate_test

import (
	"testing"

	"testbed/estimate"
)

func TestGoldenReliability(t *testing.T) {
	for i, c := range readGolden(t).Reliable.Cases {
		if err := c.Inputs.Check(); err != nil {
			t.Fatal(err)
		}
		got := fields(t, estimate.Reliability(c.Inputs))
		if len(got) != len(c.Outputs) {
			t.Errorf("%d outputs, want %d", len(got), len(c.Outputs))
		}
		sameFields(t, got, c.Outputs)
		if t.Failed() {
			t.Fatalf("case %d: %+v", i, c.Inputs)
		}
	}
}

// TestPublishedGoodput: the table that was published with the model, in percent
// for 72, 625 and 4000 nodes of 50 GPUs, 250 B parameters, asynchronous
// checkpoints.
func TestPublishedGoodput(t *testing.T) {
	nodes := []float64{72, 625, 4000}
	for mode, want := range map[string][]float64{
		"none": {0.211, 0.024, 0.004}, "synchronous": {95.5, 80.0, 9.0},
		"checkpoint_elastic": {96.7, 90.4, 75.7}, "async": {99.9, 98.8, 94.2},
	} {
		for i, n := range nodes {
			in := estimate.DefaultReliability()
			in.Nodes, in.GPUsPerNode, in.TimeSec, in.Params, in.BytesPerParam, in.VRAMGB = n, 50, 1.5*365.25*86400, 250e9, 16, 4000
			in.Mode, in.CheckpointMode = mode, "async"
			digits := 10.0
			if mode == "none" {
				digits = 1000
			}
			got := 100 * estimate.Reliability(in).Goodput
			if d := got - want[i]; d*digits > 0.501 || d*digits < -0.501 {
				t.Errorf("%s with %v nodes: %v %%, published %v", mode, n, got, want[i])
			}
		}
	}
}
