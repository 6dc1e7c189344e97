package sim_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/allreduce"
	"testbed/allreduce/reduction"
	"testbed/internal/randscenario"
	"testbed/internal/rapidtest"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/scenarios/faults"
	"testbed/shaping"
	"testbed/sim"
	"testbed/train/task"
)

// TestRandomScenarios end, are deterministic, tell their events in order of
// time, and sum up to something that makes sense.
func TestRandomScenarios(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		s := randscenario.Draw(t)
		s.Train = &task.Spec{Outer: task.Outer{Overlap: rapid.IntRange(0, s.InnerSteps).Draw(t, "overlap")}}
		name := rapid.SampledFrom(policy.Names()).Draw(t, "policy")
		play := func() (record.Summary, []record.Event) {
			var events []record.Event
			sum, err := onChurn(s, name, func(e record.Event) { events = append(events, e) })
			if err != nil {
				t.Fatal(err)
			}
			return sum, events
		}
		sum, events := play()
		checkEvents(t, s, events)
		checkSummary(t, s, sum)
		_, again := play()
		if one, two := text(t, events), text(t, again); one != two {
			t.Fatalf("two runs differ:\n%s\n%s", one, two)
		}
	})
}

// TestRandomScenariosOverLinks do the same on random links.
func TestRandomScenariosOverLinks(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		s := randscenario.Draw(t)
		s.Real = scenarios.Real{
			TimeScale: rapid.SampledFrom([]float64{1, 50, 1000}).Draw(t, "scale"), Parameters: rapid.IntRange(1, 100_000).Draw(t, "parameters"),
			AllReduce: reduction.Spec{
				Algorithm: rapid.SampledFrom([]string{"ring", "direct"}).Draw(t, "algorithm"),
				Order:     rapid.SampledFrom(reduction.Orders).Draw(t, "order"), Format: allreduce.DefaultFormat,
			},
		}
		s.Train = &task.Spec{Outer: task.Outer{
			Overlap:   rapid.IntRange(0, s.InnerSteps).Draw(t, "overlap"),
			Fragments: rapid.IntRange(1, min(3, s.Real.Parameters)).Draw(t, "fragments"),
		}}
		rate := shaping.Rate(rapid.SampledFrom([]int64{0, 1e6, 100e6}).Draw(t, "rate"))
		s.Real.Links.Default.RateUp = &rate
		if rapid.Bool().Draw(t, "cut") {
			until := rapid.IntRange(1, 20_000).Draw(t, "until")
			end := policy.Time(until)
			s.Real.Injects = []faults.LinkInject{{Op: faults.Cut, At: end / 2, Until: &end, From: policy.CoordinatorNode, To: "w0"}}
		}
		name := rapid.SampledFrom(policy.Names()).Draw(t, "policy")
		costs := sim.Costs{Step: time.Duration(rapid.IntRange(0, 1000).Draw(t, "step")) * time.Microsecond, Efficiency: 0.8}
		play := func() (record.Summary, []record.Event) {
			var events []record.Event
			sum, err := onLinks(s, name, costs, func(e record.Event) { events = append(events, e) })
			if err != nil {
				t.Fatal(err)
			}
			return sum, events
		}
		sum, events := play()
		checkEvents(t, s, events)
		_, again := play()
		if text(t, events) != text(t, again) {
			t.Fatal("two runs differ")
		}
		s.BaseLatency, s.StateBytes = 0, 0 // a worker alone reduces at once
		checkSummary(t, s, sum)
	})
}

func text(t *rapid.T, events []record.Event) string {
	b, err := json.Marshal(events)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(b), "},{", "},\n{")
}

func checkEvents(t *rapid.T, s *scenarios.Scenario, events []record.Event) {
	if events[0].Type != record.RunStart || events[len(events)-1].Type != record.RunEnd {
		t.Fatalf("the record goes from %s to %s", events[0].Type, events[len(events)-1].Type)
	}
	for i, e := range events {
		if i > 0 && e.T < events[i-1].T {
			t.Fatalf("event %d at %d comes after one at %d", i, e.T, events[i-1].T)
		}
		if e.T > s.Horizon {
			t.Fatalf("%s at %d, beyond the horizon", e.Type, e.T)
		}
		if e.Type == record.RunEnd && i != len(events)-1 {
			t.Fatalf("the run ends with event %d of %d", i, len(events))
		}
	}
}

func checkSummary(t *rapid.T, s *scenarios.Scenario, sum record.Summary) {
	const rounding = 1e-9
	if c, w := sum.ComputeFraction, sum.BarrierWaitFraction; !(c >= 0 && w >= 0 && c+w <= 1+rounding) {
		t.Fatalf("compute %v and barrier wait %v", c, w)
	}
	if u := sum.ChurnLikeUtilization; u != nil && !(*u >= 0 && *u <= 1) {
		t.Fatalf("churn_like_utilization %v", *u)
	}
	if sum.Complete != (sum.OuterSteps == s.TargetOuterSteps) || sum.OuterSteps != len(sum.Rounds) || sum.BitIdentical != nil || sum.JoinerStall < 0 {
		t.Fatalf("complete %v after %d outer steps and %d rounds", sum.Complete, sum.OuterSteps, len(sum.Rounds))
	}
	var end policy.Time
	for i, r := range sum.Rounds {
		if i == 0 {
			end = r.Start
		}
		if r.Round != i+1 || r.Start != end || r.Close < r.Start || r.End < r.Close || len(r.Participants) == 0 {
			t.Fatalf("round %d of %+v", i+1, sum.Rounds)
		}
		if slices.ContainsFunc(r.Participants, func(id policy.ID) bool { return slices.Contains(r.Late, id) }) {
			t.Fatalf("a worker of round %d took part and was late: %+v", i+1, r)
		}
		if want := s.BaseLatency + policy.Time(s.StateBytes/s.BandwidthBpus); r.Reduce < want {
			t.Fatalf("round %d reduced in %d µs, faster than %d", i+1, r.Reduce, want)
		}
		end = r.End
	}
	if len(sum.Rounds) > 0 && sum.WallClock != end {
		t.Fatalf("wall-clock %d, but the last round ended at %d", sum.WallClock, end)
	}
	d := sum.Split
	if total := d.Compute + d.Transfer + d.Control + d.StateFetch + d.Deadline; len(sum.Rounds) > 0 && total != sum.WallClock-sum.Rounds[0].Start ||
		min(d.Compute, d.Transfer, d.Control, d.StateFetch, d.Deadline) < 0 {
		t.Fatalf("the parts of %d µs are %+v", sum.WallClock, d)
	}
	out := map[policy.ID]int{}
	for _, m := range sum.Evicted {
		out[m.ID]++
	}
	for _, m := range sum.Returned {
		if out[m.ID]--; m.Out < 0 || m.Incarnation < 0 {
			t.Fatalf("worker %d came back like this: %+v", m.ID, m)
		}
	}
	for id, n := range out {
		if n != 0 && n != 1 {
			t.Fatalf("worker %d came back %d times less than it was evicted", id, n)
		}
	}
}

// TestMessagesKeepTheirOrder: what a cut path has held up still comes before
// what was sent later, or a worker would be asked to begin a round before it has
// the outcome of the one before.
func TestMessagesKeepTheirOrder(t *testing.T) {
	s, err := scenarios.Parse("order.yaml", []byte(`
seed: 0
inner_steps: 1
target_outer_steps: 2
horizon: 100000
heartbeat_period: 64
heartbeat_miss_threshold: 4
base_latency: 65
bandwidth_bpus: 10
state_bytes: 0
workers:
  - {id: 0, inner_step_mean: 1}
  - {id: 1, inner_step_mean: 1}
  - {id: 2, inner_step_mean: 1}
injects:
  - {op: Crash, id: 1, at: 257}
  - {op: Leave, id: 2, at: 0}
real:
  time_scale: 50
  parameters: 1
  injects:
    - {op: Cut, from: coordinator, to: w0, at: 66, until: 132}
`))
	if err != nil {
		t.Fatal(err)
	}
	sum, err := onLinks(s, scenarios.Baseline, sim.Costs{Efficiency: 0.8}, nil)
	if err != nil || !sum.Complete {
		t.Errorf("complete %v, %v", sum.Complete, err)
	}
}
