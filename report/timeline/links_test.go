package timeline

import (
	"slices"
	"testing"

	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
)

// TestLinks: w0 sends twice to w1 in a ring of two, whose own link is slower.
func TestLinks(t *testing.T) {
	s, err := scenarios.Parse("test.yaml", []byte(`
{seed: 1, inner_steps: 1, target_outer_steps: 1, horizon: 100, heartbeat_period: 10, heartbeat_miss_threshold: 5,
base_latency: 1, bandwidth_bpus: 1, state_bytes: 1, workers: [{id: 0, inner_step_mean: 10}, {id: 1, inner_step_mean: 10}],
real: {time_scale: 1000, links: {default: {rate_up: 8mbit}, nodes: {w1: {rate_down: 4mbit}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	both := []policy.ID{0, 1}
	events := []record.Event{
		{Type: record.ReduceStart, Epoch: 1, Participants: both},
		{Type: record.Reduced, Epoch: 1, Node: "w0", BytesSent: 1000, Duration: 2},
		{Type: record.ReduceStart, Epoch: 2, Participants: both},
		{Type: record.Reduced, Epoch: 2, Node: "w0", BytesSent: 500, Duration: 1},
		{Type: record.Reduced, Epoch: 2, Node: "w1", BytesSent: 500, Duration: 4},
		{Type: record.ReduceStart, Epoch: 3, Participants: both[:1]},
		{Type: record.Reduced, Epoch: 3, Node: "w0"}, // alone it sends nothing
	}
	want := []Link{
		{From: "w0", To: "w1", Reductions: 2, Bytes: 1500, Seconds: 0.003, Goodput: 4e6, Rate: 4e6},
		{From: "w1", To: "w0", Reductions: 1, Bytes: 500, Seconds: 0.004, Goodput: 1e6, Rate: 8e6},
	}
	for _, algorithm := range []string{"ring", "direct"} {
		if s.Real.AllReduce.Algorithm = algorithm; algorithm == "direct" {
			want[0].To, want[0].Rate, want[1].To = everybody, 8e6, everybody
		}
		if got, err := Links(s, events); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %+v, %v\nwant %+v", algorithm, got, err, want)
		}
	}
}
