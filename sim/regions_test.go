package sim_test

import (
	"fmt"
	"slices"
	"testing"

	"testbed/internal/testscenario"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/sim"

	"testbed/train/replay"
)

// apart is a scenario of two regions far from each other, one with slow links.
func apart(t *testing.T, every int, more string) *scenarios.Scenario {
	t.Helper()
	s, err := scenarios.Parse("apart.yaml", []byte(fmt.Sprintf(`
seed: 3
inner_steps: 2
target_outer_steps: 6
horizon: 10000000
heartbeat_period: 1000
heartbeat_miss_threshold: 5
base_latency: 100
bandwidth_bpus: 10
state_bytes: 100
train: {regions: {every: %d}}
real:
  parameters: 100000
  all_reduce: {entropy: "off"}
  links:
    default: {one_way_delay: 2ms}
    groups: {eu: {nodes: [w0, w2], rate_up: 100mbit, rate_down: 100mbit}, us: {nodes: [w1, w3], rate_up: 10mbit, rate_down: 10mbit}}
    paths: [{between: [eu, us], one_way_delay: 50ms}]
workers:
  - {id: 0, inner_step_mean: 5000}
  - {id: 1, inner_step_mean: 5000}
  - {id: 2, inner_step_mean: 5000}
  - {id: 3, inner_step_mean: 5000}
%s`, every, more)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRegionsReduceSideBySide: in a round of regions nothing crosses the way
// between them, and the slower region ends it.
func TestRegionsReduceSideBySide(t *testing.T) {
	play := func(every int) record.Summary {
		sum, err := onLinks(apart(t, every, ""), scenarios.Baseline, sim.Costs{}, nil)
		if err != nil || !sum.Complete {
			t.Fatalf("complete %v, %v", sum.Complete, err)
		}
		return sum
	}
	always, sometimes := play(1), play(3)
	s := apart(t, 1, "")
	r, err := s.Resolve(scenarios.Baseline)
	if err != nil {
		t.Fatal(err)
	}
	times := sim.NewTimes(r, sim.Costs{})
	us := []policy.ID{1, 3}
	slower := s.ScenarioTime(times.Reduction(us, us))
	for k, r := range sometimes.Rounds {
		all := always.Rounds[k]
		switch {
		case r.Round%3 == 0 && (len(r.Regions) > 0 || r.BytesSent != all.BytesSent || r.Reduce < all.Reduce):
			t.Errorf("a round of all: %+v, without regions %+v", r, all)
		case r.Round%3 == 0:
		case len(r.Regions) != 2 || r.Regions[1].Region != "us" || !slices.Equal(r.Regions[1].Participants, us):
			t.Errorf("round %d has the regions %+v", r.Round, r.Regions)
		case r.BytesSent >= all.BytesSent || r.Reduce >= all.Reduce:
			t.Errorf("round %d sends %d bytes in %d µs, one of all %d in %d", r.Round, r.BytesSent, r.Reduce, all.BytesSent, all.Reduce)
		case r.Round%3 == 2 && (r.Reduce < slower || r.Reduce > slower+slower/10): // connected by then
			t.Errorf("round %d reduces for %d µs, its slower region needs %d", r.Round, r.Reduce, slower)
		}
	}
}

// TestRegionThatLosesItsState: all of a region crash between two rounds of all, and
// come back. They go on from what was agreed on, on both networks, and what is
// learnt follows from the record.
func TestRegionThatLosesItsState(t *testing.T) {
	s := apart(t, 3, "policy: {rejoin: after_rounds}\ninjects:\n  - {op: Restart, at: 42000, id: 1, after: 3000}\n  - {op: Restart, at: 42000, id: 3, after: 3000}\n")
	for network, play := range map[string]func(note func(record.Event)) (record.Summary, error){
		"churn": func(note func(record.Event)) (record.Summary, error) { return onChurn(s, scenarios.Baseline, note) },
		"links": func(note func(record.Event)) (record.Summary, error) {
			return onLinks(s, scenarios.Baseline, sim.Costs{}, note)
		},
	} {
		l, err := replay.New(testscenario.Resolve(t, s, ""))
		if err != nil {
			t.Fatal(err)
		}
		agreed := map[string]bool{}
		sum, err := play(func(e record.Event) {
			if _, err := l.Add(&e); err != nil {
				t.Errorf("%s: %v", network, err)
			}
			if e.Type == record.FetchDone {
				agreed[e.Node] = e.Agreed
			}
		})
		if err != nil || !sum.Complete || len(sum.Returned) != 2 {
			t.Fatalf("%s: complete %v, returned %+v, %v", network, sum.Complete, sum.Returned, err)
		}
		if !agreed["w1"] && !agreed["w3"] {
			t.Errorf("%s: nobody fetched what was agreed on: %v", network, agreed)
		}
	}
}
