package estimate_test

import (
	"bytes"
	"strings"
	"testing"

	"testbed/estimate"
)

// TestSheets: a sheet says of each point what the command prints, and of the run
// itself what an estimate of it alone says.
func TestSheets(t *testing.T) {
	for _, c := range []struct {
		headline string
		measured bool
		change   func(*estimate.Run)
		axes     []string
		settings string
		limit    bool
	}{
		{"By the formulas of the variant page, 3 of 6 points are within the limit of 136.9 days for a run. The shortest run takes 86.31 days, with numNodes=128 and bandwidthMbps=100.", false,
			func(r *estimate.Run) { r.LatencyMs, r.UseHierarchy = 30, true }, []string{"numNodes=16,128", "bandwidthMbps=100,400,1600"}, "latencyMs=30 useHierarchy=true", true},
		{"With measured terms, none of the 2 points is within the limit of 136.9 days for a run. The shortest run takes 231.5 days, with nodeSpread=0.", true,
			func(r *estimate.Run) { r.Fragments = 4; r.BandwidthMbps = 400 }, []string{"nodeSpread=0,2e-1"}, "bandwidthMbps=400 fragments=4", true},
		{"By the formulas of the variant page, all 2 points are within the time that a run may take. The shortest run takes 73.79 days, with hwGrowth=0.", false,
			func(r *estimate.Run) { r.NumNodes, r.BandwidthMbps = 144, 1e4 }, []string{"hwGrowth=0,0.1"}, "numNodes=144 bandwidthMbps=10000", false},
		{"By the formulas of the variant page, the run is not within the limit of 136.9 days for a run. It takes 491.1 days.", false,
			func(*estimate.Run) {}, nil, "", true},
	} {
		s := threeColumns(t, c.axes...)
		if !c.measured {
			s.Variants, s.Measured = []estimate.Variant{estimate.Page}, nil
		}
		c.change(&s.Run)
		x, err := s.Sheet()
		if err != nil {
			t.Fatal(err)
		}
		if x.Headline != c.headline || strings.Join(x.Settings, " ") != c.settings || (x.MaxDays > 0) != c.limit || (len(x.Replaced) > 0) != c.measured {
			t.Errorf("%q, settings %q, at most %v days, %d replaced; want %q", x.Headline, x.Settings, x.MaxDays, len(x.Replaced), c.headline)
		}
		var table, text bytes.Buffer
		if err := s.WriteCSV(&table); err != nil || table.String() != x.Table {
			t.Errorf("table %q", x.Table)
		}
		if err := s.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		if points, err := s.Points(); err != nil || len(x.Rows) != len(points) {
			t.Errorf("%d rows for %d points", len(x.Rows), len(points))
		}
		for _, row := range x.Rows {
			days := row[len(s.Axes)+1]
			if len(row) != len(x.Columns) || !strings.Contains(text.String(), strings.TrimSpace(days)) {
				t.Errorf("row %q is not in\n%s", row, text.String())
			}
		}
		for i, v := range s.Variants {
			want := estimate.ExplainMeasured(s.Run, calibrated()).Answer()
			if v != estimate.Measured {
				want = estimate.Explain(s.Run.Inputs, v).Answer()
			}
			if a := x.Answers[i]; a.Variant != v || a.Days != want.Days || a.Headline != want.Headline || len(a.Bounds) < 3 || len(a.Changes) == 0 || len(a.Warnings) == 0 {
				t.Errorf("answer %+v, want %+v", a, want)
			}
		}
	}
}

// TestAxesAsText: what Text writes makes the same axis, with numbers written
// alike.
func TestAxesAsText(t *testing.T) {
	for text, want := range map[string]string{
		"parameters=144e9,1_000_000_000,1.5e+12": "parameters=1.44e+11,1e+09,1.5e+12",
		"precision='FP16', FP8":                  "precision=FP16,FP8",
		"isMoE=True,false":                       "isMoE=true,false",
		"nodeSpread=.1,0x0":                      "nodeSpread=0.1,0",
	} {
		a := axes(t, text)[0]
		if a.Text() != want || axes(t, a.Text())[0].Text() != want {
			t.Errorf("%s becomes %s, want %s", text, a.Text(), want)
		}
	}
}
