package estimate_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/estimate"
	"testbed/internal/rapidtest"
	"testbed/policy"
	"testbed/scenarios"
	"testbed/sim"
)

// calibrated are measurements as a calibration has them.
func calibrated() estimate.Measurements {
	return estimate.Measurements{Efficiency: 0.95, Hop: 1e-4, Reduce: 2e-3, Stragglers: []estimate.Straggler{
		{Sigma: 0.02, Coefficient: 0.0085}, {Sigma: 0.05, Coefficient: 0.022}, {Sigma: 0.1, Coefficient: 0.045}, {Sigma: 0.2, Coefficient: 0.098}, {Sigma: 0.4, Coefficient: 0.23}}}
}

// ideal are those of a machine that costs nothing, where slow nodes delay as
// published whatever their spread.
func ideal() estimate.Measurements {
	return estimate.Measurements{Efficiency: 1, Stragglers: []estimate.Straggler{{Sigma: 1e-9, Coefficient: 0.05}, {Sigma: 1, Coefficient: 0.05}}}
}

func drawRun(t *rapid.T) estimate.Run {
	return estimate.Run{Inputs: inputs(t), Further: estimate.Further{
		NodeSpread: rapid.Float64Range(0, 0.4).Draw(t, "nodeSpread"), StepSpread: rapid.Float64Range(0, 0.4).Draw(t, "stepSpread"),
		Fragments: float64(rapid.IntRange(1, 64).Draw(t, "fragments")), OverlapSteps: float64(rapid.IntRange(0, 200).Draw(t, "overlapSteps"))}}
}

func defaultRun() estimate.Run {
	return estimate.Run{Inputs: estimate.Defaults(), Further: estimate.DefaultFurther()}
}

func TestMeasuredMoreBandwidthNeverCostsDays(t *testing.T) {
	m := calibrated()
	rapidtest.Check(t, func(t *rapid.T) {
		r := drawRun(t)
		before := estimate.ComputeMeasured(r, &m).Days
		r.BandwidthMbps *= rapid.Float64Range(1, 100).Draw(t, "more")
		r.RegionalBandwidth *= rapid.Float64Range(1, 100).Draw(t, "more in the region")
		if after := estimate.ComputeMeasured(r, &m).Days; after > before*(1+tolerance) {
			t.Fatalf("%v days became %v", before, after)
		}
	})
}

func TestMeasuredStreamingNeverBeatsTheLonger(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		r := drawRun(t)
		r.StreamingEnabled = true
		e := estimate.ExplainMeasured(r, calibrated())
		if e.Results.IsSharded && !e.Results.PPGroupMode {
			return
		}
		if outer := term(t, e, "T_outer"); outer < max(e.Results.ComputeBlockSec, e.Results.GlobalCommSec)*(1-tolerance) {
			t.Fatalf("an outer step takes %v s, less than the longer of computing (%v) and a sync (%v)", outer, e.Results.ComputeBlockSec, e.Results.GlobalCommSec)
		}
		more := r
		more.OverlapSteps++
		if after := estimate.ExplainMeasured(more, calibrated()); after.Results.Days > e.Results.Days*(1+tolerance) {
			t.Fatalf("%v days became %v with more overlap", e.Results.Days, after.Results.Days)
		}
	})
}

func TestMeasuredTwiceTheTokensTakeTwiceTheDays(t *testing.T) {
	m := calibrated()
	rapidtest.Check(t, func(t *rapid.T) {
		r := drawRun(t)
		once := estimate.ComputeMeasured(r, &m).Days
		r.Tokens *= 2
		if twice := estimate.ComputeMeasured(r, &m).Days; !near(twice, 2*once) {
			t.Fatalf("%v days became %v", once, twice)
		}
	})
}

func TestMeasuredOneNodeHasNoSync(t *testing.T) {
	m := calibrated()
	rapidtest.Check(t, func(t *rapid.T) {
		r := drawRun(t)
		r.NumNodes = 1
		r.VRAMPerNode = 1e9 // it fits
		r.NodesPerGroup = 1
		if got := estimate.ComputeMeasured(r, &m); got.GlobalCommSec != 0 || got.RegionalCommSec != 0 {
			t.Fatalf("a node syncs with itself for %v s and %v s", got.GlobalCommSec, got.RegionalCommSec)
		}
	})
}

// TestMeasuredWithThePagesFactorsIsThePage: with no term replaced to the last
// bit, and with terms that have the published values to rounding, so that
// every difference between the columns is one of the listed terms.
func TestMeasuredWithThePagesFactorsIsThePage(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		r := drawRun(t)
		page := estimate.Compute(r.Inputs, estimate.Page)
		if got := estimate.ComputeWith(r, calibrated()); got != page {
			t.Fatalf("%+v\nthe page has\n%+v", got, page)
		}
		r.Fragments, r.OverlapSteps = 1, r.InnerSteps*r.RegionalSteps
		r.NodeSpread = max(r.NodeSpread, 0.01)
		if got := estimate.ComputeWith(r, ideal(), "machine", "spread", "overlap"); !near(got.Days, page.Days) {
			t.Fatalf("%v days, the page has %v", got.Days, page.Days)
		}
	})
}

// TestOnlyListedTermsChangeTheDays, and what is said of each is what it does
// alone.
func TestOnlyListedTermsChangeTheDays(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		r := drawRun(t)
		c := estimate.Compare(r, calibrated())
		var listed []string
		for _, x := range c.Changes {
			listed = append(listed, x.Term)
			if alone := estimate.ComputeWith(r, calibrated(), x.Term); alone.Days != x.Days || x.DaysChange != x.Days-c.Page.Results.Days {
				t.Fatalf("%+v: alone it makes %v days", x, alone.Days)
			}
			if math.IsNaN(x.Page+x.Measured+x.Ratio) || math.IsInf(x.Page+x.Measured+x.Ratio, 0) {
				t.Fatalf("%+v", x)
			}
		}
		if got := estimate.ComputeWith(r, calibrated(), listed...); got != c.Measured.Results {
			t.Fatalf("with the listed terms (%v)\n%+v\nwith all\n%+v", listed, got, c.Measured.Results)
		}
		if c.Page.Results != estimate.Compute(r.Inputs, estimate.Page) || c.Document.Results != estimate.Compute(r.Inputs, estimate.Document) {
			t.Fatal("the published columns are not those of the variants")
		}
		for _, x := range c.Measured.Terms {
			if x.Formula == "" || x.Place == "" || math.IsNaN(x.Value) || math.IsInf(x.Value, 0) {
				t.Fatalf("term %+v", x)
			}
		}
	})
}

// ringScenario has workers on equal links.
func ringScenario(t *rapid.T, workers, parameters int, mbps float64, oneWay time.Duration) *scenarios.Scenario {
	var text strings.Builder
	text.WriteString("description: a ring\nseed: 1\nworkers:\n")
	for id := range workers {
		fmt.Fprintf(&text, "  - {id: %d, join_at: 0, inner_step_mean: 1000, inner_step_jitter: 0}\n", id)
	}
	fmt.Fprintf(&text, `injects: []
inner_steps: 1
target_outer_steps: 1
horizon: 120000000
heartbeat_period: 100000
heartbeat_miss_threshold: 5
base_latency: 100
bandwidth_bpus: 10
state_bytes: 100
real:
  time_scale: 1
  parameters: %d
  all_reduce: {entropy: "off"}
  links:
    default: {rate_up: %.0fkbit, rate_down: %.0fkbit, one_way_delay: %dus}
`, parameters, mbps*1000, mbps*1000, oneWay.Microseconds())
	s, err := scenarios.Parse("ring.yaml", []byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestARingTakesWhatTheSimulatorSays: the closed formula is the schedule that
// the simulator plays step by step, for every ring of equal links.
func TestARingTakesWhatTheSimulatorSays(t *testing.T) {
	in := estimate.Defaults()
	in.Compression = 2 // int8
	rapidtest.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(2, 16).Draw(t, "workers")
		parameters := rapid.IntRange(1_000, 3_000_000).Draw(t, "parameters")
		mbps := math.Round(math.Exp(rapid.Float64Range(0, 7).Draw(t, "ln Mbit/s")))
		oneWay := time.Duration(rapid.IntRange(10, 100_000).Draw(t, "one way, µs")) * time.Microsecond
		m := calibrated()
		ring, err := ringScenario(t, workers, parameters, mbps, oneWay).Resolve("")
		if err != nil {
			t.Fatal(err)
		}
		times := sim.NewTimes(ring, sim.Costs{
			Efficiency: m.Efficiency, Hop: time.Duration(m.Hop * 1e9), Reduce: time.Duration(m.Reduce * 1e9)})
		var ids []policy.ID
		for id := range workers {
			ids = append(ids, policy.ID(id))
		}
		want := times.Reduction(ids, ids).Seconds()
		got := estimate.Reduction(in, m, float64(workers), float64(parameters), mbps, 2*oneWay.Seconds())
		// Values, scales and packets are whole there: a hundred bytes of a chunk.
		if math.Abs(got/want-1) > 0.005+100/(float64(parameters)/float64(workers)) {
			t.Fatalf("%v s, the simulator says %v", got, want)
		}
	})
}

func TestCompareTheDefaults(t *testing.T) {
	c := estimate.Compare(defaultRun(), calibrated())
	var terms []string
	for _, x := range c.Changes {
		terms = append(terms, x.Term)
	}
	if want := []string{"volume", "hops", "pieces", "bytes", "machine", "spread", "waiting", "overlap"}; !slices.Equal(terms, want) {
		t.Errorf("terms %q, want %q", terms, want)
	}
	if x := c.Changes[0]; x.Page != 2 || !near(x.Measured, 2*71.0/72) {
		t.Errorf("volume %+v", x)
	}
	if x := c.Changes[1]; x.Page != 2 || x.Measured != 142 {
		t.Errorf("hops %+v", x)
	}
	var out bytes.Buffer
	if err := estimate.WriteComparison(&out, c); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"days with measured terms, 491.1 days by the formulas of the simulator's page", "measured ÷ page", "nodeSpread 0.1, stepSpread 0, fragments 8, overlapSteps 5"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

// TestStagesComputeTheirShare: a pipeline's slot takes 1 ÷ S of the time.
func TestStagesComputeTheirShare(t *testing.T) {
	r := defaultRun()
	r.Parameters, r.NodeSpread = 300e9, 0
	page, measured := estimate.Explain(r.Inputs, estimate.Page), estimate.ExplainMeasured(r, calibrated())
	if p, m := term(t, page, "T_micro_comp"), term(t, measured, "T_micro_comp"); !near(p, 3*m) {
		t.Errorf("a slot computes for %v s on the page and for %v s measured, want a third", p, m)
	}
}

func TestStepsOfOneNodeAverageOut(t *testing.T) {
	m := calibrated()
	days := func(nodes, steps float64) float64 {
		r := defaultRun()
		r.BandwidthMbps, r.NodeSpread, r.StepSpread = 1e5, nodes, steps
		return estimate.ComputeMeasured(r, &m).Days
	}
	if alike, steps, nodes := days(0, 0), days(0, 0.2), days(0.2, 0); !(alike < steps && steps-alike < (nodes-alike)/5) {
		t.Errorf("%v days of equal nodes, %v with unequal steps, %v with unequal nodes", alike, steps, nodes)
	}
}

func TestMeasurementsAreChecked(t *testing.T) {
	for _, m := range []estimate.Measurements{{}, {Efficiency: 1}, {Efficiency: 2, Stragglers: calibrated().Stragglers},
		{Efficiency: 1, Stragglers: []estimate.Straggler{{Sigma: 0.2}, {Sigma: 0.1}}}} {
		if m.Check() == nil {
			t.Errorf("%+v passes", m)
		}
	}
	if err := calibrated().Check(); err != nil {
		t.Error(err)
	}
	r := defaultRun()
	r.NodeSpread = 0.5
	if err := r.Check(); err == nil || err.Error() != "nodeSpread is 0.5: it must be from 0 to 0.4" {
		t.Errorf("error %v", err)
	}
}
