package estimate_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"testbed/estimate"
)

// TestPresetsBesideWhatWasReported: estimate ÷ report, by preset, in the order
// in which they are reported.
func TestPresetsBesideWhatWasReported(t *testing.T) {
	want := map[string][]float64{
		"intellect-1-usa":        {0.82, 0.99, 0.86},
		"intellect-1-usa-europe": {0.82, 0.97, 0.84},
		"intellect-1-global":     {0.82, 0.96, 0.83},
		"diloco":                 {0.74},
		"diloco-1b":              {2.40},
		"diloco-100b":            {2.66},
		"streaming-diloco-1b":    {0.35},
		"streaming-diloco-10b":   {0.64},
		"streaming-diloco-100b":  {1.25},
		"mpt-7b-2k":              {1.08},
		"mpt-7b-8k":              {1.32},
		"mpt-7b-64k":             {3.48},
		"llama-3.1-405b":         {0.86},
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
			if len(p.Reported) != len(want[p.Name]) {
				t.Errorf("%s: %d figures reported, want %d", p.Name, len(p.Reported), len(want[p.Name]))
				continue
			}
			for i, r := range p.Reported {
				if math.Abs(r.Ratio-want[p.Name][i]) > 0.0051 {
					t.Errorf("%s, %s: %.4f, want %.2f", p.Name, r.What, r.Ratio, want[p.Name][i])
				}
				if (math.Abs(r.Ratio-1) > 0.2) != (r.Term != "") {
					t.Errorf("%s, %s: ratio %.2f, wrong term %q", p.Name, r.What, r.Ratio, r.Term)
				}
			}
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
