package resolved_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/randscenario"
	"testbed/internal/rapidtest"
	"testbed/policy"
	"testbed/scenarios"
	"testbed/scenarios/faults"
	"testbed/train/work"
)

// TestWhomTheScenarioMadeSlow asks for all workers at single moments.
func TestWhomTheScenarioMadeSlow(t *testing.T) {
	plain := func(n int, change func(*scenarios.Scenario)) *scenarios.Scenario {
		s := &scenarios.Scenario{InnerSteps: 2}
		for id := range policy.ID(n) {
			s.Workers = append(s.Workers, scenarios.Worker{ID: id, InnerStepMean: 1000})
		}
		change(s)
		return s
	}
	on := func(op faults.Op, id policy.ID, at policy.Time, factor ...float64) faults.Inject {
		in := faults.Inject{Op: op, ID: &id, At: at}
		if len(factor) > 0 {
			in.Factor = &factor[0]
		}
		return in
	}
	injects := plain(4, func(s *scenarios.Scenario) {
		s.Workers[2].JoinAt = 500
		s.Injects = []faults.Inject{on(faults.Slow, 1, 100, 10), on(faults.Slow, 2, 500, 3), on(faults.Restore, 1, 900), on(faults.Slow, 3, 100, 1.4),
			on(faults.Pause, 0, 700), on(faults.Resume, 0, 800)}
	})
	mixed, err := scenarios.Load("mixed_gpus")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		s    *scenarios.Scenario
		at   policy.Time
		want []policy.ID
	}{
		{"before the injects", injects, 99, nil},
		{"a Slow, and one too small to count", injects, 100, []policy.ID{1}},
		{"a Slow at the join comes after the first step has begun", injects, 500, []policy.ID{1}},
		{"and then counts", injects, 501, []policy.ID{1, 2}},
		{"a Pause", injects, 700, []policy.ID{0, 1, 2}},
		{"after a Resume", injects, 800, []policy.ID{1, 2}},
		{"after a Restore", injects, 900, []policy.ID{2}},
		{"a slow class", mixed, 0, []policy.ID{6, 7}},
		{"slow by its mean", plain(3, func(s *scenarios.Scenario) { s.Workers[1].InnerStepMean = 1501 }), 0, []policy.ID{1}},
		{"not slow enough by its mean", plain(3, func(s *scenarios.Scenario) { s.Workers[1].InnerStepMean = 1500 }), 0, nil},
		{"one of two", plain(2, func(s *scenarios.Scenario) { s.Workers[1].InnerStepMean = 1600 }), 0, []policy.ID{1}},
		{"most are slow, and so nobody", plain(3, func(s *scenarios.Scenario) { s.Workers[0].InnerStepMean = 1 }), 0, nil},
		{"one region has its busy hour", plain(3, func(s *scenarios.Scenario) {
			s.Work = &work.Spec{Diurnal: &work.Diurnal{Amplitude: 0.5, Period: 1000}, Classes: []work.Class{{Name: "east", IDs: []policy.ID{2}, Factor: 1, Phase: 0.5}}}
		}), 750, []policy.ID{2}},
	} {
		setup := c.s.Setup()
		var got []policy.ID
		for place, id := range setup.Workers {
			if setup.Slow(place, c.at) {
				got = append(got, id)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: at %d slow are %v, want %v", c.name, c.at, got, c.want)
		}
	}
}

// TestTheTruthDoesNotDependOnTheQuestions compares answers to questions in any
// order with those of somebody who has never been asked before.
func TestTheTruthDoesNotDependOnTheQuestions(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		s := randscenario.Draw(t)
		if rapid.Bool().Draw(t, "work") {
			s.Work = &work.Spec{
				Noise:   &work.Noise{SlowFactor: 3, MeanOK: 3000, MeanSlow: 1000},
				Thermal: &work.Thermal{SlowFactor: 1.3, Heat: 2000, Cool: 700},
				Diurnal: &work.Diurnal{Amplitude: 0.4, Period: 9000},
			}
		}
		asked := s.Setup()
		for range 40 {
			place, at := rapid.IntRange(0, len(s.Workers)-1).Draw(t, "place"), policy.Time(rapid.IntRange(0, 25_000).Draw(t, "at"))
			if got, want := asked.Slow(place, at), s.Setup().Slow(place, at); got != want {
				t.Fatalf("worker at place %d slow at %d: %v, asked for the first time %v", place, at, got, want)
			}
		}
	})
}
