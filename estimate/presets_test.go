package estimate_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"testbed/estimate"
)

// TestPresetsBesideWhatWasReported: docs/notes/estimate.md has the table of what was
// published and what is estimated, for both variants.
func TestPresetsBesideWhatWasReported(t *testing.T) {
	page, err := os.ReadFile("../docs/notes/estimate.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, v := range []estimate.Variant{estimate.Page, estimate.Document} {
		for _, p := range estimate.Presets(v) {
			if err := p.Inputs.Check(); err != nil {
				t.Errorf("%s: %v", p.Name, err)
			}
			if p.Source == "" || p.Description == "" || seen[p.Name] && v == estimate.Page {
				t.Errorf("preset %+v needs a name of its own, a description and a source", p)
			}
			seen[p.Name] = true
			if !strings.Contains(string(page), "`"+p.Name+"`") {
				t.Errorf("docs/notes/estimate.md does not name %s", p.Name)
			}
			for _, r := range p.Reported {
				figure := fmt.Sprintf("%.4g", r.Estimate)
				if r.Estimate >= 1000 {
					figure = fmt.Sprintf("%.0f", r.Estimate)
				}
				row := fmt.Sprintf("| `%s` | %s | %v %s | %s | %.2f |", p.Name, r.What, r.Value, r.Unit, figure, r.Ratio)
				if !strings.Contains(string(page), row+"\n") {
					t.Errorf("docs/notes/estimate.md lacks the row\n%s", row)
				}
				if (math.Abs(r.Ratio-1) > 0.2) != (r.Term != "") {
					t.Errorf("%s, %s: ratio %.2f, wrong term %q", p.Name, r.What, r.Ratio, r.Term)
				}
			}
		}
	}
}

// TestEveryWarningIsInTheDocs by its code.
func TestEveryWarningIsInTheDocs(t *testing.T) {
	page, err := os.ReadFile("../docs/estimate.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range estimate.Codes() {
		if !strings.Contains(string(page), "`"+code+"`") {
			t.Errorf("docs/estimate.md does not explain %s", code)
		}
	}
}

// TestAttentionIsWhatMPTLacks: with attention's 12 · layers · width · context
// per token beside 6 · P, the estimate is what was measured.
func TestAttentionIsWhatMPTLacks(t *testing.T) {
	context := map[string]float64{"mpt-7b-2k": 2048, "mpt-7b-8k": 8192, "mpt-7b-64k": 65536}
	for _, p := range estimate.Presets(estimate.Page) {
		if s, ok := context[p.Name]; ok {
			flop := 6 * p.Inputs.Parameters
			if with := p.Reported[0].Ratio * flop / (flop + 12*32*4096*s); math.Abs(with-1) > 0.002 {
				t.Errorf("%s: × %.4f with attention, want 1", p.Name, with)
			}
		}
	}
}

// TestTextsAreWrapped and say the days first.
func TestTextsAreWrapped(t *testing.T) {
	for _, c := range readGolden(t).Cases {
		var b bytes.Buffer
		if err := estimate.WriteText(&b, estimate.Explain(c.Inputs, estimate.Page)); err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(b.String(), "\n")
		if !strings.Contains(first, " days") {
			t.Errorf("%s: the first line is %q", c.ID, first)
		}
		for line := range strings.Lines(b.String()) {
			if strings.HasPrefix(line, "  - ") && len([]rune(line)) > 81 {
				t.Errorf("%s: too long: %q", c.ID, line)
			}
		}
	}
}

// BenchmarkCompute estimates all golden cases in turn. A goal of a million
// points a minute on two cores leaves 120 µs for each.
func BenchmarkCompute(b *testing.B) {
	cases := readGolden(b).Cases
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		_ = estimate.Compute(cases[i%len(cases)].Inputs, estimate.Page)
		i++
	}
	b.ReportMetric(60*float64(b.N)/b.Elapsed().Seconds()/1e6, "10⁶points/min")
}

// TestTheRateThatIsEnough: where the network bounds a run, the text names the
// rate at which it no longer does.
func TestTheRateThatIsEnough(t *testing.T) {
	var b bytes.Buffer
	if err := estimate.WriteText(&b, estimate.Explain(estimate.Defaults(), estimate.Page)); err != nil {
		t.Fatal(err)
	}
	if want := "332.8 Mbit/s"; !strings.Contains(b.String(), want) {
		t.Errorf("the text does not name %s:\n%s", want, b.String())
	}
	in := estimate.Defaults()
	in.BandwidthMbps = 332.9
	if got := estimate.Compute(in, estimate.Page).Bottleneck; got != "Compute" {
		t.Errorf("with more than that the bottleneck is %s", got)
	}
}
