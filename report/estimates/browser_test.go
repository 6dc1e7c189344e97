package estimates_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"testbed/estimate"
	"testbed/internal/browser"
)

// file writes the page of a sweep.
func file(t *testing.T, s *estimate.Sweep) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "estimate.html")
	if err := os.WriteFile(name, []byte(page(t, s)), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// ready waits until the page computes.
const ready = "await until(() => inner.body.dataset.computes);\n"

// alike compares what a browser computes with what this machine does: to the
// last bit, unless it may round a product and a sum at once.
func alike() cmp.Options {
	if runtime.GOARCH == "amd64" {
		return nil
	}
	return cmp.Options{cmpopts.EquateApprox(1e-12, 0), cmpopts.IgnoreFields(estimate.Sheet{}, "Table")}
}

// TestWhatTheBrowserComputes: the program in the page answers as this one does,
// word for word, in every worked case, and in those with measured terms. Where
// it does not, it is out of date: go generate ./report/estimates.
func TestWhatTheBrowserComputes(t *testing.T) {
	browser.Find(t)
	t.Parallel()
	type question struct {
		Run          estimate.Run           `json:"run"`
		Variants     []estimate.Variant     `json:"variants"`
		Axes         []string               `json:"axes"`
		Measurements *estimate.Measurements `json:"measurements"`
	}
	var questions []question
	var want []estimate.Sheet
	for _, in := range goldenInputs(t) {
		for _, measured := range []bool{false, true} {
			s := sweep(t, measured, "bandwidthMbps=10,1000", "streamingEnabled=true,false", "precision=FP16,FP4")
			s.Run.Inputs = in
			q := question{Run: s.Run, Variants: s.Variants, Measurements: s.Measured}
			for _, a := range s.Axes {
				q.Axes = append(q.Axes, a.Text())
			}
			sheet, err := s.Sheet()
			if err != nil {
				t.Fatal(err)
			}
			questions, want = append(questions, q), append(want, sheet)
		}
	}
	text, err := json.Marshal(questions)
	if err != nil {
		t.Fatal(err)
	}
	var got []estimate.Sheet
	browser.Drive(t, file(t, sweep(t, true, "numNodes=8,72")), 1200, ready+"return "+string(text)+".map(q => document.getElementById('page').contentWindow.testbedSheet(q));", &got).IsQuiet(t)
	if len(got) != 2*28 {
		t.Fatalf("%d answers", len(got))
	}
	for i := range want {
		if d := cmp.Diff(want[i], got[i], alike()); d != "" {
			t.Fatalf("case %d: the program of the page is out of date: go generate ./report/estimates (-here +browser):\n%s", i, d)
		}
	}
}

// moved is what a page shows.
type moved struct {
	Computes, Days, Now, Problem, Headline, Command, Legend, Boundary string
	Rows                                                              []string
	Drawn                                                             string
	Width                                                             int
}

const look = `
const look = () => ({
  computes: inner.body.dataset.computes, days: inner.getElementById('now').dataset.days, now: inner.getElementById('now').textContent,
  problem: inner.getElementById('problem').textContent, headline: inner.getElementById('headline').textContent,
  command: inner.getElementById('command').textContent, legend: inner.getElementById('legend-heat')?.textContent ?? '',
  boundary: (inner.getElementById('heat')?.dataset.boundary ?? '') + ' ' + inner.querySelectorAll('#heat path[stroke-width="3"]').length,
  rows: [...inner.querySelectorAll('#points tr')].map(r => [...r.children].map(c => c.textContent).join('|')),
  drawn: inner.body.dataset.drawn, width: inner.documentElement.scrollWidth,
});
// move gives an input a value as a reader does, and waits until that is shown.
const shown = () => inner.getElementById('command').textContent + inner.getElementById('problem').textContent;
const move = async (name, value) => {
  const f = inner.forms[0].elements[name], before = shown();
  if (typeof value === 'boolean') f.checked = value; else f.value = value;
  f.dispatchEvent(new Event(f.type === 'number' ? 'input' : 'change', {bubbles: true}));
  await until(() => shown() !== before);
};
`

// TestMovingAnInput: the page shows what the command computes for the inputs as
// they stand, to the last bit.
func TestMovingAnInput(t *testing.T) {
	browser.Find(t)
	t.Parallel()
	type step struct {
		move   string
		change func(*estimate.Run)
		says   string // the command
	}
	for _, c := range []struct {
		name     string
		measured bool
		width    int
		axes     []string
		steps    []step
	}{
		{"as published", false, 1200, []string{"numNodes=8,16,32,64,128,256", "bandwidthMbps=50,100,400,1600"}, []step{
			{`await move('latencyMs', 30);`, func(r *estimate.Run) { r.LatencyMs = 30 }, "--set latencyMs=30"},
			{`await move('precision', 'FP8'); await move('streamingEnabled', false);`, func(r *estimate.Run) { r.Precision, r.StreamingEnabled = "FP8", false }, "--set latencyMs=30 --set precision=FP8 --set streamingEnabled=false"},
			{`await move('numNodes', 100);`, func(r *estimate.Run) { r.NumNodes = 100 }, "--set numNodes=100 "},
			{`await move('parameters', 4e11); await move('useHierarchy', true);`, func(r *estimate.Run) { r.Parameters, r.UseHierarchy = 4e11, true }, "--set parameters=4e+11 "},
			{`const before = shown(); inner.querySelector('button[type=reset]').click(); await until(() => shown() !== before);`, func(r *estimate.Run) { r.Inputs = estimate.Defaults() }, "testbed estimate --sweep"},
		}},
		{"with measured terms", true, 360, []string{"innerSteps=32,128,512", "compression=2,4"}, []step{
			{`await move('nodeSpread', 0.2);`, func(r *estimate.Run) { r.NodeSpread = 0.2 }, "--set nodeSpread=0.2 --calibration calibration.json"},
			{`await move('fragments', 4); await move('bandwidthMbps', 1e3);`, func(r *estimate.Run) { r.Fragments, r.BandwidthMbps = 4, 1000 }, "--set bandwidthMbps=1000 --set nodeSpread=0.2 --set fragments=4"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := sweep(t, c.measured, c.axes...)
			script := ready + look + "const all = [];"
			for _, x := range c.steps {
				script += "{" + x.move + "}\nall.push(look());"
			}
			var all []moved
			browser.Drive(t, file(t, s), c.width, script+"return all;", &all).IsQuiet(t)
			if len(all) != len(c.steps) {
				t.Fatalf("%d of %d steps", len(all), len(c.steps))
			}
			for i, x := range c.steps {
				x.change(&s.Run)
				checkShown(t, s, all[i], x.says, c.width)
			}
		})
	}
}

// checkShown holds what a page shows against the sweep computed here.
func checkShown(t *testing.T, s *estimate.Sweep, got moved, says string, width int) {
	t.Helper()
	want, err := s.Sheet()
	if err != nil {
		t.Fatal(err)
	}
	var days []string
	for _, a := range want.Answers {
		days = append(days, strconv.FormatFloat(a.Days, 'f', -1, 64))
	}
	if got.Days != strings.Join(days, " ") || got.Headline != want.Headline || !strings.Contains(got.Command, says) || got.Problem != "" {
		t.Errorf("the page shows %q days, %q and %q, the problem %q; want %q, %q, %s", got.Days, got.Headline, got.Command, got.Problem, days, want.Headline, says)
	}
	var rows []string
	for _, row := range want.Rows {
		rows = append(rows, strings.Join(row, "|"))
	}
	if d := cmp.Diff(rows, got.Rows); d != "" {
		t.Errorf("the page's points (-here +browser):\n%s", d)
	}
	if got.Computes != "yes" || got.Drawn != "2" || got.Width > width {
		t.Errorf("%s pictures, %d wide; want two, at most %d wide", got.Drawn, got.Width, width)
	}
}

// TestMapAndMistakes: the boundary lies between points that a run may take and
// others, modes have letters, and an impossible value is explained and mended.
func TestMapAndMistakes(t *testing.T) {
	browser.Find(t)
	t.Parallel()
	s := sweep(t, false, "numNodes=4,64,256", "parameters=140e9,150e9,300e9")
	s.Run.PFLOPSPerNode, s.Run.Compression = 64, 64
	var got []moved
	browser.Drive(t, file(t, s), 360, ready+look+`
const all = [look()];
await move('mfu', 3);
all.push(look());
await move('mfu', 0.1);
all.push(look());
const slider = inner.getElementById('to-mfu'), before = shown();
slider.value = 0;
slider.dispatchEvent(new Event('input', {bubbles: true}));
await until(() => shown() !== before);
all.push(look());
return all;`, &got).IsQuiet(t)
	points, err := s.Points()
	if err != nil {
		t.Fatal(err)
	}
	edges := 0
	for i, p := range points {
		if i%3 < 2 && points[i+1].Feasible != p.Feasible {
			edges++
		}
		if i < 6 && points[i+3].Feasible != p.Feasible {
			edges++
		}
	}
	if want := fmt.Sprintf("%d %d", edges, edges); got[0].Boundary != want || edges == 0 {
		t.Errorf("the boundary has %q edges, want %q", got[0].Boundary, want)
	}
	for _, word := range []string{"A data parallel", "B one pipeline", "C pipeline groups", "136.9 days"} {
		if !strings.Contains(got[0].Legend, word) {
			t.Errorf("the legend %q does not say %q", got[0].Legend, word)
		}
	}
	if got[1].Problem != "mfu is 3: it must be from 0.0001 to 1" || got[1].Days != got[0].Days {
		t.Errorf("with an impossible value the page shows %+v", got[1])
	}
	if got[2].Problem != "" || got[2].Days == got[0].Days || !strings.Contains(got[3].Command, "--set mfu=0.05 ") {
		t.Errorf("after it %+v", got[2:])
	}
}

// TestWithoutTheProgram: the page shows what was computed where a browser may
// not run the program.
func TestWithoutTheProgram(t *testing.T) {
	browser.Find(t)
	t.Parallel()
	s := sweep(t, true, "numNodes=8,16,32")
	want, err := s.Sheet()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "estimate.html")
	if err := os.WriteFile(name, []byte(strings.Replace(page(t, s), " &#39;wasm-unsafe-eval&#39;", "", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	var got moved
	browser.Drive(t, name, 360, ready+look+"return look();", &got).IsQuiet(t)
	if got.Computes != "no" || got.Drawn != "1" || got.Headline != want.Headline || len(got.Rows) != len(want.Rows) || got.Width > 360 {
		t.Errorf("computes %q, %s pictures, %q, %d rows, %d wide", got.Computes, got.Drawn, got.Headline, len(got.Rows), got.Width)
	}
}

// TestHostileText: no text of a file becomes markup.
func TestHostileText(t *testing.T) {
	browser.Find(t)
	t.Parallel()
	s := sweep(t, false, "numNodes=8,16", "precision=FP16,FP8")
	s.Axes[0].Values[0], s.Axes[0].Input = `</script><script>console.error("in")</script>`, `<img src="http://example.invalid/x.png">`
	var got moved
	browser.Drive(t, file(t, s), 1200, look+"await until(() => inner.body.dataset.computes); return look();", &got).IsQuiet(t)
	if got.Drawn != "2" || !strings.Contains(got.Rows[0], "</script>") {
		t.Errorf("%+v", got)
	}
}
