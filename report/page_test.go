package report_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"testbed/experiment"
	"testbed/internal/stories"
	"testbed/policy"
	"testbed/record"
	"testbed/report"
	"testbed/report/runs"
	"testbed/report/timeline"
	"testbed/scenarios"
)

// recorded is a comparison of persistent_straggler as a machine with two
// processors measured it.
const recorded = "testdata/compare"

func read(t *testing.T, dirs ...string) *runs.Record {
	t.Helper()
	rec, err := runs.Read(dirs...)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func html(t *testing.T, rec *runs.Record) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.WriteHTML(&b, rec); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// dataBlock is what the page's script reads.
func dataBlock(t *testing.T, page string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, `id="data">`)
	block, _, ended := strings.Cut(rest, "</script>")
	if !found || !ended {
		t.Fatal("the page has no data block")
	}
	return block
}

// copied copies the recorded comparison, for a test to spoil.
func copied(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "compare")
	if err := os.CopyFS(dir, os.DirFS(recorded)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, text string, parts ...string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(parts...), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestChartLibrary: the file is the published one; see document/echarts.
func TestChartLibrary(t *testing.T) {
	library, err := os.ReadFile("document/echarts/echarts.min.js")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(library)
	if got, want := hex.EncodeToString(sum[:]), "b66b25aeb4df84e33199dc21694014d336d222cbd9deb0e5a7c14bd6aa0d0fd0"; got != want {
		t.Errorf("SHA-256 is %s, want %s of version 6.1.0", got, want)
	}
	if bytes.Contains(bytes.ToLower(library), []byte("</script")) {
		t.Error("the library would end the script that it is inlined in")
	}
	for _, file := range []string{"LICENSE", "NOTICE", "LICENSE-d3", "LICENSE-zrender"} {
		if text, err := os.ReadFile(filepath.Join("document/echarts", file)); err != nil || len(text) == 0 {
			t.Errorf("the licence's file %s is missing: %v", file, err)
		}
	}
}

func TestDataBlock(t *testing.T) {
	var block bytes.Buffer
	if err := json.Indent(&block, []byte(dataBlock(t, html(t, read(t, recorded)))), "", " "); err != nil {
		t.Fatal(err)
	}
	golden(t, "data", block.String())
}

// TestPageAnswers: what a reader wants to know stands in the page as text, and
// so do the numbers of every picture.
func TestPageAnswers(t *testing.T) {
	plain := strings.ReplaceAll(html(t, read(t, recorded)), "\u00a0", " ")
	for _, text := range []string{
		"The straggler policy was 3.94× as fast as the baseline: 7.2 s (scenario time: 23,864 µs) instead of 28.2 s (scenario time: 94,025 µs) for 5 rounds.",
		"<strong>w3</strong>", "w3: its inner steps took 9,100 µs on average under baseline, and those of the median worker took 1,001 µs.",
		"w3’s inner steps take 10 times as long", "<strong>straggler left w3 out</strong>",
		"w3 sidelined in rounds 2, 3; w3 evicted in round 4 (straggler)", "The simulator had predicted 4.59×.",
		"yes: the emulation matched its plan", "precision 1.00, recall 1.00",
		"wall-clock under straggler is off by -16.0 %", "<code>testbed compare ", " --links user</code>",
		"w3 8,998", "300 µs after the first arrival (median 9 µs", "all workers (4) had arrived, and there was no deadline",
		"w2 → w0", "Linux 6.12.48"} {
		text = strings.ReplaceAll(strings.ReplaceAll(text, "'", "&#39;"), "Linux", "linux")
		if !strings.Contains(plain, text) {
			t.Errorf("the page does not say %q", text)
		}
	}
}

// TestPageOfAHostileScenario: no text of a record becomes markup or script.
func TestPageOfAHostileScenario(t *testing.T) {
	dir := copied(t)
	const hostile = `</script><script>alert(1)</script><img src=x onerror=alert(2)> " ' & <!-- ` + "\u2028"
	quoted, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range []string{"real-baseline", "real-straggler"} {
		file := filepath.Join(dir, run, "scenario.yaml")
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(source), "\n") // the description
		write(t, "description: "+string(quoted)+"\n"+rest, file)
		summary := filepath.Join(dir, run, "summary.json")
		var sum map[string]any
		text, err := os.ReadFile(summary)
		if err != nil || json.Unmarshal(text, &sum) != nil {
			t.Fatal("reading the summary:", err)
		}
		sum["fidelity"] = map[string]any{"verdict": "suspect", "reasons": []string{hostile}}
		text, err = json.Marshal(sum)
		if err != nil {
			t.Fatal(err)
		}
		write(t, string(text), summary)
		if err := os.Remove(filepath.Join(dir, run, "fidelity.json")); err != nil { // it says something else
			t.Fatal(err)
		}
	}
	page := html(t, read(t, dir))
	library, err := os.ReadFile("document/echarts/echarts.min.js")
	if err != nil {
		t.Fatal(err)
	}
	rest := strings.Replace(page, string(library), "", 1)
	if got := strings.Count(rest, "<script"); got != 3 {
		t.Errorf("%d scripts in the page, want the data, the library and the page's own", got)
	}
	if strings.Contains(rest, "<img") || strings.Contains(rest, "<!--") {
		t.Error("text of the scenario became markup")
	}
	var data struct{ Description string }
	if err := json.Unmarshal([]byte(dataBlock(t, page)), &data); err != nil || data.Description != hostile {
		t.Errorf("the description came through as %q, %v", data.Description, err)
	}
	for _, text := range []string{"with care:", "real-straggler: &lt;/script&gt;"} {
		if !strings.Contains(rest, text) {
			t.Errorf("the page does not say %q", text)
		}
	}
}

// TestPagesOfTheLibrary: every scenario has a page, under both policies and
// under one, without measurements.
func TestPagesOfTheLibrary(t *testing.T) {
	all, err := scenarios.Library()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		rec := &runs.Record{Scenario: s, Library: true}
		for _, name := range stories.Policies(s) {
			rec.Runs = append(rec.Runs, simulatedRun(t, s, name))
			if page := html(t, rec); !strings.Contains(page, "simulated only") || !json.Valid([]byte(dataBlock(t, page))) {
				t.Errorf("%s: the page of %d runs has no data, or claims more than a simulation", s.Name, len(rec.Runs))
			}
		}
	}
}

func simulatedRun(t *testing.T, s *scenarios.Scenario, name string) runs.Run {
	t.Helper()
	var run runs.Run
	var err error
	run.Summary, err = experiment.OnChurn(s, name, func(e record.Event) { run.Events = append(run.Events, e) })
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// TestOldRecords: records of before fidelity, environment and the reductions
// of single workers were kept still have a page.
func TestOldRecords(t *testing.T) {
	dir := copied(t)
	for _, run := range []string{"real-baseline", "real-straggler"} {
		for _, file := range []string{"fidelity.json", "environment.json"} {
			if err := os.Remove(filepath.Join(dir, run, file)); err != nil {
				t.Fatal(err)
			}
		}
		file := filepath.Join(dir, run, "events.jsonl")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var kept strings.Builder
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, `"type":"reduced"`) {
				kept.WriteString(line)
			}
		}
		write(t, kept.String(), file)
	}
	page := html(t, read(t, dir))
	if !strings.Contains(page, `"kind":"all-reduce"`) || strings.Contains(page, `"kind":"all-gather"`) || strings.Contains(page, "Bytes and throughput") {
		t.Error("the page says more of the reductions than the record")
	}
}

// TestARunOfAnOldVersion: a run of commit 8295e8e has a page and a trace. It was killed and
// resumed, and has a crash, a late joiner and a straggler.
func TestARunOfAnOldVersion(t *testing.T) {
	rec := read(t, "../record/testdata/eventful")
	page := strings.ReplaceAll(html(t, rec), "\u00a0", " ")
	for _, text := range []string{
		"w2 evicted in round 1 (heartbeat); w3 evicted in round 5 (straggler)", "w4 joins", "w2 crashes",
		"all processes had died, and the run continues from outer step 1", "3 of 4 workers had arrived (3 needed) at the deadline", "5,172 µs",
	} {
		if !strings.Contains(page, text) {
			t.Errorf("the page does not say %q", text)
		}
	}
	var trace bytes.Buffer
	if err := timeline.WriteTrace(&trace, rec); err != nil || !strings.Contains(trace.String(), `"name":"run_resume"`) {
		t.Errorf("its trace: %v", err)
	}
}

// TestASimulatedRunByItself has the scenario beside it, as compare leaves it
// now, and the time scale of the file, which is not what it was simulated at.
func TestASimulatedRunByItself(t *testing.T) {
	dir := copied(t)
	source, err := os.ReadFile(filepath.Join(dir, "real-straggler", "scenario.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	sim := filepath.Join(dir, "sim-straggler")
	write(t, string(source), sim, "scenario.yaml")
	rec := read(t, sim)
	if page := html(t, rec); !strings.Contains(page, "simulated only") || !strings.Contains(page, "--policy straggler") {
		t.Error("the page of a simulated run is not one")
	}
	var trace bytes.Buffer
	if err := timeline.WriteTrace(&trace, rec); err != nil || !strings.Contains(trace.String(), `"time_scale":1`) {
		t.Errorf("its trace: %v", err)
	}
	if all := read(t, sim, filepath.Join(dir, "real-straggler")); len(all.Runs) != 2 || all.Scenario.Real.TimeScale != 300 {
		t.Errorf("%d runs at a time scale of %g", len(all.Runs), all.Scenario.Real.TimeScale)
	}
}

// change replaces a text in a file of a record.
func change(t *testing.T, was, is string, path ...string) {
	t.Helper()
	file := filepath.Join(path...)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), was) {
		t.Fatalf("%s does not have %q", file, was)
	}
	write(t, strings.ReplaceAll(string(text), was, is), file)
}

// TestTheCommandTrainsAgain: what has been trained in the simulator is trained by the
// printed command, too.
func TestTheCommandTrainsAgain(t *testing.T) {
	dir := copied(t)
	if page := html(t, read(t, dir)); strings.Contains(page, "--train") {
		t.Error("the page says --train of runs that have not trained")
	}
	change(t, `"bytes_sent": 0`, `"bytes_sent": 0, "model_hash": "ab"`, dir, "sim-baseline", "summary.json")
	if page := html(t, read(t, dir)); !strings.Contains(page, " --links user --train") {
		t.Errorf("the page does not say --train: %q", regexp.MustCompile(`testbed compare[^<]*`).FindAllString(page, -1))
	}
}

func TestRepeats(t *testing.T) {
	dir := copied(t)
	for _, run := range []string{"real-baseline", "real-straggler"} {
		if err := os.CopyFS(filepath.Join(dir, run+"-2"), os.DirFS(filepath.Join(recorded, run))); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, run), filepath.Join(dir, run+"-1")); err != nil {
			t.Fatal(err)
		}
	}
	change(t, `"wall_clock_us": 23864`, `"wall_clock_us": 47728`, dir, "real-straggler-2", "summary.json")
	change(t, `"t_us":23864`, `"t_us":47728`, dir, "real-straggler-2", "events.jsonl")
	page := html(t, read(t, dir))
	for _, want := range []string{
		"The figure is the median of 2 pairs of runs. It has no interval: an interval needs at least 3 measurements, not 2.", "<strong>2.96×</strong>",
		"23,864 – 35,796 – 47,728 µs", "--repeat 2", "real-straggler-2",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// repeated is a record of five pairs of runs as a real network might have left
// it: each took the shares more than the simulator has it, by policy and seed.
func repeated(t *testing.T, name string, shares map[string][5]float64) *runs.Record {
	t.Helper()
	source, err := scenarios.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := source.Parse()
	if err != nil {
		t.Fatal(err)
	}
	rec := &runs.Record{Scenario: s, Library: true}
	for _, policyName := range scenarios.PolicyNames {
		for k, share := range shares[policyName] {
			seeded := *s
			seeded.Seed += uint64(k)
			run := simulatedRun(t, &seeded, policyName)
			rec.Runs = append(rec.Runs, run)
			run.World, run.Fidelity.Verdict = record.Real, "valid"
			run.WallClock += policy.Time(share * float64(run.WallClock))
			rec.Runs = append(rec.Runs, run)
		}
	}
	return rec
}

// TestIntervals: the page says what the repeats allow to be said.
func TestIntervals(t *testing.T) {
	for _, c := range []struct {
		name, scenario string
		shares         map[string][5]float64
		want           []string
	}{
		{"a gain", "persistent_straggler", map[string][5]float64{"baseline": {0, .01, .02, .03, .04}}, []string{
			"Over 5 pairs of runs the straggler policy was 4.68× as fast as the baseline (4.59× to 4.77×)", "<strong>4.68× (4.59× to 4.77×)</strong>",
			"The range is a 93.8 % interval of the median of 5 pairs of runs, each with one seed: straggler is faster.",
			"The simulator had predicted 4.59×.", "under baseline is off by -2.0 % (-3.8 % to +0.0 %)",
			"93,891 µs (92,050 to 95,732)", "measured (median of 5, 93.8 % interval)", "--repeat 5"}},
		{"nothing", "homogeneous", map[string][5]float64{"baseline": {-.01, .01, .02, -.02}}, []string{
			"No difference shown: over 5 pairs of runs the straggler policy was 1.00× as fast as the baseline (0.98× to 1.02×).",
			"<strong>no difference shown: 1.00× (0.98× to 1.02×)</strong>"}},
		{"a loss", "homogeneous", map[string][5]float64{"straggler": {.1, .11, .12, .13, .14}}, []string{
			"The baseline is faster: over 5 pairs of runs the straggler policy was 0.89× as fast (0.88× to 0.91×)", "each with one seed: baseline is faster."}},
	} {
		for _, name := range scenarios.PolicyNames {
			if _, ok := c.shares[name]; !ok {
				c.shares[name] = [5]float64{}
			}
		}
		page := strings.NewReplacer("\u00a0", " ", `<br><span class="soft">`, " ").Replace(html(t, repeated(t, c.scenario, c.shares)))
		for _, want := range c.want {
			if !strings.Contains(page, strings.ReplaceAll(want, "+", "&#43;")) {
				t.Errorf("%s: the page does not say %q", c.name, want)
			}
		}
	}
}

// TestPredictionsOnLinks stand beside those of churn's network, and are not
// taken for them.
func TestPredictionsOnLinks(t *testing.T) {
	rec := repeated(t, "homogeneous", map[string][5]float64{"baseline": {}, "straggler": {}})
	for _, run := range slices.Clone(rec.Runs) {
		if run.World == record.Sim {
			run.Links = "plan"
			run.WallClock /= 2
			rec.Runs = append(rec.Runs, run)
		}
	}
	page := strings.ReplaceAll(html(t, rec), "\u00a0", " ")
	for _, want := range []string{"under baseline is off by +0.0 %; on planned links -50.0 %.", "The simulator had predicted 1.00×"} {
		if !strings.Contains(page, strings.ReplaceAll(want, "+", "&#43;")) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// TestSeeds: runs that differ in their seed are repeats, each beside the
// simulated run with its own.
func TestSeeds(t *testing.T) {
	dir := copied(t)
	other := filepath.Join(dir, "real-baseline-2")
	if err := os.CopyFS(other, os.DirFS(filepath.Join(recorded, "real-baseline"))); err != nil {
		t.Fatal(err)
	}
	s := read(t, recorded).Scenario
	s.Seed = 43
	text, err := s.Text() // as compare writes it
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(other, "scenario.yaml")); err != nil {
		t.Fatal(err)
	}
	write(t, string(text), other, "scenario.json")
	change(t, `"seed": 42`, `"seed": 43`, other, "summary.json")
	change(t, `"seed":42`, `"seed":43`, other, "events.jsonl")
	missing := read(t, dir).Unsimulated()
	if want := []runs.Missing{{Policy: "baseline", Seed: 43}}; !slices.Equal(missing, want) {
		t.Errorf("to simulate: %v, want %v", missing, want)
	}
}

// TestPageSaysWhoWasLost, and how it was noticed.
func TestPageSaysWhoWasLost(t *testing.T) {
	s, err := scenarios.Find("crash_mid_round")
	if err != nil {
		t.Fatal(err)
	}
	scenario, err := s.Parse()
	if err != nil {
		t.Fatal(err)
	}
	run := simulatedRun(t, scenario, "baseline")
	if len(run.Detected) != 1 {
		t.Fatalf("%d losses were noticed", len(run.Detected))
	}
	d := run.Detected[0]
	page := strings.ReplaceAll(html(t, &runs.Record{Scenario: scenario, Library: true, Runs: []runs.Run{run}}), "\u00a0", " ")
	want := fmt.Sprintf(`<th scope="row">baseline</th><td>%s</td><td class="n">%d</td><td class="words">heartbeat: it was silent for too long</td>`, d.ID.Node(), d.Round)
	if !strings.Contains(page, want) {
		t.Errorf("the page does not say %q", want)
	}
	if quiet := html(t, read(t, recorded)); strings.Contains(quiet, "Detection of lost workers") {
		t.Error("a run without losses has a table of them")
	}
}

func TestPageSaysWhatWasNotSimulated(t *testing.T) {
	dir := copied(t)
	file := filepath.Join(dir, "sim-baseline", "summary.json")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, strings.Replace(string(text), "{", `{"not_simulated":["Link of w1 at 2000"],`, 1), file)
	if page := html(t, read(t, dir)); !strings.Contains(page, "Churn&#39;s network has no links, so the simulator leaves out: Link of w1 at 2000.") {
		t.Error("the page does not say that the simulator left an inject out")
	}
}

func TestAnIncompleteRunIsNotTrusted(t *testing.T) {
	dir := copied(t)
	change(t, `"complete": true`, `"complete": false`, dir, "real-baseline", "summary.json")
	change(t, `"complete":true`, `"complete":false`, dir, "real-baseline", "events.jsonl")
	page := html(t, read(t, dir))
	for _, want := range []string{"no: a run stayed incomplete", "real-baseline: incomplete", "Under baseline, the run stayed incomplete: it took 5 of 5 outer steps.", "A run has no speed-up if it stayed incomplete, or if"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// TestACutShortRun: an interrupted run leaves a summary, and events or none.
func TestACutShortRun(t *testing.T) {
	dir := filepath.Join(copied(t), "real-baseline")
	write(t, "", dir, "events.jsonl")
	write(t, `{"scenario":"persistent_straggler","policy":"baseline","world":"real","links":"user","seed":42,"time_scale":300,
		"fidelity":{"verdict":"invalid","reasons":["the run was cut short"]}}`, dir, "summary.json")
	rec := read(t, dir)
	page := html(t, rec)
	for _, want := range []string{"Under baseline, the run stayed incomplete: it took 0 of 5 outer steps.", "No inner step was completed.", "real-baseline: the run was cut short"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if err := timeline.WriteTrace(new(bytes.Buffer), rec); err != nil {
		t.Error(err)
	}
}

func TestWhatCannotBeReported(t *testing.T) {
	t.Chdir(t.TempDir())
	fresh := func() string {
		if err := os.RemoveAll("x"); err != nil {
			t.Fatal(err)
		}
		return "x"
	}
	original := func(name string) string {
		text, err := os.ReadFile(filepath.Join(recordedAt, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	run := func() string {
		dir := fresh()
		if err := os.CopyFS(dir, os.DirFS(filepath.Join(recordedAt, "real-straggler"))); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for _, c := range []struct {
		name string
		dirs func() []string
		want string
	}{
		{"nothing there", func() []string { return []string{fresh()} }, "x: there is no such directory"},
		{"an empty directory", func() []string {
			dir := fresh()
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			return []string{dir}
		}, "x: there is no summary.json and no run of a comparison; name a directory that testbed run or testbed compare wrote"},
		{"no events", func() []string {
			dir := run()
			if err := os.Remove(filepath.Join(dir, "events.jsonl")); err != nil {
				t.Fatal(err)
			}
			return []string{dir}
		}, "reading the record: open x/events.jsonl: no such file or directory"},
		{"a broken event", func() []string {
			dir := run()
			write(t, original("real-straggler/events.jsonl")+"{}\n", dir, "events.jsonl")
			return []string{dir}
		}, "x/events.jsonl: event in line 119: the event has no type"},
		{"a broken summary", func() []string {
			dir := run()
			write(t, "{", dir, "summary.json")
			return []string{dir}
		}, "x/summary.json: unexpected end of JSON input"},
		{"another summary", func() []string {
			dir := run()
			write(t, `{"scenario":"persistent_straggler"}`, dir, "summary.json")
			return []string{dir}
		}, "x/summary.json: the field policy or world is missing, so the file is not the summary of a run; name the directory of a run, or restore an intact copy"},
		{"a newer format", func() []string {
			dir := run()
			write(t, strings.Replace(original("real-straggler/events.jsonl"), `"schema":1`, `"schema":9`, 1), dir, "events.jsonl")
			return []string{dir}
		}, "x/events.jsonl: the record has format version 9, but this testbed knows versions up to 1; use a newer testbed"},
		{"no scenario", func() []string { return []string{filepath.Join(recordedAt, "sim-straggler")} },
			recordedAt + "/sim-straggler: there is no scenario.yaml or scenario.json; name a directory that testbed run or testbed compare wrote"},
		{"two scenarios", func() []string {
			dir := run()
			write(t, strings.Replace(original("real-straggler/scenario.yaml"), "inner_steps: 2", "inner_steps: 3", 1), dir, "scenario.yaml")
			return []string{recordedAt, dir}
		}, "x/scenario.yaml differs from the scenario of the other runs; make a report for each scenario"},
		{"two time scales", func() []string {
			dir := run()
			change(t, `"time_scale": 300`, `"time_scale": 30`, dir, "summary.json")
			change(t, `"time_scale":300`, `"time_scale":30`, dir, "events.jsonl")
			return []string{recordedAt, dir}
		}, "x was run with a time scale of 30, and other runs with 300; make a report for each time scale"},
	} {
		_, err := runs.Read(c.dirs()...)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s:\ngot  %v\nwant %s", c.name, err, c.want)
		}
	}
}

// recordedAt is the recorded comparison for a test that changes directory.
var recordedAt, _ = filepath.Abs(recorded)

// TestWhereTheErrorsLie gives recorded runs the split that later ones have.
func TestWhereTheErrorsLie(t *testing.T) {
	dir := copied(t)
	const heading = "Parts of the simulator’s errors"
	if strings.Contains(html(t, read(t, dir)), heading) {
		t.Error("errors are split that nobody could split")
	}
	for run, split := range map[string]record.Split{
		"sim-baseline":  {Compute: 90_000, Transfer: 1000, Control: 1050},
		"real-baseline": {Compute: 90_940, Transfer: 2000, Control: 1085},
	} {
		name := filepath.Join(dir, run, "summary.json")
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var sum map[string]any
		if err := json.Unmarshal(b, &sum); err != nil {
			t.Fatal(err)
		}
		sum["split"] = split
		if b, err = json.Marshal(sum); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page := html(t, read(t, dir))
	_, table, _ := strings.Cut(page, heading)
	if !strings.Contains(table, `<td>simulated</td><td class="n">-1.0 %</td><td class="n">-1.1 %</td><td class="n">-0.0 %</td>`) {
		t.Errorf("the table of %q:\n%s", heading, table[:min(len(table), 1500)])
	}
}

// TestLearningOnThePage: what was learnt, and what the workers contributed, are
// drawn, and layers have a table.
func TestLearningOnThePage(t *testing.T) {
	s, err := scenarios.Load("homogeneous")
	if err != nil {
		t.Fatal(err)
	}
	rec := &runs.Record{Scenario: s}
	for _, name := range scenarios.PolicyNames {
		run := runs.Run{}
		if run.Summary, err = experiment.OnChurn(s, name, func(e record.Event) { run.Events = append(run.Events, e) }); err != nil {
			t.Fatal(err)
		}
		for k := range run.Summary.Rounds {
			r := &run.Summary.Rounds[k]
			r.Loss = &record.RoundLoss{Validation: new(3 - float64(k)/10)}
			for _, id := range r.Participants {
				r.PseudoGradients = append(r.PseudoGradients, record.PseudoGradient{ID: id, Norm: 1, Cosine: 0.5, QuantisationError: 0.01})
			}
		}
		run.LayerErrors = []record.LayerError{{Name: "embedding", Error: 0.0123}}
		rec.Runs = append(rec.Runs, run)
	}
	page := html(t, rec)
	for _, want := range []string{`id="loss"`, `id="cosines"`, `id="norms"`, `<th scope="row">embedding</th><td class="n">1.2 %</td><td class="n">1.2 %</td>`, `"points":[{"round":1,"norm":1,"cosine":0.5}`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	// The loss comes first: in the title, and in the answers.
	headline := regexp.MustCompile(`<p class="headline">([^<]*)</p>`).FindStringSubmatch(page)
	if headline == nil || !strings.Contains(headline[1], "final loss") {
		t.Errorf("the headline is %q", headline)
	}
	if learnt, slow := strings.Index(page, "What was learnt?"), strings.Index(page, "Who was slow?"); learnt < 0 || learnt > slow {
		t.Error("what was learnt is not the first answer")
	}
	rec.Target = 2.9
	if page := html(t, rec); !strings.Contains(page, "a validation loss of 2.90. Between") {
		t.Error("the loss that was asked for is not that of the table")
	}
	for _, run := range rec.Runs {
		for k := range run.Summary.Rounds {
			run.Summary.Rounds[k].PseudoGradients = nil
		}
	}
	if page := html(t, rec); !strings.Contains(page, `id="loss"`) || strings.Contains(page, `id="cosines"`) {
		t.Error("a record of before contributions were described has a picture of them, or none of losses")
	}
}
