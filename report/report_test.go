package report_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/experiment"
	"testbed/policy"
	"testbed/record"
	"testbed/report"
	"testbed/scenarios"
	"testbed/shaping/fidelity"
	"testbed/sim"

	"testbed/internal/stats"
)

var update = flag.Bool("update", false, "write the golden files anew")

func simulated(t *testing.T, name string) (*scenarios.Scenario, report.Set) {
	t.Helper()
	s, err := scenarios.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	pair := report.Set{}
	for _, p := range scenarios.PolicyNames {
		if pair[p], err = experiment.OnChurn(s, p, nil); err != nil {
			t.Fatal(err)
		}
	}
	return s, pair
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), or run with -update:\n%s", file, diff)
	}
}

func TestSummary(t *testing.T) {
	for _, name := range []string{"persistent_straggler", "crash_mid_round", "late_join", "graceful_leave"} {
		s, pair := simulated(t, name)
		var b strings.Builder
		for _, p := range scenarios.PolicyNames {
			if err := report.WriteSummary(&b, s, pair[p]); err != nil {
				t.Fatal(err)
			}
			b.WriteString("\n")
		}
		golden(t, name, b.String())
	}
}

// real makes a measured pair of a simulated one, slower by a factor.
func real(simulated report.Set, factor policy.Time) report.Set {
	yes := true
	pair := report.Set{}
	for name, sum := range simulated {
		sum.World, sum.Links, sum.BitIdentical = record.Real, "user", &yes
		sum.WallClock *= factor
		pair[name] = sum
	}
	return pair
}

func TestComparison(t *testing.T) {
	s, pair := simulated(t, "persistent_straggler")
	c := &report.Comparison{Policies: scenarios.PolicyNames, Scenario: s.Name, Sim: pair, Real: real(pair, 1), Dir: "runs/somewhere"}
	incomplete := c.Real[scenarios.Baseline]
	incomplete.Complete, incomplete.OuterSteps = false, 3
	incomplete.Fidelity = fidelity.Verdict{Verdict: "invalid", Reasons: []string{"one", "two"}}
	c.Real[scenarios.Baseline] = incomplete
	c.Conclude()
	var b strings.Builder
	if err := report.WriteComparison(&b, s, c, true); err != nil {
		t.Fatal(err)
	}
	golden(t, "comparison", b.String())
}

// TestComparisonOnPlannedLinks shows the second prediction and where both are
// wrong.
func TestComparisonOnPlannedLinks(t *testing.T) {
	s, pair := simulated(t, "persistent_straggler")
	links := report.Set{}
	for _, name := range scenarios.PolicyNames {
		sum, err := experiment.OnLinks(s, name, sim.Costs{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		links[name] = sum
	}
	c := &report.Comparison{Policies: scenarios.PolicyNames, Scenario: s.Name, Sim: pair, SimLinks: links, Real: real(links, 1), Dir: "runs/somewhere"}
	c.Conclude()
	for _, name := range scenarios.PolicyNames {
		r := c.Residuals[name]
		total := r.Sim.Compute + r.Sim.Transfer + r.Sim.Control + r.Sim.StateFetch + r.Sim.Deadline
		if (r.SimLinks != record.Split{}) || total != pair[name].WallClock-links[name].WallClock || c.LinksPredictionError[name] != 0 || c.PredictionError[name] == 0 {
			t.Errorf("%s: residuals %+v, errors %v and %v", name, r, c.PredictionError[name], c.LinksPredictionError[name])
		}
	}
	var b strings.Builder
	if err := report.WriteComparison(&b, s, c, true); err != nil {
		t.Fatal(err)
	}
	golden(t, "comparison_links", b.String())
}

func TestConclude(t *testing.T) {
	_, pair := simulated(t, "persistent_straggler")
	c := &report.Comparison{Policies: scenarios.PolicyNames, Sim: pair, Real: real(pair, 2), Repeats: []report.Set{real(pair, 4), real(pair, 4)}}
	c.Conclude()
	speedups, ok := c.Speedup.Real.([]float64)
	if !ok || len(speedups) != 3 || speedups[0] != c.Speedup.Sim {
		t.Errorf("speed-ups %v, simulated %v", c.Speedup.Real, c.Speedup.Sim)
	}
	// The median of the measured wall-clocks is four times the simulated one.
	for _, name := range scenarios.PolicyNames {
		if got := c.PredictionError[name]; got != -0.75 {
			t.Errorf("%s: prediction error %v, want -0.75", name, got)
		}
	}
}

// TestEverySeedHasItsPredictions: a pair counts against what was simulated with
// its own seed, on either network, and the text shows medians.
func TestEverySeedHasItsPredictions(t *testing.T) {
	s, pair := simulated(t, "persistent_straggler")
	c := &report.Comparison{Policies: scenarios.PolicyNames, Scenario: s.Name, Sim: pair, SimLinks: pair, Real: real(pair, 1), Dir: "runs/somewhere"}
	for _, factor := range []policy.Time{2, 2} {
		c.Repeats = append(c.Repeats, real(pair, factor))
		c.SimRepeats, c.SimLinksRepeats = append(c.SimRepeats, real(pair, factor)), append(c.SimLinksRepeats, real(pair, factor))
	}
	c.Conclude()
	for _, name := range scenarios.PolicyNames {
		for _, e := range []stats.Estimate{c.Statistics.PredictionError[name], c.Statistics.LinksPredictionError[name]} {
			if e.N != 3 || e.Median != 0 || !e.Same {
				t.Errorf("%s: errors %+v, want none", name, e)
			}
		}
	}
	var b strings.Builder
	if err := report.WriteComparison(&b, s, c, true); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "184,100 µs"); n != 3 { // measured, and on both networks
		t.Errorf("the baseline's median stands there %d times:\n%s", n, b.String())
	}
}

// TestStatistics: five pairs, of which one is an outlier and one is incomplete.
func TestStatistics(t *testing.T) {
	s, pair := simulated(t, "persistent_straggler")
	c := &report.Comparison{Policies: scenarios.PolicyNames, Scenario: s.Name, Sim: pair, Real: real(pair, 2), Dir: "runs/somewhere"}
	for i := range 4 {
		again := real(pair, 2)
		sum := again[scenarios.Baseline]
		sum.WallClock += policy.Time(100 * i)
		if i == 3 {
			sum.WallClock, sum.Complete = 1, false
		}
		again[scenarios.Baseline] = sum
		c.Repeats, c.SimRepeats = append(c.Repeats, again), append(c.SimRepeats, pair)
	}
	c.Conclude()
	var b strings.Builder
	if err := report.WriteComparison(&b, s, c, true); err != nil {
		t.Fatal(err)
	}
	golden(t, "statistics", b.String())
}

func TestNoDifferenceShown(t *testing.T) {
	_, pair := simulated(t, "homogeneous")
	c := &report.Comparison{Policies: scenarios.PolicyNames, Sim: pair, Real: real(pair, 1), Repeats: []report.Set{real(pair, 1), real(pair, 1)}}
	c.Conclude()
	for world, finding := range c.Statistics.Finding {
		if finding != "no difference shown" {
			t.Errorf("%s: %q", world, finding)
		}
	}
}
