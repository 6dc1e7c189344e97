package calibrate

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/scenarios/convert"
	"testbed/sim"
)

// machine is what the synthetic runs below are made on.
var machine = sim.Costs{
	Step: 700 * time.Microsecond, Message: 900 * time.Microsecond, Join: 12 * time.Millisecond,
	Reduce: 3 * time.Millisecond, Hop: 1500 * time.Microsecond, ReduceByte: 4, Dial: 9 * time.Millisecond,
	Fetch: 20 * time.Millisecond, FetchByte: 15, Efficiency: 0.94,
}

// record simulates an experiment and makes a real run's record of it: the times
// vary as a machine's do, by a share and, now and then, by a burst. The durations that a real run reports are those
// of its own clocks, so they move with the times.
func recorded(t *testing.T, e Experiment, rng *rand.Rand) *Run {
	t.Helper()
	s, err := scenarios.Parse(e.Name+".yaml", e.Source)
	if err != nil {
		t.Fatal(err)
	}
	r := &Run{Name: e.Name, Scenario: s, Policy: e.Policy}
	noisy := machine
	jitter := func(d *time.Duration) { *d = time.Duration(float64(*d) * (1 + 0.1*rng.NormFloat64())) }
	for _, d := range []*time.Duration{&noisy.Step, &noisy.Message, &noisy.Reduce, &noisy.Hop, &noisy.Dial} {
		jitter(d)
	}
	if r.Summary, err = onLinks(s, e.Policy, noisy, func(e record.Event) { r.Events = append(r.Events, e) }); err != nil {
		t.Fatal(err)
	}
	return r
}

func onLinks(s *scenarios.Scenario, policyName string, costs sim.Costs, note func(record.Event)) (record.Summary, error) {
	r, err := s.Resolve(policyName)
	if err != nil {
		return record.Summary{}, err
	}
	return sim.RunLinks(r, costs, note)
}

func onChurn(s *scenarios.Scenario, policyName string) (record.Summary, error) {
	r, err := s.ResolveWithoutLinks(policyName)
	if err != nil {
		return record.Summary{}, err
	}
	return sim.Run(r, nil)
}

// TestFitRecoversTheMachine from records of all experiments on a machine whose
// costs are known.
func TestFitRecoversTheMachine(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	var runs []*Run
	for _, e := range Experiments() {
		runs = append(runs, recorded(t, e, rng))
	}
	c, err := Fit(runs)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []struct {
		name         string
		e            Estimate
		want, within float64
	}{
		{"step", c.Costs.Step, 0.7, 0.1}, {"message", c.Costs.Message, 0.9, 0.2}, {"join", c.Costs.Join, 12, 1},
		{"hop", c.Costs.Hop, 1.5, 0.5}, {"reduce_byte", c.Costs.ReduceByte, 4, 1}, {"dial", c.Costs.Dial, 9, 3},
		{"fetch", c.Costs.Fetch, 20, 2}, {"fetch_byte", c.Costs.FetchByte, 15, 2}, {"efficiency", c.Costs.Efficiency, 0.94, 0.03},
	} {
		if math.Abs(k.e.Value-k.want) > k.within {
			t.Errorf("%s is %.3f (%.3f to %.3f), was %.3f", k.name, k.e.Value, k.e.Low, k.e.High, k.want)
		}
		if k.e.Low > k.e.Value || k.e.High < k.e.Value || k.e.Observations == 0 {
			t.Errorf("%s is %+v", k.name, k.e)
		}
	}
	for _, r := range c.Runs {
		if e := r.Fitted/r.Measured - 1; math.Abs(e) > 0.03 {
			t.Errorf("%s: predicted %.3f s, measured %.3f s", r.Name, r.Fitted, r.Measured)
		}
	}
	// Four in a ring send 6/4 of the vector and wait for three round trips.
	if d := c.Document; d.Volume.Value < 1 || d.Volume.Value > 2.5 || d.Latency.Value < 2.5 || d.Latency.Value > 4.5 {
		t.Errorf("factors of the analytic model: %.2f and %.2f", d.Volume.Value, d.Latency.Value)
	}
}

// TestInvalidRoundsDoNotCount.
func TestInvalidRoundsDoNotCount(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	r := recorded(t, Experiments()[0], rng)
	count := func() int {
		var o Observations
		if err := o.Observe(r); err != nil {
			t.Fatal(err)
		}
		return len(o.Reductions)
	}
	if n := count(); n != 7 {
		t.Fatalf("%d reductions of 7 rounds", n)
	}
	r.Valid = map[int]bool{2: true, 5: true}
	if n := count(); n != 2 {
		t.Errorf("%d reductions of 2 valid rounds", n)
	}
	r.Valid = map[int]bool{}
	if _, err := Fit([]*Run{r}); err == nil || !strings.Contains(err.Error(), "no round") {
		t.Errorf("without a valid round: %v", err)
	}
}

// TestStragglerCoefficient against the expected maximum of two log-normal
// times, 2·Φ(σ/√2).
func TestStragglerCoefficient(t *testing.T) {
	all, err := Stragglers(machine)
	if err != nil {
		t.Fatal(err)
	}
	last := 0.0
	for _, s := range all {
		want := 1 + math.Erf(s.Sigma/2)
		if got := s.Factors[1]; math.Abs(got-want) > 0.4*(want-1)+0.002 {
			t.Errorf("σ %v: two workers take %.4f, want %.4f", s.Sigma, got, want)
		}
		if c := s.Coefficient; c.Value <= last || c.Low > c.Value || c.High < c.Value {
			t.Errorf("σ %v: %+v after %v", s.Sigma, c, last)
		}
		last = s.Coefficient.Value
	}
}

// TestPricedScenario: with the prices of its calibration, churn's network takes
// for an undisturbed run what the calibrated links do.
func TestPricedScenario(t *testing.T) {
	c := fitted()
	found, err := scenarios.Find("homogeneous")
	if err != nil {
		t.Fatal(err)
	}
	file, source := found.File, found.Text
	text, _, err := c.Rewrite(parse(t, file, source), source, convert.YAML)
	if err != nil {
		t.Fatal(err)
	}
	priced := parse(t, file, text)
	churn, err := onChurn(priced, scenarios.Baseline)
	if err != nil {
		t.Fatal(err)
	}
	uncoded := parse(t, file, source)
	uncoded.Real.AllReduce.Entropy = "off" // a single price knows no rounds that differ
	links, err := onLinks(uncoded, scenarios.Baseline, c.SimCosts(), nil)
	if err != nil {
		t.Fatal(err)
	}
	// The first reduction connects; that churn's network does not know.
	last := func(s record.Summary) policy.Time { r := s.Rounds[len(s.Rounds)-1]; return r.End - r.Start }
	if a, b := last(churn), last(links); a < b-10 || a > b+10 {
		t.Errorf("a round takes %d µs on churn's network, %d on the links", a, b)
	}
	if plain := parse(t, file, source); priced.Workers[0].InnerStepMean != plain.Workers[0].InnerStepMean+2 || len(priced.Workers) != 4 {
		t.Errorf("steps of %d µs", priced.Workers[0].InnerStepMean)
	}
}

// TestRewriteKeepsTheLinks of a scenario whose delays come from base_latency.
func TestRewriteKeepsTheLinks(t *testing.T) {
	found, err := scenarios.Find("homogeneous")
	if err != nil {
		t.Fatal(err)
	}
	file := found.File
	source := []byte(strings.Replace(string(found.Text), ", one_way_delay: 10ms", "", 1) + "# a comment\n")
	before := parse(t, file, source)
	c := &Calibration{}
	c.Costs.Efficiency.Value = 1
	text, _, err := c.Rewrite(before, source, convert.YAML)
	if err != nil {
		t.Fatal(err)
	}
	one, err := before.Plan()
	if err != nil {
		t.Fatal(err)
	}
	two, err := parse(t, file, text).Plan()
	if err != nil {
		t.Fatal(err)
	}
	if a, b := one.Paths[1][2].OneWayDelay, two.Paths[1][2].OneWayDelay; a != b || a == 0 {
		t.Errorf("a path's one-way delay was %v, is %v", a, b)
	}
	if !strings.Contains(string(text), "# a comment") {
		t.Errorf("the comment is lost:\n%s", text)
	}
}

func parse(t *testing.T, file string, source []byte) *scenarios.Scenario {
	t.Helper()
	s, err := scenarios.Parse(file, source)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestLoadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"{":             "unexpected end",
		`{"schema": 9}`: "schema 9",
		`{"schema": 1}`: "costs.efficiency.value is 0",
	} {
		file := filepath.Join(t.TempDir(), "c.json")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(file); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there was read")
	}
}
