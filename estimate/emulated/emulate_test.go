package emulated_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/estimate"
	"testbed/estimate/emulated"
	"testbed/experiment"
	"testbed/internal/errs"
	"testbed/internal/rapidtest"
	"testbed/record"
	"testbed/scenarios"
	"testbed/shaping/fidelity"
	"testbed/sim"
)

func defaultRun() estimate.Run {
	return estimate.Run{Inputs: estimate.Defaults(), Further: estimate.DefaultFurther()}
}

// drawRun draws runs of all sizes whose model fits on a node.
func drawRun(t *rapid.T) estimate.Run {
	between := func(name string, least, most float64) float64 {
		return math.Exp(rapid.Float64Range(math.Log(least), math.Log(most)).Draw(t, name))
	}
	whole := func(name string, least, most int) float64 {
		return float64(rapid.IntRange(least, most).Draw(t, name))
	}
	r := defaultRun()
	r.Parameters, r.VRAMPerNode = between("parameters", 1.1e6, 1e12), 1e6
	r.NumNodes, r.BandwidthMbps, r.LatencyMs = whole("nodes", 2, 100), between("Mbit/s", 1, 1e5), between("latency", 0.1, 1000)
	r.InnerSteps, r.LocalBatch, r.Compression = whole("steps", 1, 1000), between("batch", 1e3, 1e6), rapid.SampledFrom([]float64{1, 2, 4, 16, 100}).Draw(t, "compression")
	r.StreamingEnabled = rapid.Bool().Draw(t, "streaming")
	if rapid.Bool().Draw(t, "hierarchy") {
		r.UseHierarchy, r.NodesPerGroup, r.RegionalSteps = true, whole("group", 2, 20), whole("regional steps", 1, 30)
		r.NumNodes = r.NodesPerGroup * whole("groups", 2, 20)
		r.RegionalLatency = between("regional latency", 0.1, 100)
	}
	r.NodeSpread, r.StepSpread = rapid.Float64Range(0, 0.4).Draw(t, "nodeSpread"), rapid.Float64Range(0, 0.4).Draw(t, "stepSpread")
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	return r
}

// drawSmall draws a run that can be made small. Those that are next to nothing
// but computing, or sending, cannot. All nodes of a whole one are played, on one
// kind of links.
func drawSmall(t *rapid.T, whole bool) emulated.Small {
	r := drawRun(t)
	if whole {
		r.UseHierarchy, r.NumNodes = false, min(r.NumNodes, 16)
	}
	s, err := emulated.Shrink(r)
	if wrong, ok := errors.AsType[*errs.FieldError](err); ok && wrong.Field == "bandwidthMbps" {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	return s
}

// quantities of a run whose workers wait for each other: computing between two
// global syncs, a vector's transfer, a round trip; s.
func quantities(r estimate.Run) (block, transfer, latency float64) {
	in := r.Inputs
	in.StreamingEnabled, in.StragglerStrategy = false, "none"
	return estimate.Compute(in, estimate.Page).ComputeBlockSec, 16 * in.Parameters / in.Compression / (in.BandwidthMbps * 1e6), in.LatencyMs / 1000
}

func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance*math.Abs(b) }

// TestSmallIsTheSameRun: for each second of computing there is as much transfer
// and latency.
func TestSmallIsTheSameRun(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		s := drawSmall(t, false)
		block, transfer, latency := quantities(s.Of)
		b, x, l := quantities(s.Run)
		if !near(b, s.Scale*block, 1e-9) || !near(x/b, transfer/block, 1e-6) {
			t.Fatalf("%v s of computing and %v of transfer became %v and %v", block, transfer, b, x)
		}
		if math.Abs(l-s.Scale*latency) > 2e-9 { // whole nanoseconds one way
			t.Fatalf("a round trip of %v s became %v, with times by %v", latency, l, s.Scale)
		}
		in := s.Run.Inputs
		if in.NumNodes > 16 || in.NumNodes > s.Of.NumNodes || in.BandwidthMbps < 19.99 || in.BandwidthMbps > 201 {
			t.Fatalf("%v of %v nodes at %v Mbit/s", in.NumNodes, s.Of.NumNodes, in.BandwidthMbps)
		}
		if !s.Of.UseHierarchy && in.NumNodes != min(16, s.Of.NumNodes) || s.Of.UseHierarchy && (math.Mod(in.NumNodes, in.NodesPerGroup) != 0 || in.NumNodes < 2*in.NodesPerGroup) {
			t.Fatalf("%v nodes in groups of %v stand for %v in groups of %v", in.NumNodes, in.NodesPerGroup, s.Of.NumNodes, s.Of.NodesPerGroup)
		}
		if round := b + 2*(in.NumNodes-1)*(x/in.NumNodes+l/2); round > 3.01 {
			t.Fatalf("a round of %v s", round)
		}
	})
}

// TestThePageSharesAreThoseOfTheRun: where all nodes are played, the page says
// the same of the run and of the run in small.
func TestThePageSharesAreThoseOfTheRun(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		s := drawSmall(t, true)
		of := s.Of.Inputs
		of.StreamingEnabled = false
		a, b := estimate.Compute(of, estimate.Page), estimate.Compute(s.Run.Inputs, estimate.Page)
		if x, y := a.GlobalCommSec/a.ComputeBlockSec, b.GlobalCommSec/b.ComputeBlockSec; !near(y, x, 1e-5) {
			t.Fatalf("a sync takes %v of the computing, in small %v", x, y)
		}
	})
}

// TestWhatIsSmallStaysAsItIs.
func TestWhatIsSmallStaysAsItIs(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		once := drawSmall(t, true)
		block, transfer, latency := quantities(once.Run)
		if n := once.Run.NumNodes; block+2*(n-1)*(transfer/n+latency/2) < 0.3 {
			t.Skip("its law is shorter than the page's")
		}
		again, err := emulated.Shrink(once.Run)
		if err != nil && strings.Contains(err.Error(), "too little to emulate") {
			t.Skip("it was just enough, and rounded")
		}
		if err != nil {
			t.Fatal(err)
		}
		if a, b := once.Run.Inputs, again.Run.Inputs; !near(again.Scale, 1, 1e-4) || !near(b.Parameters, a.Parameters, 1e-4) || !near(b.BandwidthMbps, a.BandwidthMbps, 1e-4) || b.NumNodes != a.NumNodes {
			t.Fatalf("%+v\nbecame, by %v,\n%+v", a, again.Scale, b)
		}
	})
}

func TestWhatHasNoCounterpartIsRefused(t *testing.T) {
	for _, c := range []struct {
		change func(*estimate.Run)
		want   string
	}{
		{func(r *estimate.Run) { r.Parameters = 300e9 }, "vramPerNode is 2304 GB, too little for the model: runs with pipelines cannot be emulated"},
		{func(r *estimate.Run) { r.Parameters, r.NumNodes = 2e12, 20 }, "vramPerNode is 2304 GB"},
		{func(r *estimate.Run) { r.NumNodes = 1 }, "numNodes is 1: one node has no peer to sync with"},
		{func(r *estimate.Run) { r.UseHierarchy, r.NumNodes = true, 15 }, "nodesPerGroup is 8 of 15 nodes: a hierarchy needs two groups"},
		{func(r *estimate.Run) { r.BandwidthMbps = 1e-3 }, "bandwidthMbps is 0.001: a run with these links computes for"},
		{func(r *estimate.Run) { r.BandwidthMbps = 1e9 }, "bandwidthMbps is 1e+09: a run with these links sends for"},
		// A round of half a second, of which half a millisecond computes.
		{func(r *estimate.Run) {
			r.NumNodes, r.LatencyMs, r.InnerSteps, r.StreamingEnabled = 2, 500, 1, false
			r.Parameters, r.LocalBatch, r.Compression, r.BandwidthMbps = 1e9, 1e6, 16, 1e6
			r.PFLOPSPerNode, r.MFU = 6e9*1e6/0.5e-3/1e15, 1
		}, "bandwidthMbps is 1e+06: a run with these links computes for only 0.095 % of its time"},
	} {
		r := defaultRun()
		c.change(&r)
		_, err := emulated.Shrink(r)
		if _, ok := errors.AsType[*errs.FieldError](err); !ok || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("error %v, want %s", err, c.want)
		}
	}
}

// TestSmallRunsAreScenarios, with the links and the spread of the run.
func TestSmallRunsAreScenarios(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		s := drawSmall(t, false)
		played, _, err := s.Scenario(rapid.Uint64().Draw(t, "seed"))
		if err != nil {
			t.Fatal(err)
		}
		plan, err := played.Plan()
		if err != nil {
			t.Fatal(err)
		}
		in := s.Run.Inputs
		n := int(in.NumNodes)
		if len(plan.Nodes) != n+1 || !near(float64(plan.Nodes[1].RateUp), in.BandwidthMbps*1e6, 1e-7) || played.Real.Parameters != int(in.Parameters) {
			t.Fatalf("%d nodes at %v with %d values", len(plan.Nodes), plan.Nodes[1].RateUp, played.Real.Parameters)
		}
		if got := time.Duration(plan.Paths[1][n].OneWayDelay).Seconds(); math.Abs(got-in.LatencyMs/2000) > 1e-9 {
			t.Fatalf("a one-way delay of %v s, want half of %v ms", got, in.LatencyMs)
		}
		if plan.Paths[0][1].OneWayDelay != 0 || plan.Paths[n][0].OneWayDelay != 0 {
			t.Fatal("the coordinator is not near")
		}
		if s.Of.UseHierarchy {
			if got := time.Duration(plan.Paths[1][2].OneWayDelay).Seconds(); math.Abs(got-in.RegionalLatency/2000) > 1e-9 {
				t.Fatalf("a one-way delay of %v s in a group, want half of %v ms", got, in.RegionalLatency)
			}
		}
		if (s.Run.NodeSpread > 0 || s.Run.StepSpread > 0) != (played.Work != nil) {
			t.Fatalf("spreads of %v and %v are played as %+v", s.Run.NodeSpread, s.Run.StepSpread, played.Work)
		}
	})
}

// TestNodesAreAsFarApartAsExpected: their mean is that of all, and the slower of
// two takes as long as is known of two log-normal variables.
func TestNodesAreAsFarApartAsExpected(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		n, sigma := rapid.IntRange(1, 16).Draw(t, "n"), rapid.Float64Range(0, 0.4).Draw(t, "sigma")
		means := emulated.OrderMeans(n, sigma)
		sum := 0.0
		for i, m := range means {
			sum += m
			if i > 0 && m < means[i-1] {
				t.Fatalf("%v", means)
			}
		}
		if !near(sum, float64(n), 1e-5) {
			t.Fatalf("%v have the mean %v", means, sum/float64(n))
		}
	})
	const sigma = 0.3
	if got, want := emulated.OrderMeans(2, sigma)[1], 1+math.Erf(sigma/2); !near(got, want, 1e-5) {
		t.Errorf("the slower of two takes %v, want %v", got, want)
	}
}

// machine is what a calibration found out, docs/notes/calibrate.md.
var (
	machine = estimate.Measurements{Efficiency: 1, Hop: 1e-4, Reduce: 2.1e-3, ReduceByte: 4.5e-9, Stragglers: []estimate.Straggler{
		{Sigma: 0.02, Coefficient: 0.0085}, {Sigma: 0.05, Coefficient: 0.022}, {Sigma: 0.1, Coefficient: 0.045}, {Sigma: 0.2, Coefficient: 0.098}, {Sigma: 0.4, Coefficient: 0.23}}}
	costs = sim.Costs{Step: 630 * time.Microsecond, Message: 680 * time.Microsecond, Efficiency: 1, Hop: 100 * time.Microsecond, Reduce: 2100 * time.Microsecond, ReduceByte: 4.5, Dial: 9100 * time.Microsecond}
)

// small reads a run of docs/emulated and makes it small.
func small(t *testing.T, name string) emulated.Small {
	t.Helper()
	r := defaultRun()
	file := "../../docs/emulated/" + name + ".yaml"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := scenarios.Decode(file, text, &r); err != nil {
		t.Fatal(err)
	}
	s, err := emulated.Shrink(r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// simulated plays a run in small on its planned links.
func simulated(t *testing.T, s emulated.Small) []record.Summary {
	t.Helper()
	played, _, err := s.Scenario(1)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := experiment.OnLinks(played, scenarios.Baseline, costs, nil)
	if err != nil {
		t.Fatal(err)
	}
	return []record.Summary{sum}
}

// names are those of the runs in docs/emulated.
var names = []string{"three", "four", "six", "eight", "sixteen"}

// TestMeasuredTermsPredictWhatIsSimulated: round and share within 5 % for the
// runs of the documentation; a note has a table of them.
func TestMeasuredTermsPredictWhatIsSimulated(t *testing.T) {
	page, err := os.ReadFile("../../docs/notes/emulated.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		s := small(t, name)
		r, err := emulated.Judge(s, &machine, simulated(t, s), nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.World != record.Sim || r.Round.N != emulated.Rounds-1 {
			t.Errorf("%s: %d rounds of world %s", name, r.Round.N, r.World)
		}
		for _, p := range r.Predictions {
			if p.By == string(estimate.Measured) && !(near(p.RoundRatio, 1, emulated.Near) && near(p.ShareRatio, 1, emulated.Near)) {
				t.Errorf("%s: measured terms are off: %+v", name, p)
			}
		}
		var off, factors []string
		for _, x := range r.Terms {
			if x.Held != nil && !*x.Held {
				t.Errorf("%s: measured %s did not hold: %v, shown %+v", name, x.Name, *x.Measured, *x.Played)
			}
			if x.PageHeld != nil && !*x.PageHeld {
				off = append(off, x.Name)
				if shown := x.Played.Median; x.Name != "bytes" && shown > x.Tolerance {
					factors = append(factors, fmt.Sprintf("%s × %.2f", x.Name, x.Page/shown))
				}
			}
		}
		in := s.Run
		row := fmt.Sprintf("| `%s` | %v | %.4g | %.3g | %.4g | %.4g | %+.1f, %+.1f %% | %+.1f, %+.1f %% | %s |", name, in.NumNodes, in.BandwidthMbps, in.LatencyMs, in.NodeSpread, r.Round.Median,
			off100(r.Predictions[0].RoundRatio), off100(r.Predictions[0].ShareRatio), off100(r.Predictions[2].RoundRatio), off100(r.Predictions[2].ShareRatio), strings.Join(factors, ", "))
		if row = strings.ReplaceAll(row, " -", " −"); !strings.Contains(string(page), row+"\n") {
			t.Errorf("docs/notes/emulated.md lacks the row\n%s", row)
		}
		if len(off) < 3 {
			t.Errorf("%s: of the page's terms only %q did not hold", name, off)
		}
		if r.Whole == nil || !near(r.Whole.Corrected, r.Whole.Measured, emulated.Near) {
			t.Errorf("%s: the run itself: %+v", name, r.Whole)
		}
	}
}

// off100 is by how many percent a ratio is not 1.
func off100(ratio float64) float64 { return 100 * (ratio - 1) }

// TestJudgeTakesWholeRounds of real runs before simulated ones, but for the
// first of each and for those in which nodes were missing.
func TestJudgeTakesWholeRounds(t *testing.T) {
	s := small(t, "three")
	sim := simulated(t, s)
	real := []record.Summary{simulated(t, s)[0], simulated(t, s)[0]}
	for i := range real {
		real[i].World, real[i].Fidelity.Verdict = record.Real, fidelity.Suspect
		for k := range real[i].Rounds { // everything takes twice as long
			r := &real[i].Rounds[k]
			r.Start, r.Close, r.End, r.Reduce = 2*r.Start, 2*r.Close, 2*r.End, 2*r.Reduce
		}
	}
	real[0].Rounds[5].Participants = real[0].Rounds[5].Participants[:2]
	r, err := emulated.Judge(s, nil, sim, real)
	if err != nil {
		t.Fatal(err)
	}
	if r.World != record.Real || r.Round.N != 2*(emulated.Rounds-1)-1 || len(r.Verdicts) != 2 || r.Whole != nil {
		t.Errorf("%+v", r)
	}
	invalid := slices.Clone(real)
	invalid[0].Fidelity.Verdict = fidelity.Invalid
	if r, err := emulated.Judge(s, nil, sim, invalid); err != nil || r.Round.N != emulated.Rounds-1 || len(r.Verdicts) != 2 {
		t.Errorf("with an invalid run: %+v, %v", r, err)
	}
	invalid[1].Fidelity.Verdict = fidelity.Invalid
	if r, err := emulated.Judge(s, nil, sim, invalid); err != nil || r.Round.N != 2*(emulated.Rounds-1)-1 {
		t.Errorf("with nothing but invalid runs: %+v, %v", r, err)
	}
	last := r.Predictions[len(r.Predictions)-1]
	if last.By != emulated.Simulated || !near(last.RoundRatio, 0.5, 1e-4) || !near(last.ShareRatio, 1, 1e-4) {
		t.Errorf("%+v", last)
	}
	var out bytes.Buffer
	if err := r.Write(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"3 nodes at 200 Mbit/s", "measured on the emulated network (rounds: 19; fidelity of the runs: suspect, suspect)", "−50.0 %", "not tested here", "With --calibration this output also contains measured terms"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

// TestJudgeNeedsARound: a run that ends early may have none.
func TestJudgeNeedsARound(t *testing.T) {
	s := small(t, "three")
	early := simulated(t, s)
	early[0].Rounds = early[0].Rounds[:1]
	if r, err := emulated.Judge(s, nil, nil, early); r != nil || err == nil {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestNotesSayWhatIsAnotherThing.
func TestNotesSayWhatIsAnotherThing(t *testing.T) {
	r := defaultRun()
	r.UseHierarchy, r.StragglerStrategy, r.IsMoE, r.ExpertParallelism = true, "threshold", true, "regional"
	s, err := emulated.Shrink(r)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(s.Notes, "\n")
	for _, want := range []string{"16 nodes are played in place of 72: at most 16 can be played, in whole groups", "do not overlap", "threshold is not played", "experts", "left out (number: 15)", "regionalBandwidth is not played", "one-way delay"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in\n%s", want, all)
		}
	}
	if got := small(t, "six").Notes; len(got) != 0 {
		t.Errorf("notes %q", got)
	}
}
