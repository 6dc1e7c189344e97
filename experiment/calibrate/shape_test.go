package calibrate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/scenarios/convert"
	"testbed/train/work"
)

// drawn are durations over their mean, by textbook formulas: the code that plays
// scenarios has no part in them.
var drawn = map[work.Distribution]struct {
	parameter float64
	draw      func(u, v float64) float64
}{
	work.Normal:    {0.12, func(u, v float64) float64 { return 1 + 0.12*gauss(u, v) }},
	work.Uniform:   {0.2, func(u, _ float64) float64 { return 1 + 0.2*math.Sqrt(12)*(u-0.5) }},
	work.LogNormal: {0.4, func(u, v float64) float64 { return math.Exp(0.4*gauss(u, v) - 0.08) }},
	work.Pareto:    {3, func(u, _ float64) float64 { return 2.0 / 3 * math.Pow(1-u, -1.0/3) }},
}

// gauss is Box and Muller's.
func gauss(u, v float64) float64 { return math.Sqrt(-2*math.Log(1-u)) * math.Cos(2*math.Pi*v) }

// madeUp is the record of a run in which the steps of workers 2 and 3, who are in
// the class old, take 1.3 times as long as it says.
func madeUp(t *testing.T, rng *rand.Rand, name string, rounds int, draw func(u, v float64) float64) *Run {
	t.Helper()
	s := parse(t, "mine.json", atRate("100mbit", 50, 1000))
	s.InnerSteps, s.TargetOuterSteps = 4, rounds
	for i := range s.Workers {
		s.Workers[i].InnerStepMean = 2000
	}
	s.Work = &work.Spec{Classes: []work.Class{{Name: "old", IDs: []policy.ID{2, 3}, Factor: 2}}}
	s.Seed = rng.Uint64()
	r := &Run{Name: name, Scenario: s} // all rounds are valid
	now := policy.Time(0)
	for round := range rounds {
		for id := range policy.ID(4) {
			at := now
			for step := range 4 {
				d := 2000 * draw(rng.Float64(), rng.Float64())
				if id > 1 {
					d *= 2 * 1.3
				}
				at += policy.Time(d)
				r.Events = append(r.Events, record.Event{T: at, Type: record.Step, Node: id.Node(), Round: round + 1, Step: step + 1, Duration: policy.Time(d)})
			}
		}
		now += 100_000
		r.Events = append(r.Events, record.Event{T: now, Type: record.OuterStep, Round: round + 1, Participants: []policy.ID{0, 1, 2, 3}})
	}
	return r
}

// TestShapesAreRecovered from records of known distributions: which, its
// parameter, and by how much a class is slower than the scenario says.
func TestShapesAreRecovered(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	const trials = 6
	for name, of := range drawn {
		right, covered, good := 0, 0, 0
		for range trials {
			var o Observations
			for k := range 4 {
				if err := o.Observe(madeUp(t, rng, fmt.Sprint("run", k), 12, of.draw)); err != nil {
					t.Fatal(err)
				}
			}
			c := &Calibration{}
			c.fitShapes(o.ratios)
			if len(c.Steps) != 1 || len(c.Steps[0].Classes) != 2 {
				t.Fatalf("%s: %+v, not told %+v", name, c.Steps, c.Untold)
			}
			s := c.Steps[0]
			if s.Distribution == name {
				right++
			}
			// Wider than its interval, of which one in twenty misses.
			if p, wide := s.Parameter, s.Parameter.High-s.Parameter.Low; math.Abs(p.Value-of.parameter) <= wide {
				covered++
			}
			if s.Good() {
				good++
			}
			for k, want := range []float64{1, 1.3} {
				if got := s.Classes[k].Ratio.Value; math.Abs(got-want) > 0.08*want {
					t.Errorf("%s: class %q takes %.3f times as long, was %v", name, s.Classes[k].Name, got, want)
				}
			}
		}
		if right < trials-1 || covered < trials-1 || good < trials-1 {
			t.Errorf("%s: of %d trials %d are told, %d have the parameter, %d are near", name, trials, right, covered, good)
		}
	}
}

// TestNoShapeIsSaid where durations have two humps, and where there are few.
func TestNoShapeIsSaid(t *testing.T) {
	rng := rand.New(rand.NewPCG(10, 10))
	var o Observations
	humps := func(u, v float64) float64 { return 1 + 0.5*math.Copysign(1, u-0.5) + 0.01*v }
	if err := o.Observe(madeUp(t, rng, "a", 12, humps)); err != nil {
		t.Fatal(err)
	}
	c := &Calibration{Scenarios: []Prices{{Scenario: "mine"}}}
	c.fitShapes(o.ratios)
	if w := c.Warnings(); len(w) != 1 || !strings.Contains(w[0], "none of the known distributions") {
		t.Errorf("warnings %q of %+v", w, c.Steps)
	}
	c = &Calibration{}
	c.fitShapes(o.ratios[:20])
	if len(c.Steps) != 0 || len(c.Untold) != 1 || c.Untold[0].Cost != "steps of mine" {
		t.Errorf("of 20 steps: %+v, not told %+v", c.Steps, c.Untold)
	}
}

// TestShapeIsWrittenBack to a copy of the scenario, in every format.
func TestShapeIsWrittenBack(t *testing.T) {
	plain := atRate("100mbit", 1, 1000)
	classes := []byte(strings.Replace(string(plain), `"real"`, `"work": {"classes": [{"name": "old", "ids": [2, 3], "factor": 2}]}, "real"`, 1))
	yaml := []byte("# kept\n" + string(classes)[strings.Index(string(classes), "{"):])
	of := func(d work.Distribution, ratio float64) *Calibration {
		c := fitted()
		c.Steps = []StepShape{{Scenario: "mine", Distribution: d, Parameter: Estimate{Value: 0.123456}, Deviation: 0.1, Classes: []ClassShape{
			{Ratio: Estimate{Value: 1.001, Low: 0.99, High: 1.01}}, {Name: "old", Ratio: Estimate{Value: ratio, Low: 1.1, High: 1.4}}}}}
		if d == work.Pareto {
			c.Steps[0].Parameter.Value = 2.5
		}
		return c
	}
	for _, d := range []work.Distribution{work.LogNormal, work.Normal, work.Pareto, work.Uniform} {
		for _, to := range []convert.Format{convert.JSON, convert.YAML} {
			source := classes
			if to == convert.YAML {
				source = yaml
			}
			text, _, err := of(d, 1.25).Rewrite(parse(t, "mine.yaml", source), source, to)
			if err != nil {
				t.Fatal(err)
			}
			s := parse(t, "mine.yaml", text)
			st := s.Work.Steps
			if st.Distribution != d || d != work.Pareto && *st.Sigma != 0.1235 || d == work.Pareto && *st.Shape != 2.5 {
				t.Errorf("%s as %s: %v\n%s", d, to, st, text)
			}
			if s.Work.Classes[0].Factor != 2.5 || s.Workers[0].InnerStepMean != 100_000 || s.Workers[3].InnerStepMean != 100_000 {
				t.Errorf("%s as %s: class %+v, workers %+v", d, to, s.Work.Classes[0], s.Workers)
			}
		}
		text, _, err := of(d, 1).Rewrite(parse(t, "mine.json", plain), plain, convert.Churn)
		if err != nil {
			t.Fatal(err)
		}
		if s := parse(t, "mine.json", text); s.Work != nil || !slices.ContainsFunc(s.Workers, func(w scenarios.Worker) bool { return w.InnerStepJitter == 17_321 }) {
			t.Errorf("%s for churn:\n%s", d, text)
		}
	}
}
