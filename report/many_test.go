package report_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"testbed/internal/browser"
	"testbed/policy"
	"testbed/record"
	"testbed/report"
	"testbed/report/runs"
	"testbed/scenarios"
)

// made are results of four policies, of which the last takes longer and loses
// more than the one before it.
var made = []struct {
	spec  string
	like  string  // whose simulation they are made of
	share float64 // of its wall-clock
	lost  int     // of 60 steps
}{
	{"baseline", "baseline", 1, 0},
	{"straggler", "straggler", 1, 9},
	{"straggler:k=5", "straggler", 1.25, 3},
	{"backup:b=1", "straggler", 1.3, 6},
}

func specs() (all []string) {
	for _, m := range made {
		all = append(all, m.spec)
	}
	return all
}

// madeSet returns the results with a seed: in the real world a tenth slower, and
// the last two in the other order with every fourth seed.
func madeSet(t *testing.T, s *scenarios.Scenario, world string, n int) report.Set {
	t.Helper()
	set := report.Set{}
	for k, m := range made {
		sum := simulatedRun(t, s, m.like).Summary
		share := m.share * (1 + .001*float64(n*(k+1)))
		sum.Policy, sum.Seed, sum.Work = m.spec, s.Seed+uint64(n), &record.Work{Lost: float64(m.lost) / 60}
		switch world {
		case "sim_links":
			sum.Links = runs.Planned
		case record.Real:
			share *= 1.1
			if k == 3 && n%4 == 3 {
				share *= .9
			}
			sum.World, sum.Links, sum.BitIdentical, sum.Fidelity.Verdict = record.Real, "user", new(true), "valid"
		}
		sum.WallClock = policy.Time(math.Round(share * float64(sum.WallClock)))
		set[m.spec] = sum
	}
	return set
}

func many(t *testing.T, seeds int, worlds ...string) (*scenarios.Scenario, *report.Comparison) {
	t.Helper()
	s, err := scenarios.Load("persistent_straggler")
	if err != nil {
		t.Fatal(err)
	}
	c := &report.Comparison{Scenario: s.Name, Policies: specs(), Dir: "runs/somewhere"}
	for _, world := range worlds {
		to, others := &c.Real, &c.Repeats
		switch world {
		case record.Sim:
			to, others = &c.Sim, &c.SimRepeats
		case "sim_links":
			to, others = &c.SimLinks, &c.SimLinksRepeats
		}
		*to = madeSet(t, s, world, 0)
		for n := 1; n < seeds; n++ {
			*others = append(*others, madeSet(t, s, world, n))
		}
	}
	c.Conclude()
	return s, c
}

func text(t *testing.T, s *scenarios.Scenario, c *report.Comparison) string {
	t.Helper()
	var b strings.Builder
	if err := report.WriteComparison(&b, s, c, true); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// keys are those of a value as JSON, sorted.
func keys(t *testing.T, v any) []string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(b, &object); err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(object))
}

func TestManyPolicies(t *testing.T) {
	s, c := many(t, 5, record.Sim, "sim_links", record.Real)
	incomplete := c.Repeats[3]["straggler:k=5"]
	incomplete.Complete = false
	c.Repeats[3]["straggler:k=5"] = incomplete
	c.Conclude()
	golden(t, "comparison_many", text(t, s, c))
	if c.Speedup != nil || len(c.Speedups) != 3 || c.Statistics.Speedups["straggler"][record.Real].N != 5 || c.Statistics.Speedups["straggler:k=5"][record.Real].N != 4 {
		t.Errorf("speed-ups %+v, of repeats %+v", c.Speedups, c.Statistics.Speedups)
	}
	for _, world := range []string{record.Sim, "sim_links"} {
		if r := c.RankCorrelation[world]; r.Tau == nil || *r.Tau != 1 || r.Interval == nil || r.Interval.Low >= 1 || r.N != 5 || r.Things != 4 {
			t.Errorf("%s against measured: %+v", world, r)
		}
	}
}

// TestOneWorld: nothing is said of a world that was not played.
func TestOneWorld(t *testing.T) {
	s, c := many(t, 1, record.Sim, "sim_links")
	golden(t, "comparison_sim", text(t, s, c))
	if want := []string{"comparisons", "dir", "policies", "predictions", "runs", "scenario", "sim", "sim_links", "speedups", "statistics"}; !slices.Equal(keys(t, c), want) {
		t.Errorf("simulated: %q, want %q", keys(t, c), want)
	}
	s, c = many(t, 2, record.Real)
	if want := []string{"comparisons", "dir", "policies", "predictions", "real", "repeats", "runs", "scenario", "speedups", "statistics"}; !slices.Equal(keys(t, c), want) {
		t.Errorf("measured: %q, want %q", keys(t, c), want)
	}
	if got := text(t, s, c); strings.Contains(got, "simulat") || !strings.Contains(got, "fidelity     valid") {
		t.Errorf("measured only:\n%s", got)
	}
	c.Policies = c.Policies[:1]
	c.Speedups = nil
	c.Conclude()
	if got := text(t, s, c); strings.Contains(got, "speed-up") {
		t.Errorf("one policy has a speed-up:\n%s", got)
	}
}

// TestTwoPoliciesAsEver: what a comparison of two policies holds in both worlds
// has the names that it has had, policies and the lists.
func TestTwoPoliciesAsEver(t *testing.T) {
	_, pair := simulated(t, "persistent_straggler")
	c := &report.Comparison{Policies: scenarios.PolicyNames, Sim: pair, SimLinks: pair, Real: real(pair, 1)}
	c.Conclude()
	for what, v := range map[string]any{
		"comparisons dir links_prediction_error policies prediction_error predictions real residuals runs scenario sim sim_links speedup statistics": c,
		"real sim sim_links": c.Speedup,
		"finding links_prediction_error prediction_error speedup": c.Statistics,
		"real sim": c.Statistics.Speedup,
	} {
		if got := strings.Join(keys(t, v), " "); got != what {
			t.Errorf("got  %s\nwant %s", got, what)
		}
	}
}

// manyRuns is a record of what many makes.
func manyRuns(t *testing.T, seeds int, worlds ...string) *runs.Record {
	t.Helper()
	s, c := many(t, seeds, worlds...)
	rec := &runs.Record{Scenario: s, Library: true, OwnScale: s.Real.TimeScale}
	for _, set := range slices.Concat([]report.Set{c.Sim, c.SimLinks, c.Real}, c.SimRepeats, c.SimLinksRepeats, c.Repeats) {
		for _, m := range made {
			if sum, ok := set[m.spec]; ok {
				rec.Runs = append(rec.Runs, runs.Run{Summary: sum, Events: simulatedRun(t, s, m.like).Events})
			}
		}
	}
	return rec
}

func TestPageOfManyPolicies(t *testing.T) {
	rec := manyRuns(t, 5, record.Sim, "sim_links", record.Real)
	page := strings.NewReplacer("\u00a0", " ", `<br><span class="soft">`, " ", "&#43;", "+", "&#39;", "'").Replace(html(t, rec))
	for _, want := range []string{
		"Of 4 policies, straggler was the fastest. Over 5 seeds it was 4.58× as fast as the baseline (4.57× to 4.59×).",
		"3 of 4 policies left workers out", "straggler:k=5: 3.658× (3.643–3.672), straggler:k=5 is faster.", "order of the 4 policies, simulated against measured: Kendall's τ 1.00",
		"All policies share one axis", `<td>measured</td><th scope="row">straggler:k=5</th>`, `<td class="n">5.0 %</td><td>yes</td>`, `<td class="n">10.0 %</td><td>–</td>`,
		"<dt>policies</dt><dd>straggler: quorum=0.75, k=3,", "straggler:k=5: quorum=0.75, k=5,", "<dt>backup</dt><dd>close a round without the last b arrivals (backup workers)</dd>",
		"testbed compare persistent_straggler --policy baseline,straggler,straggler:k=5,backup:b=1 --links user --repeat 5",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	var data struct {
		Trade []struct {
			Policy, World string
			Lost          float64
			Front         bool
		}
	}
	if err := json.Unmarshal([]byte(dataBlock(t, page)), &data); err != nil {
		t.Fatal(err)
	}
	var front []string
	for _, s := range data.Trade {
		if s.Front {
			front = append(front, s.World+" "+s.Policy)
		}
	}
	var want []string
	for _, world := range []string{"sim", "sim_links", "real"} {
		want = append(want, world+" baseline", world+" straggler", world+" straggler:k=5")
	}
	if len(data.Trade) != 12 || !slices.Equal(front, want) {
		t.Errorf("%d points, on the front %q, want %q", len(data.Trade), front, want)
	}
	if page := html(t, manyRuns(t, 1, record.Sim, "sim_links")); !strings.Contains(page, "--world sim") || !strings.Contains(page, "simulated only") {
		t.Error("the page of simulated policies is not one")
	}
}

// TestTradeInABrowser: the picture is drawn with every policy's name in it.
func TestTradeInABrowser(t *testing.T) {
	browser.Find(t)
	t.Parallel()
	file := filepath.Join(t.TempDir(), "report.html")
	write(t, html(t, manyRuns(t, 1, record.Sim, "sim_links", record.Real)), file)
	v := browser.Show(t, file, 1200, "--dump-dom")
	v.IsQuiet(t)
	var drawn, width int
	if _, err := fmt.Sscanf(v.Title(t), "%d %d", &drawn, &width); err != nil || drawn != 4 || width > 1200 {
		t.Errorf("%q: want 4 pictures, at most 1200 wide: %v", v.Title(t), err)
	}
	var shapes map[string]struct{ Text string }
	_, rest, _ := strings.Cut(v.DOM, `<pre id="shapes">`)
	drawing, _, _ := strings.Cut(rest, "</pre>")
	if err := json.Unmarshal([]byte(drawing), &shapes); err != nil {
		t.Fatal(err)
	}
	for _, word := range append(specs(), "wall-clock", "%") {
		if !strings.Contains(shapes["trade"].Text, word) {
			t.Errorf("the picture of the trade does not say %q: %s", word, shapes["trade"].Text)
		}
	}
}
