package scenarios_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/policy"
	"testbed/scenarios"
	"testbed/train/work"
)

// section is a section `work` with everything but a file in it.
const section = `work:
  steps: {distribution: lognormal, sigma: 0.3}
  classes:
    - {name: a100, ids: [0], factor: 1}
    - {name: t4, ids: [1], factor: 4.8, phase: 0.5}
  noise: {slow_factor: 3, mean_ok: 200000, mean_slow: 20000}
  thermal: {slow_factor: 1.5, heat: 60000, cool: 20000}
  diurnal: {amplitude: 0.3, period: 100000, phase: 0.25}
`

func TestWorkIsRead(t *testing.T) {
	want := &work.Spec{
		Steps:   work.Steps{Distribution: work.LogNormal, Sigma: new(0.3)},
		Classes: []work.Class{{Name: "a100", IDs: []policy.ID{0}, Factor: 1}, {Name: "t4", IDs: []policy.ID{1}, Factor: 4.8, Phase: 0.5}},
		Noise:   &work.Noise{SlowFactor: 3, MeanOK: 200000, MeanSlow: 20000},
		Thermal: &work.Thermal{SlowFactor: 1.5, Heat: 60000, Cool: 20000},
		Diurnal: &work.Diurnal{Amplitude: 0.3, Period: 100000, Phase: 0.25},
	}
	s := parse(t, valid+section)
	if diff := cmp.Diff(want, s.Work); diff != "" {
		t.Error(diff)
	}
	roundTrip(t, s)
	text, err := s.Text()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, parse(t, string(text)), memories); diff != "" {
		t.Errorf("its text reads differently:\n%s", diff)
	}
	if plain := parse(t, valid); plain.Work != nil {
		t.Errorf("a scenario without the section has %+v", plain.Work)
	}
}

// TestBadWork changes one thing in a valid section.
func TestBadWork(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"lognormal", "gamma", `:22: work.steps.distribution: "gamma" is not a distribution; choose one of uniform, normal, lognormal, pareto, trace`},
		{", sigma: 0.3", "", ":22: work.steps.sigma is missing: the distribution lognormal needs it, for example 0.3"},
		{"sigma: 0.3", "sigma: 3.5", ":22: work.steps.sigma is 3.5: with the distribution lognormal, it must lie between 0 and 3"},
		{"lognormal, sigma: 0.3", "uniform, sigma: 0.6", ":22: work.steps.sigma is 0.6: with the distribution uniform, it must lie between 0 and 0.577"},
		{"lognormal, sigma", "normal, sigma: 0.1, shape", ":22: work.steps.shape applies only to the distribution pareto, not to normal: remove shape"},
		{"lognormal, sigma: 0.3", "pareto", ":22: work.steps.sigma is missing: the distribution pareto needs it, for example 0.3, or shape in its place"},
		{"lognormal, sigma: 0.3", "pareto, shape: 1", ":22: work.steps.shape is 1: it must lie in (1, 1000]"},
		{"lognormal, sigma", "pareto, shape: 2, sigma", ":22: work.steps.shape: sigma already gives the variation; remove sigma or shape"},
		{"lognormal, sigma: 0.3", "trace", ":22: work.steps.file is missing: the distribution trace needs it, for example traces/steps.csv"},
		{"lognormal, sigma: 0.3", "trace, sigma: 1", ":22: work.steps.sigma does not apply to the distribution trace, because the trace contains the variation: remove sigma"},
		{"lognormal, sigma: 0.3", "trace, file: x.csv", ":22: work.steps.file: a trace can be read only if the scenario itself is read from a file"},
		{"sigma: 0.3", "sigma: 0.3, file: x.csv", ":22: work.steps.file applies only to the distribution trace, not to lognormal: remove file"},
		{"  steps:", "  stepz:", ":22: work.stepz: unknown field; did you mean steps?"},
		{"name: t4", "name: a100", `:25: work.classes[1].name: "a100" is already the name of classes[0]; give each class a name of its own`},
		{"ids: [1]", "ids: [0]", ":25: work.classes[1].ids[0]: worker 0 is already in class a100; name each worker once"},
		{"ids: [1]", "ids: [1, 1]", ":25: work.classes[1].ids[1]: worker 1 is already in class t4; name each worker once"},
		{"ids: [1]", "ids: [7]", ":25: work.classes[1].ids[0]: there is no worker 7; the workers are 0, 1"},
		{"ids: [1]", "ids: []", ":25: work.classes[1].ids is empty: name the workers of the class, or remove the class"},
		{"factor: 4.8", "factor: 0", ":25: work.classes[1].factor is 0: it must lie in (0, 1000000]"},
		{", factor: 4.8", "", ":25: work.classes[1].factor is missing: add it"},
		{"phase: 0.5", "phase: 2", ":25: work.classes[1].phase is 2: it must lie between 0 and 1"},
		{"  diurnal: {amplitude: 0.3, period: 100000, phase: 0.25}\n", "", ":25: work.classes[1].phase is 0.5, but there is no work.diurnal to shift: add work.diurnal, or remove the phase"},
		{"slow_factor: 3", "slow_factor: 0.5", ":26: work.noise.slow_factor is 0.5: it must lie between 1 and 1000000"},
		{"mean_ok: 200000", "mean_ok: 0", ":26: work.noise.mean_ok is 0: it must lie between 1 and 1000000000000"},
		{"heat: 60000", "heat: -1", ":27: work.thermal.heat is -1: it must lie between 1 and 1000000000000"},
		{"amplitude: 0.3", "amplitude: 1", ":28: work.diurnal.amplitude is 1: it must lie between 0 and 0.99"},
		{"inner_step_jitter: 0}", "inner_step_jitter: 7}", ":3: workers[0].inner_step_jitter is 7, but work.steps says how steps vary (lognormal, sigma 0.3): remove inner_step_jitter or work.steps"},
	} {
		text := strings.Replace(valid+section, c.old, c.new, 1)
		if text == valid+section {
			t.Fatalf("%q is not there", c.old)
		}
		check(t, text, "bad.yaml"+c.want)
	}
}

// TestDurationsAreReadWithTheScenario: beside it, kept with it, and refused with
// their own line.
func TestDurationsAreReadWithTheScenario(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	file := put("s.yaml", valid+"work: {steps: {distribution: trace, file: steps.csv}}\n")
	put("steps.csv", "step_ms\n1\n3\n")
	s, err := scenarios.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Work.Steps.Ratios) != 2 || string(s.Traces["steps.csv"]) != "step_ms\n1\n3\n" {
		t.Errorf("read as %+v", s)
	}
	roundTrip(t, s)
	if c, err := set(s, "workers.count=3", "inner_steps=4"); err != nil || len(c.Work.Steps.Ratios) != 2 {
		t.Errorf("a setting loses the durations: %v", err)
	}
	if text, err := s.Text(); err != nil || strings.Contains(string(text), "ratios") {
		t.Errorf("its text has what its file holds: %v\n%s", err, text)
	}
	put("steps.csv", "1\n-3\n")
	var e *scenarios.Error
	if _, err := scenarios.Load(file); !errors.As(err, &e) || e.File != filepath.ToSlash(filepath.Join(dir, "steps.csv")) || e.Line != 2 {
		t.Errorf("error %v", err)
	}
}

// TestWorkCanBeSet, also where a scenario has no section, and without a change
// of the scenario that it is set on.
func TestWorkCanBeSet(t *testing.T) {
	base := parse(t, valid)
	s, err := set(base, "work.steps.distribution=pareto", "work.steps.shape=2.5", "work.thermal.heat=5000", "work.thermal.cool=1000", "work.thermal.slow_factor=2")
	if err != nil {
		t.Fatal(err)
	}
	if *s.Work.Steps.Shape != 2.5 || s.Work.Thermal.Heat != 5000 || base.Work != nil {
		t.Errorf("%+v, the scenario itself %+v", s.Work, base.Work)
	}
	both := "valid with work.noise.slow_factor=3: work.noise.mean_ok is 0: it must lie between 1 and 1000000000000\nvalid with work.noise.slow_factor=3: work.noise.mean_slow is 0: it must lie between 1 and 1000000000000"
	if _, err := set(base, "work.noise.slow_factor=3"); err == nil || err.Error() != both {
		t.Errorf("error %v", err)
	}
	// Copies of a worker are of its class.
	base = parse(t, valid+section)
	for n, want := range map[int]string{1: "a100 [0]", 2: "a100 [0] t4 [1]", 5: "a100 [0 2 4] t4 [1 3]"} {
		s, err := set(base, fmt.Sprintf("workers.count=%d", n))
		if n == 1 { // an inject names worker 1
			if err == nil {
				t.Error("no error")
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range s.Work.Classes {
			got = append(got, fmt.Sprint(c.Name, " ", c.IDs))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%d workers: %v, want %s", n, got, want)
		}
	}
}
