package sim_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/sim"
)

// played runs a scenario under torchft on churn's network or on planned links.
func played(t *testing.T, links bool, policyName, text string) (record.Summary, []record.Event) {
	t.Helper()
	s, err := scenarios.Parse("played.yaml", []byte(`
seed: 1
inner_steps: 2
horizon: 200000
heartbeat_period: 1000
heartbeat_miss_threshold: 5
base_latency: 100
bandwidth_bpus: 10
state_bytes: 1000
real: {time_scale: 100, parameters: 1500}
`+text))
	if err != nil {
		t.Fatal(err)
	}
	var events []record.Event
	note := func(e record.Event) { events = append(events, e) }
	var sum record.Summary
	if links {
		sum, err = onLinks(s, policyName, sim.Costs{}, note)
	} else {
		sum, err = onChurn(s, policyName, note)
	}
	if err != nil {
		t.Fatal(err)
	}
	return sum, events
}

// onBoth plays it on both networks.
func onBoth(t *testing.T, play func(t *testing.T, links bool)) {
	for _, links := range []bool{false, true} {
		t.Run(fmt.Sprintf("links %t", links), func(t *testing.T) { play(t, links) })
	}
}

// told are the events of a type, as the worker and the participants of each.
func told(events []record.Event, of record.Type) string {
	var out []string
	for _, e := range events {
		if e.Type == of {
			out = append(out, strings.TrimSpace(fmt.Sprint(e.Node, " ", e.Round, " ", e.Participants)))
		}
	}
	return strings.Join(out, "; ")
}

const three = `target_outer_steps: 6
workers: [{id: 0, inner_step_mean: 1000}, {id: 1, inner_step_mean: 1000}, {id: 2, inner_step_mean: 1000}]
`

// TestFailReduce: the reduction of round 2 fails at one worker, and so for all; or,
// under torchft, at it alone: then it lags by a step and heals. Either gives one
// quorum another id.
func TestFailReduce(t *testing.T) {
	onBoth(t, func(t *testing.T, links bool) {
		for _, c := range []struct{ policy, inject, aborted string }{
			{"torchft", "", "2 [0 1 2]"},
			{"torchft", ", alone: true", "2 [1]"},
			{"baseline", "", "2 [0 1 2]"},
			{"baseline", ", alone: true", "2 [0 1 2]"},
		} {
			sum, events := played(t, links, c.policy, three+"injects: [{op: FailReduce, id: 1, at: 3000"+c.inject+"}]")
			if got := told(events, record.ReduceAbort); got != c.aborted || !sum.Complete || len(sum.Evicted)+len(sum.Diverged) > 0 {
				t.Errorf("%+v: aborted %s, complete %t, evicted %v, diverged %v", c, got, sum.Complete, sum.Evicted, sum.Diverged)
			}
			var ids []int64
			for _, e := range events {
				if e.Type == record.ReduceStart {
					ids = append(ids, e.Reason.QuorumID)
				}
			}
			if c.policy == "torchft" && (ids[0] != 1 || slices.Max(ids) != 2) {
				t.Errorf("%+v: quorums %v", c, ids)
			}
			healed := told(events, record.FetchStart)
			if alone := c.policy == "torchft" && c.inject != ""; alone != (healed == "w1 3 []") || !alone && healed != "" {
				t.Errorf("%+v: fetched %s", c, healed)
			}
			if c.policy == "torchft" && c.inject != "" && !slices.Equal(sum.Rounds[1].Participants, []policy.ID{0, 2}) {
				t.Errorf("%+v: round 2 was taken by %v", c, sum.Rounds[1].Participants)
			}
		}
	})
}

// TestFailReduceUnderWay: one that is under way fails, too.
func TestFailReduceUnderWay(t *testing.T) {
	onBoth(t, func(t *testing.T, links bool) {
		_, events := played(t, links, "torchft", three)
		i := slices.IndexFunc(events, func(e record.Event) bool { return e.Type == record.ReduceStart && e.Round == 3 })
		at := events[i].T + 1
		sum, events := played(t, links, "torchft", three+fmt.Sprintf("injects: [{op: FailReduce, id: 1, at: %d}]", at))
		if got := told(events, record.ReduceAbort); got != "3 [0 1 2]" || !sum.Complete {
			t.Errorf("aborted %s, complete %t", got, sum.Complete)
		}
	})
}

const busy = `target_outer_steps: 23
workers:
  - {id: 0, inner_step_mean: 6000, initial_step: 20}
  - {id: 1, inner_step_mean: 6000, initial_step: 20}
  - {id: 2, inner_step_mean: 1000, join_at: 1000}
  - {id: 3, inner_step_mean: 1000, join_at: 1000}
  - {id: 4, inner_step_mean: 1000, join_at: 1000}
`

// TestInitialStep: three that begin anew beside two at outer step 20 that are busy
// wait for them and heal, or train by themselves and lose what they had.
func TestInitialStep(t *testing.T) {
	onBoth(t, func(t *testing.T, links bool) {
		for joinTimeout, splits := range map[int]bool{20_000: false, 500: true} {
			sum, events := played(t, links, fmt.Sprintf("torchft:min_replicas=2:join_timeout=%d", joinTimeout), busy)
			if sum.OuterSteps != 23 || len(sum.Rounds) != 3 || sum.Rounds[0].Round != 21 || sum.Complete == splits || len(sum.Evicted) > 0 {
				t.Errorf("%d outer steps, complete %t, evicted %v, rounds %+v", sum.OuterSteps, sum.Complete, sum.Evicted, sum.Rounds)
			}
			if (len(sum.Diverged) == 1) != splits || (len(sum.Undone) == 1) != splits {
				t.Errorf("diverged %+v, undone %+v", sum.Diverged, sum.Undone)
			}
			if e := events[len(events)-1]; splits != (e.Reason.Rule == policy.RuleSplitBrain) {
				t.Errorf("it ends by %+v", e.Reason)
			}
		}
	})
}

// TestInitialStepIsTorchfts: other policies have one number of outer steps.
func TestInitialStepIsTorchfts(t *testing.T) {
	s, err := scenarios.Parse("s.yaml", []byte(`{seed: 1, inner_steps: 1, target_outer_steps: 3, horizon: 1000, heartbeat_period: 10, heartbeat_miss_threshold: 5,
		base_latency: 1, bandwidth_bpus: 1, state_bytes: 1, workers: [{id: 0, inner_step_mean: 1}, {id: 1, inner_step_mean: 1, initial_step: 2}]}`))
	if err != nil {
		t.Fatal(err)
	}
	const want = "s.json: workers[1].initial_step is 2, but all workers take the same outer steps under straggler: remove it, or choose torchft"
	if _, err := onChurn(s, "straggler", nil); err == nil || !strings.HasSuffix(err.Error(), strings.TrimPrefix(want, "s.json: ")) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestALighthouseForgets: it dies while two of three wait for a quorum. Their
// requests are lost. Without retries they die of their time-out, though it is back
// long before, and the third is alone; with them, all go on. Ids count from 1 again,
// so that a process group passes for the quorum's that is not, and one step fails.
// One that does not forget changes nothing.
func TestALighthouseForgets(t *testing.T) {
	const slow = `target_outer_steps: 6
workers: [{id: 0, inner_step_mean: 1000}, {id: 1, inner_step_mean: 1000}, {id: 2, inner_step_mean: 3000}]
injects: [{op: CoordinatorCrash, at: 11000, down: 1000, forgets: %t}]
`
	onBoth(t, func(t *testing.T, links bool) {
		for _, c := range []struct {
			forgets                                bool
			minReplicas, timeout, retries, evicted int
		}{{true, 1, 6000, 0, 2}, {true, 2, 15_000, 9, 0}, {false, 1, 6000, 0, 0}} {
			sum, events := played(t, links, fmt.Sprintf("torchft:min_replicas=%d:heartbeat_timeout=2000:join_timeout=20000:quorum_timeout=%d:quorum_retries=%d", c.minReplicas, c.timeout, c.retries), fmt.Sprintf(slow, c.forgets))
			if len(sum.Evicted) != c.evicted || !sum.Complete {
				t.Errorf("%+v: evicted %+v; complete %t after %d outer steps", c, sum.Evicted, sum.Complete, sum.OuterSteps)
			}
			var ids []int64
			for _, e := range events {
				if e.Type == record.ReduceStart {
					ids = append(ids, e.Reason.QuorumID)
				}
			}
			fails := strings.Count(told(events, record.ReduceAbort), "2 [")
			if again := slices.Index(ids[1:], 1); !c.forgets && (fails > 0 || slices.Max(ids) > 1) || c.forgets && (again != 0 || fails != 1 || ids[2] != 2) {
				t.Errorf("%+v: quorums %v, %d reductions of round 2 failed", c, ids, fails)
			}
		}
	})
}

// TestAHangingTrainer: a worker stalls in a reduction and gives heartbeats.
// The reduction takes too long, nobody evicts it, and the others go on without it
// until it does; then it heals.
func TestAHangingTrainer(t *testing.T) {
	onBoth(t, func(t *testing.T, links bool) {
		const policyName = "torchft:min_replicas=2:timeout=4000:join_timeout=4000"
		three := strings.Replace(three, ": 6", ": 12", 1)
		_, events := played(t, links, policyName, three)
		i := slices.IndexFunc(events, func(e record.Event) bool { return e.Type == record.ReduceStart && e.Round == 2 })
		text := three + fmt.Sprintf("injects: [{op: Pause, id: 1, at: %d, heartbeats: true}, {op: Resume, id: 1, at: %d}]", events[i].T+1, events[i].T+12_000)
		sum, events := played(t, links, policyName, text)
		if got := told(events, record.ReduceAbort); got != "2 [0 1 2]" || !sum.Complete || len(sum.Evicted) > 0 || told(events, record.HeartbeatMiss) != "" {
			t.Errorf("aborted %s, complete %t, evicted %v, missed %s", got, sum.Complete, sum.Evicted, told(events, record.HeartbeatMiss))
		}
		if first, last := sum.Rounds[1].Participants, sum.Rounds[11].Participants; !slices.Equal(first, []policy.ID{0, 2}) || len(last) != 3 {
			t.Errorf("round 2 was taken by %v, the last one by %v", first, last)
		}
	})
}

// TestWhatNeedsALighthouse is refused where there is none.
func TestWhatNeedsALighthouse(t *testing.T) {
	for text, want := range map[string]string{
		"injects: [{op: CoordinatorCrash, at: 1, forgets: true}]":         "injects[0].forgets needs a lighthouse, but there is none under deadline: remove it, or choose torchft",
		"injects: [{op: Restart, id: 1, at: 1, after: 1, lighthouse: 1}]": "injects[0].lighthouse needs a lighthouse, but there is none under deadline: remove it, or choose torchft",
	} {
		s, err := scenarios.Parse("s.yaml", []byte("{seed: 1, inner_steps: 1, target_outer_steps: 3, horizon: 1000, heartbeat_period: 10, heartbeat_miss_threshold: 5, base_latency: 1, bandwidth_bpus: 1, state_bytes: 1, workers: [{id: 1, inner_step_mean: 1}], "+text+"}"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := onChurn(s, "deadline", nil); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestTwoLighthouses: each has two of four workers. With a quorum of two both sides
// take the same outer steps, which differ; with a majority neither takes any, and
// all die of their time-out. Two that start again at the other's go on with those
// that are there.
func TestTwoLighthouses(t *testing.T) {
	const two = `target_outer_steps: 6
workers: [{id: 0, inner_step_mean: 1000}, {id: 1, inner_step_mean: 1000}, {id: 2, inner_step_mean: 1000, lighthouse: 1}, {id: 3, inner_step_mean: 1000, lighthouse: 1}]
`
	onBoth(t, func(t *testing.T, links bool) {
		sum, events := played(t, links, "torchft:min_replicas=2", two)
		taken := map[string]int{}
		for _, e := range events {
			if e.Type == record.OuterStep {
				taken[fmt.Sprint(e.Lineage, " by ", e.Participants)]++
			}
		}
		if sum.Complete || len(sum.Diverged) != 1 || sum.OuterSteps != 6 || len(taken) != 2 || taken["0 by [0 1]"] != 6 || taken["1 by [2 3]"] < 5 {
			t.Errorf("complete %t, diverged %+v, outer steps %v", sum.Complete, sum.Diverged, taken)
		}
		sum, _ = played(t, links, "torchft:min_replicas=3", two)
		if sum.OuterSteps > 0 || len(sum.Evicted) != 4 || len(sum.Diverged) > 0 {
			t.Errorf("with a majority %d outer steps, evicted %+v", sum.OuterSteps, sum.Evicted)
		}
		sum, events = played(t, links, "torchft:min_replicas=3", two+"injects: [{op: Restart, id: 2, at: 9000, after: 1000, lighthouse: 0}, {op: Restart, id: 3, at: 9000, after: 1000, lighthouse: 0}]")
		if !sum.Complete || len(sum.Diverged) > 0 || len(sum.Rounds[5].Participants) != 4 {
			t.Errorf("after the restarts: complete %t, %d outer steps, diverged %+v, last event %+v", sum.Complete, sum.OuterSteps, sum.Diverged, events[len(events)-1])
		}
	})
}
