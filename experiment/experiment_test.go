package experiment_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"testbed/experiment"
	"testbed/experiment/calibrate"
	"testbed/experiment/sweep"
	"testbed/record"
	"testbed/report"
	"testbed/report/runs"
	"testbed/scenarios"
	"testbed/scenarios/convert"
	"testbed/shaping/fidelity"
)

var errBroken = errors.New("broken")

// fake plays runs by simulating them, and keeps what it was asked for.
type fake struct {
	runs      []experiment.Run
	simulator experiment.Simulator // experiment.OnChurn if nil
	// spoil changes the result of a run, by its number from 0.
	spoil func(n int, r experiment.Run, s *record.Summary) error
}

func (f *fake) play(_ context.Context, r experiment.Run) (record.Summary, error) {
	n := len(f.runs)
	f.runs = append(f.runs, r)
	dir, err := record.CreateDir(r.Dir)
	if err != nil {
		return record.Summary{}, err
	}
	if f.simulator == nil {
		f.simulator = experiment.OnChurn
	}
	var events bytes.Buffer
	w := record.NewWriter(&events)
	sum, err := f.simulator(r.Scenario, r.Policy, func(e record.Event) {
		if e.Run != nil {
			e.Run.World, e.Run.Links, e.Run.TimeScale = record.Real, cmp.Or(r.Links, "user"), r.Scenario.Real.TimeScale
		}
		w.Write(e)
	})
	if err := errors.Join(err, w.Flush(), dir.WriteFile(record.EventsFile, events.Bytes())); err != nil {
		return sum, err
	}
	sum.World, sum.Links, sum.TimeScale, sum.Fidelity.Verdict = record.Real, cmp.Or(r.Links, "user"), r.Scenario.Real.TimeScale, fidelity.Valid
	if f.spoil != nil {
		if err := f.spoil(n, r, &sum); err != nil {
			return sum, err
		}
	}
	var fidelity struct {
		Rounds []runs.RoundVerdict `json:"rounds"`
	}
	for _, round := range sum.Rounds {
		fidelity.Rounds = append(fidelity.Rounds, runs.RoundVerdict{Round: round.Round, Verdict: sum.Fidelity.Verdict})
	}
	return sum, errors.Join(dir.WriteScenario(r.File, r.Source, nil), dir.WriteJSON(record.SummaryFile, sum), dir.WriteJSON("fidelity.json", fidelity))
}

func spoiled(s *record.Summary, reason string) {
	s.Fidelity = fidelity.Verdict{Verdict: fidelity.Invalid, Reasons: []string{reason, "another reason"}}
}

func load(t *testing.T, name string) experiment.Run {
	t.Helper()
	source, err := scenarios.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := source.Parse()
	if err != nil {
		t.Fatal(err)
	}
	return experiment.Run{Scenario: s, File: source.File, Source: source.Text, Dir: filepath.Join(t.TempDir(), "runs")}
}

func comparison(t *testing.T, repeat int, f *fake) experiment.Comparison {
	t.Helper()
	return experiment.Comparison{Run: load(t, "persistent_straggler"), Policies: scenarios.PolicyNames, Repeat: repeat, Real: f.play, Churn: experiment.OnChurn, Links: links(t)}
}

func links(t *testing.T) experiment.Simulator {
	t.Helper()
	play, err := experiment.NewSimulator(experiment.NetworkLinks, nil)
	if err != nil {
		t.Fatal(err)
	}
	return play
}

// wantInvalid expects the error about a result that may not be used.
func wantInvalid(t *testing.T, err error, policyName string, seed uint64, reason string) {
	t.Helper()
	invalid, ok := errors.AsType[*experiment.InvalidError](err)
	if !ok || *invalid != (experiment.InvalidError{Policy: policyName, Seed: seed, Reason: reason}) {
		t.Errorf("got %v, want the result under %s with seed %d: %s", err, policyName, seed, reason)
	}
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestUsable(t *testing.T) {
	good := record.Summary{Policy: "baseline", Seed: 3, Complete: true, OuterSteps: 5, BitIdentical: new(true), Fidelity: fidelity.Verdict{Verdict: fidelity.Suspect}}
	if err := experiment.Usable(good, good); err != nil {
		t.Error(err)
	}
	incomplete, diverged, busy, unfounded := good, good, good, good
	incomplete.Complete = false
	diverged.BitIdentical = new(false)
	spoiled(&busy, "timers late")
	unfounded.Fidelity.Verdict = fidelity.Invalid
	for reason, bad := range map[string]record.Summary{
		"the run ended early, after 5 outer steps":                             incomplete,
		"workers ended a round with different bytes":                           diverged,
		"the emulation did not match its plan (fidelity invalid): timers late": busy,
		"the emulation did not match its plan (fidelity invalid)":              unfounded,
	} {
		wantInvalid(t, experiment.Usable(good, bad, incomplete), "baseline", 3, reason)
	}
}

// TestCompareRepeats: the pairs have consecutive seeds, the same in both
// worlds, and what is kept in the directory can be read as a comparison.
func TestCompareRepeats(t *testing.T) {
	var f fake
	o := comparison(t, 3, &f)
	c, err := experiment.Compare(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	for _, r := range f.runs {
		asked = append(asked, fmt.Sprintf("%s %d %s", r.Policy, r.Scenario.Seed, filepath.Base(r.Dir)))
	}
	want := []string{"baseline 42 real-baseline-1", "straggler 42 real-straggler-1", "baseline 43 real-baseline-2",
		"straggler 43 real-straggler-2", "baseline 44 real-baseline-3", "straggler 44 real-straggler-3"}
	if !slices.Equal(asked, want) {
		t.Errorf("played %q, want %q", asked, want)
	}
	real := append([]report.Set{c.Real}, c.Repeats...)
	churn, links := append([]report.Set{c.Sim}, c.SimRepeats...), append([]report.Set{c.SimLinks}, c.SimLinksRepeats...)
	if len(real) != 3 || len(churn) != 3 || len(links) != 3 {
		t.Fatalf("%d real pairs, %d and %d simulated", len(real), len(churn), len(links))
	}
	for n := range real {
		for _, pair := range []report.Set{real[n], churn[n], links[n]} {
			for _, name := range scenarios.PolicyNames {
				if s := pair[name]; s.Seed != 42+uint64(n) || s.Policy != name {
					t.Errorf("pair %d has under %s a result of %s with seed %d", n, name, s.Policy, s.Seed)
				}
			}
		}
	}
	if o.Run.Scenario.Seed != 42 {
		t.Errorf("the caller's scenario has seed %d", o.Run.Scenario.Seed)
	}
	rec, err := runs.Read(o.Run.Dir)
	if err != nil || len(rec.Runs) != 18 {
		t.Fatalf("the record: %v", err)
	}
	if rec.Unsimulated() != nil {
		t.Errorf("the record lacks simulated %v", rec.Unsimulated())
	}
}

// TestCompareReportsTheFirstInvalidResult, and has the result nevertheless.
func TestCompareReportsTheFirstInvalidResult(t *testing.T) {
	f := fake{spoil: func(n int, _ experiment.Run, s *record.Summary) error {
		if n >= 3 { // straggler with the second seed, and all after it
			spoiled(s, fmt.Sprintf("reason %d", n))
		}
		return nil
	}}
	o := comparison(t, 3, &f)
	c, err := experiment.Compare(t.Context(), o)
	wantInvalid(t, err, "straggler", 43, "the emulation did not match its plan (fidelity invalid): reason 3")
	if c == nil || len(c.Repeats) != 2 || !slices.Contains(names(t, o.Run.Dir), "comparison.json") {
		t.Errorf("result %+v, directory %q", c, names(t, o.Run.Dir))
	}
}

// TestCompareFails: a partial record is kept and named, but where nothing can
// run nothing is left.
func TestCompareFails(t *testing.T) {
	for want, failure := range map[string]error{"kept": errBroken, "removed": fmt.Errorf("no namespaces: %w", errors.ErrUnsupported)} {
		f := fake{spoil: func(n int, _ experiment.Run, _ *record.Summary) error {
			if n == 1 {
				return failure
			}
			return nil
		}}
		o := comparison(t, 2, &f)
		c, err := experiment.Compare(t.Context(), o)
		kept := names(t, o.Run.Dir)
		if !errors.Is(err, failure) || len(f.runs) != 2 || (c != nil) != (want == "kept") || (c != nil) != slices.Contains(kept, "real-baseline-1") {
			t.Errorf("want the record %s: %v after %d runs, result %v, %q", want, err, len(f.runs), c, kept)
		}
		if c != nil && c.Dir != o.Run.Dir {
			t.Errorf("the record is said to be in %s, and is in %s", c.Dir, o.Run.Dir)
		}
	}
}

// TestOnlyAnEmptyDirectoryIsPlayedInto: no result overwrites another.
func TestOnlyAnEmptyDirectoryIsPlayedInto(t *testing.T) {
	var f fake
	o := comparison(t, 1, &f)
	dir := filepath.Dir(o.Run.Dir)
	if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	o.Run.Dir = dir
	if c, err := experiment.Compare(t.Context(), o); err == nil || c != nil {
		t.Errorf("compared into a directory that is not empty: %v", err)
	}
	if _, _, err := experiment.Calibrate(t.Context(), experiment.Calibration{Dir: dir, Real: f.play, Repeat: 1}); err == nil {
		t.Error("calibrated into a directory that is not empty")
	}
	if len(f.runs) != 0 || !slices.Equal(names(t, dir), []string{"mine"}) {
		t.Errorf("%d runs, %q", len(f.runs), names(t, dir))
	}
}

// TestCompareInOneWorld: a world that is not wanted is not played.
func TestCompareInOneWorld(t *testing.T) {
	var f fake
	o := comparison(t, 2, &f)
	o.Real = nil
	c, err := experiment.Compare(t.Context(), o)
	if err != nil || len(f.runs) != 0 || c.Real != nil || len(c.SimRepeats) != 1 || len(c.SimLinksRepeats) != 1 || c.SimRepeats[0]["baseline"].Seed != 43 {
		t.Errorf("simulated only: %v, %d real runs, %+v", err, len(f.runs), c)
	}
	for _, name := range names(t, o.Run.Dir) {
		if strings.HasPrefix(name, "real") {
			t.Errorf("simulated only, and there is %s", name)
		}
	}
	rec, err := runs.Read(o.Run.Dir)
	if err != nil || !slices.Equal(rec.Policies(), scenarios.PolicyNames) || len(rec.Runs) != 8 {
		t.Errorf("read again: %v, %+v", err, rec)
	}

	o = comparison(t, 1, &f)
	o.Churn, o.Links, o.Policies = nil, nil, []string{"straggler", "baseline"}
	if c, err = experiment.Compare(t.Context(), o); err != nil || len(f.runs) != 2 || c.Sim != nil || c.SimLinks != nil || c.Speedup.Real.(float64) >= 1 {
		t.Errorf("real only: %v, %d real runs, %+v", err, len(f.runs), c)
	}
	if rec, err = runs.Read(o.Run.Dir); err != nil || !slices.Equal(rec.Policies(), o.Policies) {
		t.Errorf("read again: %v, the policies are %v and not in the order given", err, rec.Policies())
	}
}

// TestPoliciesThatCannotBeCompared: nothing is played and nothing left.
func TestPoliciesThatCannotBeCompared(t *testing.T) {
	for want, policies := range map[string][]string{"the list is empty": {}, "in the list twice": {"baseline", "straggler", "baseline"}, "nobody": {"baseline", "nobody"}} {
		var f fake
		o := comparison(t, 1, &f)
		o.Policies = policies
		_, err := experiment.Compare(t.Context(), o)
		if bad, ok := errors.AsType[*scenarios.Error](err); !ok || !strings.Contains(bad.Error(), want) {
			t.Errorf("%q: %v, want %q", policies, err, want)
		}
		if len(f.runs) != 0 || len(names(t, o.Run.Dir)) != 0 {
			t.Errorf("%q: %d runs, %q", policies, len(f.runs), names(t, o.Run.Dir))
		}
	}
}

func chosen(t *testing.T, names ...string) []calibrate.Experiment {
	t.Helper()
	some, err := calibrate.Named(names)
	if err != nil {
		t.Fatal(err)
	}
	return some
}

// TestCalibrateRetries: a run that may not be used is removed and made again,
// so many times; what the last one left stays.
func TestCalibrateRetries(t *testing.T) {
	f := fake{spoil: func(n int, r experiment.Run, s *record.Summary) error {
		if strings.Contains(r.Dir, "workers-2") || n == 0 {
			spoiled(s, fmt.Sprintf("reason %d", n))
		}
		return nil
	}}
	o := experiment.Calibration{Dir: filepath.Join(t.TempDir(), "c"), Experiments: chosen(t, "payload-20000", "workers-2"), Repeat: 2, Retries: 1, Real: f.play}
	if _, _, err := experiment.Calibrate(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	var titles []string
	for _, r := range f.runs {
		titles = append(titles, r.Title)
	}
	want := []string{"run 1 of 4: payload-20000", "  the run is repeated: the emulation did not match its plan (fidelity invalid): reason 0", "run 2 of 4: workers-2", "  the run is repeated: the emulation did not match its plan (fidelity invalid): reason 2",
		"run 3 of 4: payload-20000-2", "run 4 of 4: workers-2-2", "  the run is repeated: the emulation did not match its plan (fidelity invalid): reason 5"}
	if !slices.Equal(titles, want) {
		t.Errorf("played %q\nwant %q", titles, want)
	}
	if kept := names(t, o.Dir); !slices.Equal(kept, []string{"calibration.json", "payload-20000", "payload-20000-2", "workers-2", "workers-2-2"}) {
		t.Errorf("kept %q", kept)
	}
	for name, want := range map[string]fidelity.Level{"payload-20000": fidelity.Valid, "workers-2": fidelity.Invalid} {
		r, err := calibrate.ReadRun(filepath.Join(o.Dir, name))
		if err != nil || r.Summary.Fidelity.Verdict != want {
			t.Errorf("%s: %v, verdict %s, want %s", name, err, r.Summary.Fidelity.Verdict, want)
		}
	}
}

// TestCalibrate finds the cost that the fake's runs have, and finds it again in
// the records that it has left.
func TestCalibrate(t *testing.T) {
	late := &calibrate.Calibration{Costs: calibrate.CostEstimates{Step: calibrate.Estimate{Value: 3}, Efficiency: calibrate.Estimate{Value: 1}}}
	play, err := experiment.NewSimulator(experiment.NetworkLinks, late)
	if err != nil {
		t.Fatal(err)
	}
	f := fake{simulator: play}
	r := load(t, "homogeneous")
	o := experiment.Calibration{Dir: r.Dir, Experiments: chosen(t, "payload-20000", "workers-2"), Repeat: 1, Real: f.play,
		Rewrite: []experiment.Source{{Scenario: r.Scenario, Text: r.Source, To: convert.YAML}, {Scenario: r.Scenario, Text: r.Source, To: convert.Churn}}}
	c, files, err := experiment.Calibrate(t.Context(), o)
	if err != nil || math.Abs(c.Costs.Step.Value-3) > 1e-3 || len(c.Runs) != 2 {
		t.Fatalf("%v: %+v", err, c)
	}
	if want := []string{filepath.Join(r.Dir, "calibration.json"), filepath.Join(r.Dir, "homogeneous.yaml"), filepath.Join(r.Dir, "homogeneous.json")}; !slices.Equal(files, want) {
		t.Errorf("wrote %q, want %q", files, want)
	}
	var text strings.Builder
	if err := c.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for i, file := range files[1:] {
		s, err := scenarios.Load(file)
		if err != nil {
			t.Fatalf("the calibrated scenario: %v", err)
		}
		p := c.Scenarios[i]
		if p.Scenario != s.Name || p.BaseLatency != s.BaseLatency || p.BandwidthBpus != s.BandwidthBpus || p.StateBytes != s.StateBytes || p.Warnings() != nil {
			t.Errorf("%s is %+v, and the calibration has %+v", file, s, p)
		}
		if line := fmt.Sprintf(" %d, %d ", p.BandwidthBpus, p.StateBytes); !strings.Contains(text.String(), line) {
			t.Errorf("there is no %q in\n%s", line, text.String())
		}
	}
	c.Machine.Processor = "another one"
	if err := record.Dir(r.Dir).WriteJSON(experiment.CalibrationFile, c); err != nil {
		t.Fatal(err)
	}
	o.Real, o.Dir, o.Refit = nil, "", []string{r.Dir}
	again, _, err := experiment.Calibrate(t.Context(), o)
	if err != nil || again.Costs != c.Costs || again.Machine != c.Machine || len(f.runs) != 2 {
		t.Errorf("fitted again: %v, %+v after %d runs", err, again, len(f.runs))
	}
}

// TestCalibrateAScenario runs it instead of the experiments, and fits the runs of
// several directories together.
func TestCalibrateAScenario(t *testing.T) {
	play, err := experiment.NewSimulator(experiment.NetworkLinks, &calibrate.Calibration{Costs: calibrate.CostEstimates{
		ReduceByte: calibrate.Estimate{Value: 20}, Efficiency: calibrate.Estimate{Value: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for _, name := range []string{"homogeneous", "graceful_leave"} {
		f := fake{simulator: play}
		o := experiment.Calibration{Dir: filepath.Join(t.TempDir(), "c"), Policy: scenarios.Straggler, Repeat: 2, Real: f.play}
		if err := o.Plan([]string{name}, nil, ""); err != nil {
			t.Fatal(err)
		}
		c, files, err := experiment.Calibrate(t.Context(), o)
		if err != nil || len(c.Runs) != 2 || c.Runs[1].Name != name+"-2" || c.Runs[0].Policy != scenarios.Straggler || len(files) != 2 {
			t.Fatalf("%v: %+v, files %q", err, c, files)
		}
		if b := c.Costs.ReduceByte.Value; math.Abs(b-20) > 2 {
			t.Errorf("%s: a byte costs %v ns, not 20; not told: %+v", name, b, c.Untold)
		}
		dirs = append(dirs, o.Dir)
	}
	o := experiment.Calibration{Dir: filepath.Join(t.TempDir(), "both"), Policy: scenarios.Baseline, Repeat: 1, Refit: dirs[:1]}
	if err := o.Plan([]string{dirs[1], "late_join"}, nil, convert.Churn); err != nil {
		t.Fatal(err)
	}
	c, files, err := experiment.Calibrate(t.Context(), o)
	if err != nil || len(c.Runs) != 4 || math.Abs(c.Costs.ReduceByte.Value-20) > 1 || files[1] != filepath.Join(o.Dir, "late_join.json") {
		t.Errorf("together: %v, %+v, files %q", err, c, files)
	}
}

// TestLatestCalibration: a calibration with all experiments is the one that auto
// finds, and names in its results; one of another machine is refused.
func TestLatestCalibration(t *testing.T) {
	config := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", config)
	t.Setenv("HOME", config) // where other systems keep it
	if _, _, err := experiment.LoadCalibration(experiment.AutoCalibration); err == nil || !strings.Contains(err.Error(), "run testbed calibrate") {
		t.Errorf("none was made: %v", err)
	}
	for _, plan := range []struct {
		names, only, refit []string
		whole              bool
	}{
		{whole: true},
		{only: []string{"middle"}},
		{names: []string{"homogeneous"}},
		{refit: []string{t.TempDir()}},
	} {
		o := experiment.Calibration{Policy: scenarios.Baseline, Repeat: 1, Refit: plan.refit}
		if err := o.Plan(plan.names, plan.only, ""); err != nil || o.Whole != plan.whole {
			t.Errorf("%+v: whole %v, %v", plan, o.Whole, err)
		}
	}
	var f fake
	o := experiment.Calibration{Dir: filepath.Join(t.TempDir(), "c"), Experiments: chosen(t, "payload-20000", "workers-2"), Repeat: 1, Real: f.play, Whole: true}
	made, _, err := experiment.Calibrate(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	c, foreign, err := experiment.LoadCalibration(experiment.AutoCalibration)
	if err != nil || len(foreign) > 0 || c.Costs != made.Costs {
		t.Fatalf("%v, %q, %+v", err, foreign, c)
	}
	for _, network := range []string{experiment.NetworkLinks, experiment.NetworkChurn} {
		play, err := experiment.NewSimulator(network, c)
		if err != nil {
			t.Fatal(err)
		}
		s, err := scenarios.Load("homogeneous")
		if err != nil {
			t.Fatal(err)
		}
		sum, err := play(s, scenarios.Baseline, nil)
		if want := (record.Calibration{File: c.File, Made: made.Made}); err != nil || sum.Calibration == nil || *sum.Calibration != want || want.Made == "" {
			t.Errorf("%s: %v, %+v, want %+v", network, err, sum.Calibration, want)
		}
	}
	text, err := os.ReadFile(c.File)
	if err == nil {
		err = os.WriteFile(c.File, bytes.Replace(text, []byte(`"cores": `), []byte(`"cores": 9`), 1), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := experiment.LoadCalibration(experiment.AutoCalibration); err == nil || !strings.Contains(err.Error(), "another number of cores (9") {
		t.Errorf("made with another number of cores: %v", err)
	}
}

func TestCalibrateFails(t *testing.T) {
	for want, failure := range map[string]error{"kept": errBroken, "removed": errors.ErrUnsupported} {
		f := fake{spoil: func(n int, _ experiment.Run, _ *record.Summary) error { return []error{nil, failure}[n] }}
		o := experiment.Calibration{Dir: filepath.Join(t.TempDir(), "c"), Experiments: chosen(t, "payload-20000", "workers-2"), Repeat: 1, Real: f.play}
		_, _, err := experiment.Calibrate(t.Context(), o)
		if kept := names(t, o.Dir); !errors.Is(err, failure) || (want == "kept") != (len(kept) == 2) {
			t.Errorf("want the runs %s: %v, %q", want, err, kept)
		}
	}
}

func TestSweep(t *testing.T) {
	r := load(t, "late_join")
	axis, err := sweep.ParseAxis("inner_steps=1,2")
	if err != nil {
		t.Fatal(err)
	}
	cells, err := sweep.Grid(nil, []sweep.Axis{axis})
	if err != nil {
		t.Fatal(err)
	}
	p := &sweep.Plan{Scenario: r.Scenario, Text: r.Source, World: record.Real, Cells: cells, Seeds: []uint64{7}, Repeats: 1, Policies: scenarios.PolicyNames}
	broken := true
	f := fake{spoil: func(n int, _ experiment.Run, s *record.Summary) error {
		switch {
		case n == 1:
			spoiled(s, "busy")
		case n == 3 && broken:
			return errBroken
		}
		return nil
	}}
	var told []string
	o := experiment.SweepOptions{Dir: r.Dir, Real: f.play, Progress: func(done, points int) { told = append(told, fmt.Sprintf("%d/%d", done, points)) }}
	s, err := experiment.Sweep(t.Context(), p, o)
	if !errors.Is(err, errBroken) || s.Done != 3 || s.Points != 4 || s.Dir != r.Dir {
		t.Fatalf("%v, %d of %d points in %s", err, s.Done, s.Points, s.Dir)
	}
	if r := f.runs[1]; r.Title != "inner_steps=1 seed 7 repeat 1" || r.Policy != scenarios.Straggler || r.Scenario.InnerSteps != 1 || r.Scenario.Seed != 7 || len(r.Source) == 0 {
		t.Errorf("the second run was %+v", r)
	}
	o.Resume, broken = true, false
	s, err = experiment.Sweep(t.Context(), p, o)
	if err != nil || s.Done != 4 || len(f.runs) != 5 { // of an earlier invalid result its row tells
		t.Errorf("resumed: %v, %d points after %d runs", err, s.Done, len(f.runs))
	}
	results, err := sweep.Read(r.Dir)
	if err != nil || len(results.Rows) != 2 || results.Rows[1][0].Dir != "points/"+results.Rows[1][0].Key {
		t.Errorf("the table: %v, %+v", err, results)
	}
	if want := "0/4 1/4 2/4 3/4 3/4 4/4"; strings.Join(told, " ") != want {
		t.Errorf("told %q, want %q", told, want)
	}

	table := filepath.Join(r.Dir, sweep.TableFile)
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	last := text[bytes.LastIndexByte(text[:len(text)-1], '\n')+1:]
	if err := os.WriteFile(table, append(text, last...), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := sweep.Read(r.Dir); err == nil || !strings.Contains(err.Error(), "is already in line 4") {
		t.Errorf("a table with a row twice is read: %v", err)
	}
	if _, err := experiment.Sweep(t.Context(), p, o); err == nil || !strings.Contains(err.Error(), "is already in an earlier line") {
		t.Errorf("a table with a row twice is gone on with: %v", err)
	}

	f = fake{spoil: func(n int, _ experiment.Run, s *record.Summary) error {
		spoiled(s, fmt.Sprint("reason ", n))
		return nil
	}}
	o = experiment.SweepOptions{Dir: filepath.Join(t.TempDir(), "again"), Real: f.play, Progress: func(int, int) {}}
	s, err = experiment.Sweep(t.Context(), p, o)
	wantInvalid(t, err, "baseline", 7, "the emulation did not match its plan (fidelity invalid): reason 0")
	if s.Done != 4 || !slices.Contains(names(t, s.Dir), sweep.CSVFile) {
		t.Errorf("%d points are done, in %q", s.Done, names(t, s.Dir))
	}
}

// TestReplay: the policy of a run decides as in the record.
func TestReplay(t *testing.T) {
	var f fake
	r := load(t, "persistent_straggler")
	r.Policy = scenarios.Straggler
	if _, err := f.play(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	trace := filepath.Join(t.TempDir(), "trace.jsonl")
	again, err := experiment.Replay(r.Dir, r.Policy, nil, trace)
	if err != nil || !again.Same {
		t.Errorf("%v, differences %+v", err, again.Differences)
	}
	if text, err := os.ReadFile(trace); err != nil || len(text) == 0 {
		t.Errorf("the trace: %v", err)
	}
	k, err := scenarios.NewSetting("policy.straggler.sideline_limit", "0")
	if err != nil {
		t.Fatal(err)
	}
	if other, err := experiment.Replay(r.Dir, r.Policy, []scenarios.Setting{k}, ""); err != nil || other.Same {
		t.Errorf("with another limit: %v, the same %v", err, other.Same)
	}
	_, err = experiment.Replay(t.TempDir(), r.Policy, nil, "")
	if _, ok := errors.AsType[*scenarios.Error](err); !ok {
		t.Errorf("of no run: %v", err)
	}
}

// TestSimulators: a calibration changes both models, and no calibration the
// results of neither.
func TestSimulators(t *testing.T) {
	s := load(t, "homogeneous").Scenario
	slow := &calibrate.Calibration{Costs: calibrate.CostEstimates{Message: calibrate.Estimate{Value: 50}, Efficiency: calibrate.Estimate{Value: 0.5}}}
	for _, network := range []string{experiment.NetworkChurn, experiment.NetworkLinks} {
		wall := func(c *calibrate.Calibration) int64 {
			play, err := experiment.NewSimulator(network, c)
			if err != nil {
				t.Fatal(err)
			}
			sum, err := play(s, scenarios.Baseline, nil)
			if err != nil {
				t.Fatal(err)
			}
			return int64(sum.WallClock)
		}
		if plain, calibrated := wall(nil), wall(slow); plain >= calibrated || network == experiment.NetworkChurn && plain != 11_050 {
			t.Errorf("on %s: %d µs, calibrated %d", network, plain, calibrated)
		}
	}
	if _, err := experiment.NewSimulator("tcp", nil); err == nil {
		t.Error("there is no network tcp")
	}
}

// TestUnusableSaysTheCause: the error of a run that did not come to its end has the cause,
// which is the first of the verdict's reasons.
func TestUnusableSaysTheCause(t *testing.T) {
	sum := record.Summary{World: record.Real, Policy: "baseline", OuterSteps: 2}
	sum.Fidelity.Verdict, sum.Fidelity.Reasons = fidelity.Invalid, []string{"w1 ran out of memory", "threads of a worker stood in line"}
	if err := experiment.Usable(sum); err == nil || !strings.Contains(err.Error(), "the run ended early, after 2 outer steps: w1 ran out of memory") {
		t.Error(err)
	}
}
