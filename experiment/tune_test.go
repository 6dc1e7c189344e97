package experiment_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"testbed/experiment"
	"testbed/experiment/tune"
	"testbed/record"
	"testbed/scenarios"
)

func tuning(t *testing.T, f *fake) experiment.Tuning {
	t.Helper()
	o := experiment.Tuning{Run: load(t, "persistent_straggler"), Policies: []string{"baseline", "backup", "straggler:sideline_limit=5"},
		Points: 40, Seeds: 2, HeldOut: 3, Best: 2, Repeat: 2, Simulate: links(t), Progress: func(int, int) {}}
	if f != nil {
		o.Real = f.play
	}
	return o
}

// TestTune: nothing of the front is beaten by a default, what was chosen is
// played with seeds that the search has not seen, and the same search finds the
// same.
func TestTune(t *testing.T) {
	var f fake
	o := tuning(t, &f)
	done, all := 0, 0
	o.Progress = func(d, a int) { done, all = max(done, d), a }
	got, err := experiment.Tune(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Seeds, []uint64{42, 43}) || !slices.Equal(got.HeldOut, []uint64{44, 45, 46}) || got.Points < 20 || got.Points > 40 || done != all {
		t.Errorf("seeds %v and %v, %d points, %d of %d simulations", got.Seeds, got.HeldOut, got.Points, done, all)
	}
	for _, d := range got.Defaults {
		for _, p := range got.Front {
			if d.Complete && d.WallClock <= p.WallClock && d.Lost <= p.Lost && d.Policy != p.Policy && (d.WallClock < p.WallClock || d.Lost < p.Lost) {
				t.Errorf("%+v beats %+v of the front", d, p)
			}
		}
	}
	if len(got.Chosen) != min(2, len(got.Front)) || got.Chosen[0] != got.Front[0].Policy {
		t.Errorf("chosen %v of %+v", got.Chosen, got.Front)
	}
	if got.Comparison.Policies[0] != "baseline" || len(got.Comparison.Repeats) != 1 {
		t.Errorf("compared %v, %d repeats", got.Comparison.Policies, len(got.Comparison.Repeats))
	}
	for _, r := range f.runs {
		if r.Scenario.Seed != 44 && r.Scenario.Seed != 45 {
			t.Errorf("%s was played with the seed %d", r.Policy, r.Scenario.Seed)
		}
		if name := tune.PolicyOf(r.Policy); name == "straggler" && !strings.Contains(r.Policy, "sideline_limit=5") {
			t.Errorf("played %s, not as given", r.Policy)
		}
	}
	if kept := names(t, got.Dir); !slices.Equal(kept, []string{"chosen", experiment.PointsFile, experiment.TuningFile}) {
		t.Errorf("kept %q", kept)
	}
	o.Run.Dir, o.Real = filepath.Join(t.TempDir(), "again"), nil
	again, err := experiment.Tune(t.Context(), o)
	if err != nil || !slices.Equal(again.Front, got.Front) || again.Comparison.Real != nil {
		t.Errorf("searched again: %v, front %+v, first %+v", err, again.Front, got.Front)
	}
	var out strings.Builder
	if err := experiment.WriteTuned(&out, o.Run.Scenario, again); err != nil || !strings.Contains(out.String(), "with the parameters of the scenario") {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestTuneFails(t *testing.T) {
	o := tuning(t, nil)
	o.Policies = []string{"baseline", "baseline"}
	if _, err := experiment.Tune(t.Context(), o); err == nil || !strings.Contains(err.Error(), "baseline is in the list twice") {
		t.Errorf("a policy twice: %v", err)
	}
	o = tuning(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := experiment.Tune(ctx, o); !errors.Is(err, context.Canceled) || got == nil || got.Dir == "" {
		t.Errorf("cancelled: %v, %+v", err, got)
	}
	o = tuning(t, nil)
	o.Simulate = func(*scenarios.Scenario, string, func(record.Event)) (record.Summary, error) {
		return record.Summary{}, errBroken
	}
	if _, err := experiment.Tune(t.Context(), o); !errors.Is(err, errBroken) {
		t.Errorf("a simulator that fails: %v", err)
	}
	o = tuning(t, nil)
	o.Simulate = func(*scenarios.Scenario, string, func(record.Event)) (record.Summary, error) {
		return record.Summary{Work: &record.Work{}}, nil
	}
	if _, err := experiment.Tune(t.Context(), o); err == nil || !strings.Contains(err.Error(), "at every point that was simulated with the held-out seeds, at least one run ended before its last outer step") {
		t.Errorf("runs that do not end: %v", err)
	}
	var f fake
	f.spoil = func(int, experiment.Run, *record.Summary) error { return errors.ErrUnsupported }
	o = tuning(t, &f)
	if got, err := experiment.Tune(t.Context(), o); !errors.Is(err, errors.ErrUnsupported) || got == nil {
		t.Errorf("no sandbox: %v", err)
	}
}
