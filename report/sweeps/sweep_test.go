package sweeps_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"testbed/experiment"
	"testbed/experiment/sweep"
	"testbed/internal/browser"
	"testbed/record"
	"testbed/report/sweeps"
	"testbed/scenarios"
)

// swept plays a sweep in the simulator and leaves its directory as the command
// does.
func swept(t *testing.T, seeds int, policies []string, fields ...string) string {
	t.Helper()
	source, err := scenarios.Find("persistent_straggler")
	if err != nil {
		t.Fatal(err)
	}
	s, err := source.Parse()
	if err != nil {
		t.Fatal(err)
	}
	var axes []sweep.Axis
	for _, f := range fields {
		axis, err := sweep.ParseAxis(f)
		if err != nil {
			t.Fatal(err)
		}
		axes = append(axes, axis)
	}
	p := &sweep.Plan{Scenario: s, Text: source.Text, World: record.Sim, Repeats: 1, Policies: policies}
	p.Train = slices.Contains(fields, "train.task=charlm")
	for seed := range seeds {
		p.Seeds = append(p.Seeds, uint64(seed+1))
	}
	if p.Cells, err = sweep.Grid(nil, axes); err != nil {
		t.Fatal(err)
	}
	dir, keys := record.Dir(t.TempDir()), p.Keys()
	table, done, err := sweep.OpenTable(dir.Path(sweep.TableFile), p)
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range keys {
		pt := p.Point(i)
		s, err := p.Scenario.With(pt.Set...)
		if err != nil {
			t.Fatal(err)
		}
		s.Seed = pt.Seed
		name, parameters, _ := strings.Cut(pt.Policy, ":")
		sum, err := experiment.OnChurn(s, name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if sum.Policy = pt.Policy; parameters != "" { // as if they halved the speed
			sum.WallClock *= 2
		}
		if p.Train { // as if it had
			sum.TokensSeen, sum.TokensLost = new(100), new(0)
			for k := range sum.Rounds {
				sum.Rounds[k].Loss = &record.RoundLoss{Validation: new(3 - float64(k+s.InnerSteps)/10)}
			}
		}
		done[key] = p.NewRow(key, pt, sum)
		if err := table.Add(done[key]); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	if err := dir.WriteJSON(record.SummaryFile, p.Summarise(keys, done)); err != nil {
		t.Fatal(err)
	}
	return string(dir)
}

func sweepHTML(t *testing.T, dir string) string {
	t.Helper()
	r, err := sweep.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := sweeps.WriteHTML(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestSweepPage: the page says what the sweep shows, and its data and tables
// hold what was measured.
func TestSweepPage(t *testing.T) {
	for _, c := range []struct {
		name string
		dir  string
		want []string
	}{
		{"curves", swept(t, 3, scenarios.PolicyNames, "workers[3].inner_step_mean=100,1000,2000"), []string{
			"Over 3 cells, the straggler policy was 1.00× to 5.89× as fast as the baseline. Its speed-up was largest with inner_step_mean=2000. It was never slower, but in 1 cell no difference was shown.",
			"<strong>5.89×</strong>", "Faster in 2, slower in 0, and no difference shown in 1 of 3 cells.", "18 of 18 points",
			"Where all runs of a cell took the same time, the seeds change nothing, and there is no interval.", "no difference shown</td>", "--set &#39;workers[3].inner_step_mean=100,1000,2000&#39; --seeds 1..3",
			"92,050</td>"}},
		{"without intervals", swept(t, 1, scenarios.PolicyNames, "policy.straggler.k=1,2", "inner_steps=1,2"), []string{
			"Over 4 cells, the straggler policy was 4.59× to 6.95× as fast as the baseline. Its speed-up was largest with k=1, inner_steps=1 (and in 1 other cell). It was never slower.",
			"Where there are fewer than 3 pairs of runs, there is no interval"}},
		{"one policy", swept(t, 1, []string{"baseline"}, "inner_steps=1,2"), []string{
			"Under baseline, the wall-clock of 2 cells lies between 42,050 and 92,050 µs. It is shortest with inner_steps=1.", "Only one policy was swept.", "--policy baseline"}},
		{"three policies", swept(t, 3, []string{"baseline", "straggler:k=5", "straggler"}, "workers[3].inner_step_mean=100,1000,2000"), []string{
			"Of 3 policies, straggler gained the most. Over 3 cells, the straggler policy was 1.00× to 5.89× as fast as the baseline. Its speed-up was largest with inner_step_mean=2000. It was never slower, but in 1 cell no difference was shown.",
			"Is a policy ever slower than the baseline?", "yes, in 1 of 6 comparisons", "straggler:k=5: faster in 2, slower in 1, and no difference shown in 0 of 3 cells.",
			"under baseline, straggler:k=5, straggler.", "--policy baseline,straggler:k=5,straggler", ">baseline / straggler:k=5</th>"}},
		{"other parameters of one policy", swept(t, 1, []string{"straggler", "straggler:k=5"}, "inner_steps=1,2"), []string{
			"Policy straggler:k=5 was 0.50× as fast as the straggler policy in each of 2 cells. It was slower in 2 cells."}},
		{"one cell of one policy", swept(t, 1, []string{"baseline"}), []string{"Under baseline, the wall-clock is 92,050 µs."}},
		{"losses", swept(t, 3, scenarios.PolicyNames, "train.task=charlm", "inner_steps=2,4"), []string{
			"What was learnt?", "validation loss down to 2.200", "Lowest loss: baseline with inner_steps=4.", "Fastest to a loss of 2.40: straggler with inner_steps=2, after 20.1 ms.", "as fast as the baseline in reaching a loss of 2.40", "Loss curves", `"curves":[{"cell":0,"policy":0,"points":[{"round":1,`, "All points have train.task=charlm.",
			"time to a loss of 2.40, µs (median)", "2.400</td>", "--train --loss 2.4"}},
		{"seeds alone", swept(t, 3, scenarios.PolicyNames), []string{
			"The straggler policy was 4.59× as fast as the baseline.", "the scenario as it is"}},
	} {
		html := sweepHTML(t, c.dir)
		plain := strings.ReplaceAll(html, "\u00a0", " ")
		for _, want := range c.want {
			if !strings.Contains(plain, want) {
				t.Errorf("%s: the page does not say %q", c.name, want)
			}
		}
		var data struct {
			Cells   [][]int
			Figures []struct {
				Name  string
				Lines []struct{ Points [][]float64 }
			}
		}
		_, rest, _ := strings.Cut(html, `id="data">`)
		block, _, _ := strings.Cut(rest, "</script>")
		if err := json.Unmarshal([]byte(block), &data); err != nil {
			t.Fatal(err)
		}
		means := map[string][]float64{} // of the first policy, which loses no work
		for _, f := range data.Figures {
			for _, l := range f.Lines {
				if len(l.Points) != len(data.Cells) {
					t.Errorf("%s: %s has %d points for %d cells", c.name, f.Name, len(l.Points), len(data.Cells))
				}
			}
			for _, p := range f.Lines[0].Points {
				means[f.Name] = append(means[f.Name], p[:min(1, len(p))]...)
			}
		}
		if all := means["effective wall-clock"]; c.name == "curves" && (len(all) == 0 || !slices.Equal(all, means["wall-clock"])) {
			t.Errorf("%s: the effective wall-clocks of a policy that loses nothing are %v, its wall-clocks %v", c.name, all, means["wall-clock"])
		}
	}
}

// TestSweepPageOfAHostileField: no text of a sweep becomes markup.
func TestSweepPageOfAHostileField(t *testing.T) {
	dir := swept(t, 1, scenarios.PolicyNames, "inner_steps=1,2")
	r, err := sweep.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	const hostile = `</script><img src=x onerror=alert(1)>`
	r.Scenario, r.Dir = hostile, hostile
	r.Fields[0] = sweep.Axis{Field: hostile, Values: []string{hostile, "2"}}
	var b bytes.Buffer
	if err := sweeps.WriteHTML(&b, r); err != nil {
		t.Fatal(err)
	}
	library, err := os.ReadFile("../document/echarts/echarts.min.js")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(strings.Replace(b.String(), string(library), "", 1), "<img") {
		t.Error("text of the sweep became markup")
	}
}

// TestSweepInABrowser: pictures of one field and of three, in every figure.
func TestSweepInABrowser(t *testing.T) {
	browser.Find(t)
	for _, c := range []struct {
		name     string
		width    int
		policies []string
		fields   []string
		words    []string
	}{
		{"curves", 1200, scenarios.PolicyNames, []string{"workers[*].inner_step_jitter=0,300,900"}, []string{"workers[*].inner_step_jitter", "900", "4.00×"}},
		{"maps of four policies", 1200, []string{"baseline", "straggler", "straggler:k=5", "baseline:a=1"}, []string{"inner_steps=1,2", "policy.straggler.k=1,2"}, []string{"baseline / straggler:k=5", "baseline / baseline:a=1"}},
		{"maps on a phone", 390, scenarios.PolicyNames, []string{"inner_steps=1,2", "policy.straggler.k=1,2", "policy.straggler.quorum=0.5,0.75"}, []string{"policy.straggler.quorum", "6.95×"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "report.html")
			page := sweepHTML(t, swept(t, 3, c.policies, c.fields...))
			if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
				t.Fatal(err)
			}
			v := browser.Show(t, file, c.width, "--dump-dom")
			v.IsQuiet(t)
			var drawn, width int
			if _, err := fmt.Sscanf(v.Title(t), "%d %d", &drawn, &width); err != nil || drawn != 1 || width > c.width {
				t.Errorf("%q: want a picture, at most %d wide: %v", v.Title(t), c.width, err)
			}
			for _, word := range c.words {
				if !strings.Contains(v.DOM, word) {
					t.Errorf("the picture does not say %q", word)
				}
			}
			if !strings.Contains(v.DOM, `"figures":"speed-up wall-clock`) {
				t.Errorf("the figures that were chosen one after the other: %.3000s", v.DOM)
			}
		})
	}
}
