package node

import (
	"math"
	"slices"
	"testing"
	"time"

	"testbed/experiment"
	"testbed/internal/memnet"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/sim"
	"testbed/train/work"
)

// TestWorkersDrawWhatTheSimulatorDraws: with a section `work` the same inner
// step takes the same time in both simulators and in the real worker, but for
// the time of day at which it begins.
func TestWorkersDrawWhatTheSimulatorDraws(t *testing.T) {
	s := worldScenario(t, 4)
	s.Work = &work.Spec{
		Steps:   work.Steps{Distribution: work.LogNormal, Sigma: new(0.4)},
		Classes: []work.Class{{Name: "old", IDs: []policy.ID{1, 3}, Factor: 1.7}},
		Diurnal: &work.Diurnal{Amplitude: 0.5, Period: 30_000},
	}
	type step struct {
		node        string
		round, step int
	}
	// undo takes the time of day out of a duration.
	undo := func(e record.Event) float64 {
		w := slices.IndexFunc(s.Workers, func(w scenarios.Worker) bool { return w.ID.Node() == e.Node })
		return float64(e.Duration) / work.NewSpeed(s.Work, s.Seed, s.Workers[w].ID).At(e.T-e.Duration)
	}
	took := map[step]float64{}
	note := func(e record.Event) {
		if e.Type == record.Step {
			took[step{e.Node, e.Round, e.Step}] = undo(e)
		}
	}
	compare := func(what string, events []record.Event) {
		n := 0
		for _, e := range events {
			if e.Type != record.Step {
				continue
			}
			n++
			if want := took[step{e.Node, e.Round, e.Step}]; math.Abs(undo(e)-want) > 0.01*want {
				t.Errorf("%s: step %d of round %d of %s would take %.0f µs at an average hour, in the simulator %.0f", what, e.Step, e.Round, e.Node, undo(e), want)
			}
		}
		if want := len(s.Workers) * s.InnerSteps * s.TargetOuterSteps; n != want || len(took) != want {
			t.Errorf("%s: %d steps, %d in the simulator, want %d", what, n, len(took), want)
		}
	}
	if _, err := experiment.OnLinks(s, scenarios.Baseline, sim.Costs{}, note); err != nil {
		t.Fatal(err)
	}
	var churns []record.Event
	if _, err := experiment.OnChurn(s, scenarios.Baseline, func(e record.Event) { churns = append(churns, e) }); err != nil {
		t.Fatal(err)
	}
	compare("on churn's network", churns)
	err := memnet.TryBubble(t, func(t *testing.T) {
		_, events := newWorld(t, s).play(scenarios.Baseline, time.Hour)
		compare("real workers", events)
	})
	if err != nil {
		t.Error(err)
	}
}
