package programs_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"testbed/internal/browser"
	"testbed/policy"
	"testbed/record"
	"testbed/report/programs"
)

// played is a record of three workers: w1 is paused, slowed and restarted, w2 fails.
func played(t *testing.T) string {
	t.Helper()
	code := func(n int) *int { return &n }
	sample := func(at policy.Time, node string, sent, received uint64, cpu policy.Time) record.ProgramEvent {
		return record.ProgramEvent{T: at, Type: record.ProgramSample, Node: node, BytesSent: &sent, BytesReceived: &received, Processor: &cpu}
	}
	mark := func(at policy.Time, node, kind string, fields map[string]any) record.ProgramEvent {
		return record.ProgramEvent{T: at, Type: record.ProgramMark, Node: node, Mark: kind, Fields: fields}
	}
	round := map[string]any{"round": 1}
	events := []record.ProgramEvent{
		{Type: record.ProgramsBegin, Run: &record.ProgramsRun{
			Schema: record.Schema, Scenario: "<b>small", Links: "user", TimeScale: 300, Nodes: []string{"coordinator", "w0", "w1", "w2"},
			Commands: map[string][]string{"w0": {"train", "</script>"}, "w1": {"train"}, "w2": {"train"}}, Clock: "traffic",
		}},
		{T: 1, Type: record.ProgramStart, Node: "w0"}, {T: 2, Type: record.ProgramStart, Node: "w1"}, {T: 3, Type: record.ProgramStart, Node: "w2"},
		{T: 100_000, Type: record.ProgramClock, Cause: "the first byte between workers, from w2"},
		sample(500_000, "w0", 1_000_000, 0, 100_000),
		mark(600_000, "w0", "arrive", round), mark(900_000, "w1", "arrive", round), mark(950_000, "w0", "reduced", round), mark(960_000, "w1", "reduced", round),
		sample(1_000_000, "w0", 3_500_000, 1_250_000, 350_000),
		{T: 1_100_000, Type: record.ProgramInject, Node: "w1", Op: "Pause", Processes: code(2), Duration: 1500},
		{T: 1_200_000, Type: record.ProgramInject, Node: "w1", Op: "Resume"},
		{T: 1_300_000, Type: record.ProgramInject, Node: "w1", Op: "Slow", Factor: 4},
		{T: 1_350_000, Type: record.Partition, IDs: []policy.ID{0, 2}},
		{T: 1_400_000, Type: record.ProgramInject, Node: "w1", Op: "Restart", Processes: code(3), Duration: 5000},
		{T: 1_400_100, Type: record.ProgramExit, Node: "w1", Code: code(-1), Signal: "SIGKILL"},
		{T: 1_450_000, Type: record.Heal},
		{T: 1_500_000, Type: record.ProgramStart, Node: "w1", Incarnation: 1},
		{T: 1_600_000, Type: record.ProgramInject, Node: "w1", Op: "Restore"},
		{T: 1_600_000, Type: record.ProgramSlowed, Node: "w1", ShareBefore: 0.8, ShareIntended: 0.2, ShareUsed: 0.25},
		mark(1_700_000, "w0", "step", map[string]any{"loss": 0.5, "who": "<i>me"}),
		{T: 1_800_000, Type: record.ProgramExit, Node: "w2", Code: code(3)},
		{T: 1_900_000, Type: record.ProgramExit, Node: "w0", Code: code(-1), Signal: "SIGTERM"}, {T: 1_900_001, Type: record.ProgramExit, Node: "w1", Incarnation: 1, Code: code(0)},
		{T: 1_900_002, Type: record.ProgramsFinish, Code: code(3), Cause: "w2 exited with code 3 after 1.8 s, the first failure among 3 programs (its last line: <script>alert(1)</script>)"},
	}
	dir := t.TempDir()
	var text bytes.Buffer
	for _, e := range events {
		if err := json.NewEncoder(&text).Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string][]byte{record.ProgramsFile: text.Bytes(), record.FidelityFile: []byte(`{"verdict": "suspect", "reasons": ["it was busy"]}`)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func read(t *testing.T, dir string) *programs.Record {
	t.Helper()
	if !programs.Is(dir) {
		t.Fatal("it is not seen to be a record of programs")
	}
	rec, err := programs.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestStory(t *testing.T) {
	s := programs.NewStory(read(t, played(t)))
	var spans []string
	for _, x := range s.Spans {
		spans = append(spans, fmt.Sprintf("%s %s %d-%d", x.Node, x.Is, x.From, x.To))
	}
	slices.Sort(spans)
	want := []string{
		"w0 cut off 1350000-1450000", "w0 program runs 1-1900000",
		"w1 dead 1400000-1500000", "w1 paused 1100000-1200000", "w1 program runs 1500000-1900001", "w1 program runs 2-1400000", "w1 slowed down 1300000-1600000",
		"w2 cut off 1350000-1450000", "w2 program runs 3-1800000",
	}
	if !slices.Equal(spans, want) {
		t.Errorf("spans\n%s\nwant\n%s", strings.Join(spans, "\n"), strings.Join(want, "\n"))
	}
	// 2.5 MB in half a second are 40 Mbit/s, and 0.25 s of processor time half a processor.
	if got := fmt.Sprint(s.Sent, s.Received, s.Shares, s.Losses); got != "[{w0 [[1e+06 40]]}] [{w0 [[1e+06 20]]}] [{w0 [[1e+06 0.5]]}] [{w0 [[1.7e+06 0.5]]}]" {
		t.Error(got)
	}
	// w0 has waited for w1, which was last.
	if got := fmt.Sprint(s.Waits); got != "[{w0 1 300000 50000} {w1 1 0 60000}]" {
		t.Error(got)
	}
	var outcomes []string
	for _, p := range s.Programs {
		outcomes = append(outcomes, fmt.Sprintf("%s: %s, %d starts", p.Node, p.Outcome, p.Starts))
	}
	if got := strings.Join(outcomes, "; "); got != "w0: ended by SIGTERM, 1 starts; w1: exited with code 0, 2 starts; w2: exited with code 3, 1 starts" {
		t.Error(got)
	}
	if s.Clock == nil || *s.Clock != 100_000 || s.Exit == nil || *s.Exit != 3 {
		t.Errorf("%+v", s)
	}
}

func TestPage(t *testing.T) {
	rec := read(t, played(t))
	var page bytes.Buffer
	if err := programs.WriteHTML(&page, rec); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	for _, want := range []string{
		"W2 exited with code 3 after 1.8 s, the first failure among 3 programs", "exit code 3", "w1 computed 3.2 times as slowly as before (intended: 4 times).", "it was busy", "suspect",
		"Pause, 2 processes", "Slow by 4", "Partition w0 w2", "all partitions end", "3.50 MB", "&lt;b&gt;small", "The scenario\u0026#39;s clock",
	} {
		if want = strings.ReplaceAll(want, "\u0026", "&"); !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	for _, markup := range []string{"<b>small", "<script>alert", "train </script>", "<i>me"} {
		if strings.Contains(text, markup) {
			t.Errorf("%s got into the page as markup", markup)
		}
	}
}

// TestPageInABrowser: all pictures are drawn, and nothing is fetched.
func TestPageInABrowser(t *testing.T) {
	rec := read(t, played(t))
	file := filepath.Join(t.TempDir(), "report.html")
	var page bytes.Buffer
	if err := programs.WriteHTML(&page, rec); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, page.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, width := range []int{360, 1200} {
		visit := browser.Show(t, file, width, "--dump-dom")
		visit.IsQuiet(t)
		if got := visit.Title(t); got != fmt.Sprintf("5 %d", width) {
			t.Errorf("pictures and width: %s, want 5 and %d", got, width)
		}
	}
}

func TestTrace(t *testing.T) {
	var out bytes.Buffer
	if err := programs.WriteTrace(&out, read(t, played(t))); err != nil {
		t.Fatal(err)
	}
	var trace struct {
		TraceEvents []struct {
			Name, Ph string
			Ts       float64
			Dur      *float64
			Pid      int
		}
	}
	if err := json.Unmarshal(out.Bytes(), &trace); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, e := range trace.TraceEvents {
		seen[e.Ph]++
		if e.Ph == "X" && (e.Dur == nil || *e.Dur < 0) {
			t.Errorf("%+v", e)
		}
	}
	if got := fmt.Sprint(seen); got != "map[C:4 M:12 X:9 i:14]" {
		t.Error(got)
	}
}

// TestCutShort: a record without an end is read as far as it goes, and what is none is
// refused.
func TestCutShort(t *testing.T) {
	dir := played(t)
	file := filepath.Join(dir, record.ProgramsFile)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	if err := os.WriteFile(file, append(bytes.Join(lines[:12], nil), lines[12][:9]...), 0o644); err != nil {
		t.Fatal(err)
	}
	s := programs.NewStory(read(t, dir))
	if s.Exit != nil || len(s.Spans) != 4 {
		t.Errorf("%+v", s)
	}
	var page bytes.Buffer
	if err := programs.WriteHTML(&page, read(t, dir)); err != nil || !strings.Contains(page.String(), "The record was cut short") {
		t.Errorf("%v", err)
	}
	for _, content := range []string{"", `{"type": "end"}` + "\n", `{"type": "begin", "run": {"schema": 99}}` + "\n"} {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if rec, err := programs.Read(dir); err == nil {
			t.Errorf("%q: %+v, and no error", content, rec)
		}
	}
}

// TestTheEndOfALinkFaultIsNoInject of its own.
func TestTheEndOfALinkFaultIsNoInject(t *testing.T) {
	rec := &programs.Record{Run: record.ProgramsRun{Nodes: []string{"w0"}}, Events: []record.ProgramEvent{
		{Type: record.ProgramClock, Cause: "the start of the programs"},
		{T: 1, Type: record.LinkFault, Node: "w0", Op: "Degrade"}, {T: 2, Type: record.LinkRestored, Node: "w0", Op: "Degrade"},
	}}
	var page bytes.Buffer
	if err := programs.WriteHTML(&page, rec); err != nil || !strings.Contains(page.String(), "<strong>1 inject</strong>") {
		t.Errorf("%v; the page counts injects in another way", err)
	}
}
