package sim_test

import (
	"slices"
	"strings"
	"testing"

	"testbed/record"
	"testbed/scenarios"
)

const voters = `
seed: 1
inner_steps: 2
target_outer_steps: 6
horizon: 200000
heartbeat_period: 1000
heartbeat_miss_threshold: 5
base_latency: 100
bandwidth_bpus: 10
state_bytes: 1000
`

func voted(t *testing.T, text, policyName string) (*scenarios.Scenario, []record.Event) {
	t.Helper()
	s, err := scenarios.Parse("voters.yaml", []byte(voters+text))
	if err != nil {
		t.Fatal(err)
	}
	var events []record.Event
	if _, err := onChurn(s, policyName, func(e record.Event) { events = append(events, e) }); err != nil {
		t.Fatal(err)
	}
	return s, events
}

// TestASplitVoteAgain: who voted against an outer step does so in the replay.
func TestASplitVoteAgain(t *testing.T) {
	s, note := voted(t, `workers: [{id: 0, inner_step_mean: 1000}, {id: 1, inner_step_mean: 1000}, {id: 2, inner_step_mean: 1000}]
injects: [{op: FailReduce, id: 1, at: 3000, alone: true}, {op: FailReduce, id: 2, at: 9000}]
`, "torchft")
	steps := func(events []record.Event) (took [][]int) {
		for _, e := range events {
			if e.Type == record.OuterStep || e.Type == record.ReduceAbort {
				one := []int{int(e.T), e.Round}
				for _, id := range e.Participants {
					one = append(one, int(id))
				}
				took = append(took, one)
			}
		}
		return took
	}
	was, is := steps(note), steps(replayed(t, s, note, "torchft"))
	if len(was) != 8 || !slices.EqualFunc(was, is, slices.Equal) {
		t.Errorf("outer steps and aborts %v, recorded %v", is, was)
	}
	sameDecisions(t, s, note, "torchft")
}

// TestTwoLineagesAreRefused: a replay knows one.
func TestTwoLineagesAreRefused(t *testing.T) {
	s, note := voted(t, `injects: []
workers: [{id: 0, inner_step_mean: 1000}, {id: 1, inner_step_mean: 1000, lighthouse: 1}]
`, "torchft")
	if _, err := newRecording(s, "torchft", note); err == nil || !strings.Contains(err.Error(), "two lineages of outer states existed at the same time") {
		t.Error(err)
	}
}
