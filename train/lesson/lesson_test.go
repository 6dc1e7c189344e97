package lesson_test

import (
	"math"
	"strings"
	"testing"

	"testbed/experiment"
	"testbed/runlog"
	"testbed/scenarios"
	"testbed/scenarios/learning"
	"testbed/train/lesson"
)

// played simulates a scenario of the library with a small model in it, and
// returns its events, and the hashes of its outer states.
func played(t *testing.T, name, policyName, network string, set ...string) (*scenarios.Scenario, runlog.Summary, []runlog.Event) {
	t.Helper()
	s, err := scenarios.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	s.Train = &learning.Spec{Task: learning.CharLM, Model: learning.Model{Layers: 1, Width: 8, Heads: 2, Context: 8, Batch: 2}}
	s.Real.Parameters = s.Train.Parameters()
	play, err := experiment.NewSimulator(network, nil)
	if err != nil {
		t.Fatal(err)
	}
	var events []runlog.Event
	sum, err := play.Trained("")(s, policyName, func(e runlog.Event) { events = append(events, e) })
	if err != nil {
		t.Fatalf("%s under %s: %v", name, policyName, err)
	}
	return s, sum, events
}

// TestEveryScenarioLearns plays the library with learning: every round has a
// hash and losses, and the decisions are those without it.
func TestEveryScenarioLearns(t *testing.T) {
	all, err := scenarios.Library()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if len(s.Workers)*s.TargetOuterSteps*s.InnerSteps > 3000 {
			continue
		}
		for _, network := range []string{experiment.NetworkChurn, experiment.NetworkLinks} {
			_, sum, _ := played(t, s.Name, scenarios.Straggler, network)
			seen := map[string]bool{}
			for _, r := range sum.Rounds {
				if seen[r.ModelHash] || r.ModelHash == "" || r.Loss == nil || r.Loss.Validation == nil || r.Loss.Train == nil {
					t.Errorf("%s on %s: round %d has %+v", s.Name, network, r.Round, r)
				}
				seen[r.ModelHash] = true
			}
			if sum.TokensSeen == nil || *sum.TokensSeen == 0 || len(sum.TimeToLoss) == 0 {
				t.Errorf("%s on %s: tokens %v, times to losses %v", s.Name, network, sum.TokensSeen, sum.TimeToLoss)
			}
		}
	}
}

// TestSameDecisionsSameModel: on either network nothing happens to the
// homogeneous workers, and so they learn the same, bit by bit, however long it
// takes.
func TestSameDecisionsSameModel(t *testing.T) {
	_, churn, _ := played(t, "homogeneous", scenarios.Baseline, experiment.NetworkChurn)
	_, links, _ := played(t, "homogeneous", scenarios.Straggler, experiment.NetworkLinks)
	if churn.WallClock == links.WallClock || len(churn.Rounds) != len(links.Rounds) {
		t.Fatalf("%d µs and %d rounds, %d µs and %d rounds", churn.WallClock, len(churn.Rounds), links.WallClock, len(links.Rounds))
	}
	for i, r := range churn.Rounds {
		if l := links.Rounds[i]; l.ModelHash != r.ModelHash || *l.Loss.Validation != *r.Loss.Validation {
			t.Errorf("round %d: %s with %v, %s with %v", r.Round, r.ModelHash, *r.Loss.Validation, l.ModelHash, *l.Loss.Validation)
		}
	}
}

// hashes plays what a record teaches, and returns what the states hash to.
func hashes(s *scenarios.Scenario, events []runlog.Event) (all []string, err error) {
	l, err := lesson.New(s)
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		if e.Type == runlog.State || e.Type == runlog.Validated {
			continue // what was learnt when it was recorded
		}
		learnt, err := l.Add(&e)
		if err != nil {
			return nil, err
		}
		for _, k := range learnt {
			if k.Type == runlog.State {
				all = append(all, k.Hash)
			}
		}
	}
	return all, nil
}

// TestARecordHasTheLesson: what was learnt follows from the record, also where
// workers told of their inner steps only after the outer step; and another record
// teaches something else.
func TestARecordHasTheLesson(t *testing.T) {
	s, sum, events := played(t, "transient_slow", scenarios.Straggler, experiment.NetworkLinks)
	differs := func(what string, changed []runlog.Event) bool {
		t.Helper()
		got, err := hashes(s, changed)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for i, r := range sum.Rounds {
			if got[i] != r.ModelHash {
				return true
			}
		}
		return false
	}
	if differs("as it is", events) {
		t.Error("the record leads to other states")
	}
	var told, late []runlog.Event // steps come after the next outer step
	for _, e := range events {
		if e.Type == runlog.Step {
			late = append(late, e)
			continue
		}
		told = append(told, e)
		if e.Type == runlog.OuterStep {
			told, late = append(told, late...), nil
		}
	}
	if differs("told late", told) {
		t.Error("the record leads to other states if workers tell late")
	}
	var fewer []runlog.Event
	for _, e := range events {
		if e.Type == runlog.ReduceStart && e.Round == 2 && len(e.Participants) > 1 {
			e.Participants = e.Participants[1:]
		}
		fewer = append(fewer, e)
	}
	if !differs("with one less", fewer) {
		t.Error("a participant less changes nothing")
	}
}

// TestDivergence is told by who has learnt nothing more.
func TestDivergence(t *testing.T) {
	s, err := scenarios.Load("homogeneous")
	if err != nil {
		t.Fatal(err)
	}
	s.Train = &learning.Spec{Task: learning.CharLM, Model: learning.Model{Layers: 1, Width: 8, Heads: 2, Context: 8, Batch: 2}, Outer: learning.Outer{Rate: new(math.Inf(1))}}
	s.Real.Parameters = s.Train.Parameters()
	play, err := experiment.NewSimulator(experiment.NetworkChurn, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := play.Trained("")(s, scenarios.Baseline, nil); err == nil || !strings.Contains(err.Error(), "diverged") {
		t.Errorf("error %v", err)
	}
}
