package estimate_test

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"testbed/estimate"
	"testbed/scenarios"
)

func axes(t testing.TB, texts ...string) (all []estimate.Axis) {
	t.Helper()
	for _, text := range texts {
		a, err := estimate.ParseAxis(text, func(r *estimate.Run, name, value string) error { return scenarios.Assign(r, name, value) })
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	return all
}

func threeColumns(t testing.TB, texts ...string) *estimate.Sweep {
	m := calibrated()
	return &estimate.Sweep{Run: defaultRun(), Axes: axes(t, texts...), Variants: []estimate.Variant{estimate.Page, estimate.Document, estimate.Measured}, Measured: &m}
}

// TestPointsOfASweepAreEstimates, in JSON and in CSV.
func TestPointsOfASweepAreEstimates(t *testing.T) {
	s := threeColumns(t, "numNodes=8,72", "stragglerStrategy=none,threshold", "streamingEnabled=true,false", "nodeSpread=0.1,0.3")
	points, err := s.Points()
	if err != nil || len(points) != 2*2*2*2*3 {
		t.Fatalf("%d points, %v", len(points), err)
	}
	var out bytes.Buffer
	if err := s.WriteCSV(&out); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&out).ReadAll()
	if err != nil || len(rows) != len(points)+1 || strings.Join(rows[0][:6], " ") != "numNodes stragglerStrategy streamingEnabled nodeSpread variant mode" {
		t.Fatalf("%d rows, the first %q, %v", len(rows), rows[0], err)
	}
	for i, p := range points {
		r := s.Run
		r.NumNodes, r.StragglerStrategy = p.Set["numNodes"].(float64), p.Set["stragglerStrategy"].(string)
		r.StreamingEnabled, r.NodeSpread = p.Set["streamingEnabled"].(bool), p.Set["nodeSpread"].(float64)
		want := estimate.ComputeMeasured(r, s.Measured)
		if p.Variant != estimate.Measured {
			want = estimate.Compute(r.Inputs, p.Variant)
		}
		if p.Days != want.Days || p.Mode != want.Mode || p.Feasible != (want.Feasibility == "Feasible") {
			t.Errorf("%+v, want %+v", p, want)
		}
		if row := rows[i+1]; row[0] != fmt.Sprint(r.NumNodes) || row[4] != string(p.Variant) || row[6] != strconv.FormatFloat(p.Days, 'g', -1, 64) {
			t.Errorf("row %q of %+v", row, p)
		}
	}
}

func TestSweepAsText(t *testing.T) {
	for _, c := range []struct {
		axes []string
		want []string
	}{
		{[]string{"bandwidthMbps=100,400"}, []string{"variant      days   learning %", "491.1 !", "147.6 !", "network"}},
		{[]string{"bandwidthMbps=100,1000", "innerSteps=128,512"}, []string{"days, page: bandwidthMbps down, innerSteps across", "days, measured:", "491.1 !"}},
		{[]string{"bandwidthMbps=1,2,3,4,5,6,7,8,9,10", "innerSteps=1,2,3,4,5,6,7,8,9,10", "numNodes=8"}, []string{"… and 240 more of 300 points; --csv prints all of them"}},
	} {
		var out bytes.Buffer
		if err := threeColumns(t, c.axes...).WriteText(&out); err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q is not in\n%s", want, out.String())
			}
		}
	}
}

func TestSweepSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		want string
		axes []string
	}{
		{"mfu is swept twice: keep one", []string{"mfu=0.1,0.2", "mfu=0.3"}},
		{"mfu is 3: it must be from 0.0001 to 1 (with numNodes=8, mfu=3)", []string{"numNodes=8", "mfu=0.1,3"}},
		{"microBatches makes more than 1000000 points: give fewer values", []string{numbered("innerSteps", 700), numbered("microBatches", 700)}},
	} {
		s := threeColumns(t, c.axes...)
		err := s.Check()
		if err == nil {
			err = s.WriteText(io.Discard)
		}
		if err == nil || err.Error() != c.want {
			t.Errorf("%q: error %v, want %s", c.axes[0], err, c.want)
		}
	}
}

func numbered(name string, n int) string {
	var b strings.Builder
	b.WriteString(name + "=1")
	for i := 2; i <= n; i++ {
		fmt.Fprintf(&b, ",%d", i)
	}
	return b.String()
}

func FuzzParseAxis(f *testing.F) {
	for _, text := range []string{"numNodes=16,32", "precision=FP8, FP4", "isMoE=true,false", "mfu", "mfu=", "=1", "mfu=0.3,0.3", "Inputs=1", "nodeSpread=[1]"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := estimate.ParseAxis(text, func(r *estimate.Run, name, value string) error { return scenarios.Assign(r, name, value) })
		if err != nil {
			return
		}
		s := estimate.Sweep{Run: defaultRun(), Axes: []estimate.Axis{a}, Variants: []estimate.Variant{estimate.Page}}
		if points, err := s.Points(); err == nil && len(points) != len(a.Values) {
			t.Errorf("%q makes %d points of %d values", text, len(points), len(a.Values))
		}
	})
}

// BenchmarkSweep writes the CSV of 10,000 points.
func BenchmarkSweep(b *testing.B) {
	for _, measured := range []bool{false, true} {
		b.Run(fmt.Sprintf("measured=%v", measured), func(b *testing.B) {
			s := threeColumns(b, numbered("numNodes", 100), numbered("bandwidthMbps", 100))
			s.Variants = []estimate.Variant{estimate.Page}
			if measured {
				s.Variants = []estimate.Variant{estimate.Measured}
			}
			for b.Loop() {
				if err := s.WriteCSV(io.Discard); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(1e4*float64(b.N)/b.Elapsed().Seconds(), "points/s")
		})
	}
}
