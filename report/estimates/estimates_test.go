package estimates_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"testbed/estimate"
	"testbed/internal/errs"
	"testbed/report/estimates"
	"testbed/scenarios"
)

// sweep is one of the default run, with measured terms in three variants.
func sweep(t testing.TB, measured bool, texts ...string) *estimate.Sweep {
	t.Helper()
	s := &estimate.Sweep{Run: estimate.Run{Inputs: estimate.Defaults(), Further: estimate.DefaultFurther()}, Variants: []estimate.Variant{estimate.Page}}
	if measured {
		s.Measured = &estimate.Measurements{Efficiency: 0.95, Hop: 1e-4, Reduce: 2e-3, Stragglers: []estimate.Straggler{{Sigma: 0.1, Coefficient: 0.045}, {Sigma: 0.2, Coefficient: 0.098}}}
		s.Variants = []estimate.Variant{estimate.Page, estimate.Document, estimate.Measured}
	}
	for _, text := range texts {
		a, err := estimate.ParseAxis(text, func(r *estimate.Run, name, value string) error { return scenarios.Assign(r, name, value) })
		if err != nil {
			t.Fatal(err)
		}
		s.Axes = append(s.Axes, a)
	}
	return s
}

func page(t testing.TB, s *estimate.Sweep) string {
	t.Helper()
	var b bytes.Buffer
	if err := estimates.WriteHTML(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// goldenInputs are those of the worked cases.
func goldenInputs(t testing.TB) (all []estimate.Inputs) {
	t.Helper()
	text, err := os.ReadFile("../../estimate/testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g struct {
		Cases []struct{ Inputs estimate.Inputs }
	}
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	for _, c := range g.Cases {
		all = append(all, c.Inputs)
	}
	if len(all) != 28 {
		t.Fatalf("%d worked cases, want 28", len(all))
	}
	return all
}

// TestPageWithoutScripts: every number is in the page before a script has run.
func TestPageWithoutScripts(t *testing.T) {
	s := sweep(t, true, "numNodes=16,64", "bandwidthMbps=1e2,400")
	s.Run.LatencyMs = 30
	text := html.UnescapeString(page(t, s))
	sheet, err := s.Sheet()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		sheet.Headline, `name="latencyMs" step="any" value="30"`, `name="nodeSpread"`, "numNodes <small>(swept below)</small>", "<option selected>FP16</option>",
		"testbed estimate --set latencyMs=30 --calibration calibration.json --sweep numNodes=16,64 --sweep bandwidthMbps=1e2,400 --html estimate.html",
	}
	for _, row := range sheet.Rows {
		want = append(want, "<td>"+strings.Join(row, "</td><td>")+"</td>")
	}
	for _, a := range sheet.Answers {
		want = append(append(want, a.Headline, a.About), a.Warnings...)
		for _, r := range append(a.Bounds, a.Changes...) {
			want = append(want, r.What, r.Value, r.Remark)
		}
	}
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("the page does not say %q", w)
		}
	}
}

// TestWhatHasNoPage, and what has one although it names no axes.
func TestWhatHasNoPage(t *testing.T) {
	var many strings.Builder
	for i := range 101 {
		fmt.Fprintf(&many, ",%d", i+2)
	}
	numbers := many.String()
	for _, c := range []struct {
		want string
		axes []string
	}{
		{"bandwidthMbps makes more than 10000 points, the most that a page shows: give fewer values, or use --csv", []string{"numNodes=1" + numbers, "bandwidthMbps=1" + numbers}},
		{"mfu is 3: it must be from 0.0001 to 1 (with mfu=3)", []string{"mfu=0.3,3"}},
		{"mfu is swept twice: keep one", []string{"mfu=0.3", "mfu=0.4"}},
	} {
		err := estimates.WriteHTML(&bytes.Buffer{}, sweep(t, false, c.axes...))
		if wrong := (*errs.FieldError)(nil); !errors.As(err, &wrong) || err.Error() != c.want {
			t.Errorf("error %v, want %s", err, c.want)
		}
	}
	s := sweep(t, false)
	s.Run.NumNodes = 2
	if text := page(t, s); !strings.Contains(text, "--sweep numNodes=1,2,4,8,16 --sweep bandwidthMbps=12.5,25,50,100,200,400,800,1600") {
		t.Error("a run without axes is not shown with others around it")
	}
}

// TestControls: every input can be moved, within what is possible, and to every
// word that there is.
func TestControls(t *testing.T) {
	kinds := map[string]reflect.Kind{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[estimate.Run]()) {
		if name := f.Tag.Get("json"); name != "" {
			kinds[name] = f.Type.Kind()
		}
	}
	possible := func(name, value string) error {
		r := sweep(t, true).Run
		r.ActiveParams, r.IsMoE = 1, false
		if err := scenarios.Assign(&r, name, value); err != nil {
			return err
		}
		return r.Check()
	}
	for _, g := range estimates.Groups() {
		for _, c := range g.Controls {
			kind, known := kinds[c.Name]
			delete(kinds, c.Name)
			if want := map[reflect.Kind]string{reflect.Float64: "number", reflect.Bool: "truth", reflect.String: "word"}[kind]; !known || c.Kind() != want {
				t.Errorf("%s is a %s; want %q", c.Name, c.Kind(), want)
			}
			values := c.Words
			if c.Kind() == "number" {
				values = []string{fmt.Sprint(c.Low), fmt.Sprint(c.High)}
			}
			for _, v := range values {
				if err := possible(c.Name, v); err != nil {
					t.Error(err)
				}
			}
			if c.Kind() == "number" {
				half := possible(c.Name, "1.5")
				if (half != nil && strings.HasSuffix(half.Error(), "must be a whole number")) != c.Whole {
					t.Errorf("%s: whole is %v, but of 1.5 Check says %v", c.Name, c.Whole, half)
				}
			}
			if err := possible(c.Name, "neither"); c.Words != nil && !strings.HasSuffix(err.Error(), "must be one of "+strings.Join(c.Words, ", ")) {
				t.Errorf("%s has the words %q, but Check says %v", c.Name, c.Words, err)
			}
		}
	}
	for name := range kinds {
		t.Errorf("%s has no control", name)
	}
}

// printed is what testbed estimate --json prints of a sweep.
func printed(t testing.TB, s *estimate.Sweep) map[string]any {
	t.Helper()
	points, err := s.Points()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{"inputs": s.Run, "axes": s.Axes, "points": points, "measurements": s.Measured})
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// TestReadingWhatWasPrinted makes the page that was printed, or says what is
// wrong.
func TestReadingWhatWasPrinted(t *testing.T) {
	s := sweep(t, true, "numNodes=16,64", "precision=FP16,FP8")
	name := filepath.Join(t.TempDir(), "sweep.json")
	read := func(object any) (*estimate.Sweep, error) {
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return estimates.Read(name)
	}
	for _, object := range []any{printed(t, s), estimate.Compare(s.Run, *s.Measured), estimate.Explain(s.Run.Inputs, estimate.Document)} {
		got, err := read(object)
		if err != nil {
			t.Fatal(err)
		}
		want := *s
		switch object.(type) {
		case estimate.Estimate:
			want.Axes, want.Measured, want.Variants = nil, nil, []estimate.Variant{estimate.Document}
		case estimate.Comparison:
			want.Axes = nil
		}
		if page(t, got) != page(t, &want) {
			t.Errorf("what was read of %T makes another page", object)
		}
	}
	for want, change := range map[string]func(map[string]any){
		"the file has no inputs":                            func(o map[string]any) { delete(o, "inputs") },
		"inputs: mfu is 3: it must be":                      func(o map[string]any) { o["inputs"].(map[string]any)["mfu"] = 3 },
		"axes: mfus: unknown field":                         func(o map[string]any) { o["axes"].([]any)[0].(map[string]any)["input"] = "mfus" },
		"axes: precision is swept twice":                    func(o map[string]any) { o["axes"].([]any)[0] = o["axes"].([]any)[1] },
		"the file has 0 points, but its axes make 12":       func(o map[string]any) { o["points"] = []any{} },
		"points[3].days is 7 in the file, but this version": func(o map[string]any) { o["points"].([]any)[3].(map[string]any)["days"] = 7 },
		`variant: "" must be page`:                          func(o map[string]any) { o["measurements"], o["points"] = nil, []any{} },
		"measurements: efficiency is 2":                     func(o map[string]any) { o["measurements"].(map[string]any)["efficiency"] = 2 },
	} {
		object := printed(t, s)
		change(object)
		if _, err := read(object); err == nil || !strings.HasPrefix(err.Error(), name+": "+want) || !strings.HasSuffix(err.Error(), "; name a file with the output of testbed estimate --json") {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// TestTextIsNoMarkup: what a file says cannot end the page's data, nor begin a
// script.
func TestTextIsNoMarkup(t *testing.T) {
	plain, hostile := sweep(t, false, "numNodes=8,16"), sweep(t, false, "numNodes=8,16")
	hostile.Axes[0].Input, hostile.Axes[0].Values[0] = "</script><script>", "<img src=x>"
	for _, tag := range []string{"<script", "</script", "<img"} {
		if got, want := strings.Count(page(t, hostile), tag), strings.Count(page(t, plain), tag); got != want {
			t.Errorf("%s is in the page %d times, want %d", tag, got, want)
		}
	}
}

// FuzzParse: whatever a file holds, it is refused or becomes a sweep that is
// computed to the end.
func FuzzParse(f *testing.F) {
	for _, object := range []any{
		printed(f, sweep(f, true, "numNodes=16,64")), printed(f, sweep(f, false, "precision=FP16,FP8", "mfu=0.3")),
		estimate.Explain(estimate.Defaults(), estimate.Page), map[string]any{"axes": []any{map[string]any{"input": "</script>"}}},
	} {
		text, err := json.Marshal(object)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := estimates.Parse(text)
		if err != nil {
			return
		}
		x, err := s.Sheet()
		points := len(s.Variants)
		for _, a := range s.Axes {
			points *= len(a.Values)
		}
		if err != nil || len(x.Rows) != min(points, estimate.MaxRows) || len(x.Answers) != len(s.Variants) {
			t.Errorf("%v, %d rows for %d points, %d answers", err, len(x.Rows), points, len(x.Answers))
		}
	})
}
