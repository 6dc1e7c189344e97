package sim_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"testbed/policy"
	"testbed/runlog"
	"testbed/scenarios"
	"testbed/sim"
	"testbed/sim/timing"
)

// played runs a scenario under torchft on churn's network or on planned links.
func played(t *testing.T, links bool, policyName, text string) (runlog.Summary, []runlog.Event) {
	t.Helper()
	s, err := scenarios.Parse("played.yaml", []byte(`
seed: 1
inner_steps: 2
target_outer_steps: 6
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
	var events []runlog.Event
	record := func(e runlog.Event) { events = append(events, e) }
	var sum runlog.Summary
	if links {
		sum, err = sim.RunLinks(s, policyName, timing.Costs{}, record)
	} else {
		sum, err = sim.Run(s, policyName, record)
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
func told(events []runlog.Event, of runlog.Type) string {
	var out []string
	for _, e := range events {
		if e.Type == of {
			out = append(out, strings.TrimSpace(fmt.Sprint(e.Node, " ", e.Round, " ", e.Participants)))
		}
	}
	return strings.Join(out, "; ")
}

const three = `workers: [{id: 0, inner_step_mean: 1000}, {id: 1, inner_step_mean: 1000}, {id: 2, inner_step_mean: 1000}]
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
			if got := told(events, runlog.ReduceAbort); got != c.aborted || !sum.Complete || len(sum.Evicted)+len(sum.Diverged) > 0 {
				t.Errorf("%+v: aborted %s, complete %t, evicted %v, diverged %v", c, got, sum.Complete, sum.Evicted, sum.Diverged)
			}
			var ids []int64
			for _, e := range events {
				if e.Type == runlog.ReduceStart {
					ids = append(ids, e.Reason.QuorumID)
				}
			}
			if c.policy == "torchft" && (ids[0] != 1 || slices.Max(ids) != 2) {
				t.Errorf("%+v: quorums %v", c, ids)
			}
			healed := told(events, runlog.FetchStart)
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
		i := slices.IndexFunc(events, func(e runlog.Event) bool { return e.Type == runlog.ReduceStart && e.Round == 3 })
		at := events[i].T + 1
		sum, events := played(t, links, "torchft", three+fmt.Sprintf("injects: [{op: FailReduce, id: 1, at: %d}]", at))
		if got := told(events, runlog.ReduceAbort); got != "3 [0 1 2]" || !sum.Complete {
			t.Errorf("aborted %s, complete %t", got, sum.Complete)
		}
	})
}
