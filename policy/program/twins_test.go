package program_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"testbed/experiment"
	"testbed/internal/randscenario"
	"testbed/internal/rapidtest"
	"testbed/internal/testenv"
	"testbed/policy"
	"testbed/policy/program"
	"testbed/record"
	"testbed/scenarios"
	"testbed/train/task"
)

// twins are policies in Go that testdata has in Python, too.
var twins = []string{"straggler", "backup", "deadline"}

// folders are where the twins lie: as plain scripts, and with the Python package.
var folders = []string{"testdata", "../../python/examples/policies"}

func needPython(t testing.TB) {
	t.Helper()
	_, err := exec.LookPath("python3")
	testenv.Need(t, err)
	pkg, err := filepath.Abs("../../python/src")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", pkg)
	t.Cleanup(program.End)
}

// twin names the program that is to decide as a policy of the scenario does.
func twin(t rapid.TB, s *scenarios.Scenario, folder, name string) string {
	t.Helper()
	p, err := s.Policy.Named(name)
	if err != nil {
		t.Fatal(err)
	}
	spec := "program:" + folder + "/" + name + ".py"
	for _, param := range policy.Parameters(p) {
		spec += fmt.Sprintf(":%s=%v", param.Name, param.Default)
	}
	return spec
}

// decided returns a record as text, without what tells a program from its twin: the
// policy's name, and the numbers of a straggler's deadline, which have a place of their
// own where the policy is in Go.
func decided(t rapid.TB, events []record.Event) string {
	t.Helper()
	var all bytes.Buffer
	out := json.NewEncoder(&all)
	for _, e := range events {
		if e.Run != nil {
			run := *e.Run
			run.Policy = ""
			e.Run = &run
		}
		if e.Reason != nil && e.Reason.Deadline != nil && e.Reason.Deadline.Spread != nil {
			reason, d := *e.Reason, *e.Reason.Deadline
			d.Spread, d.Numbers = nil, maps.Clone(numbersOf(t, d.Spread))
			reason.Deadline = &d
			e.Reason = &reason
		}
		if err := out.Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

func numbersOf(t rapid.TB, spread *policy.Spread) (numbers map[string]float64) {
	t.Helper()
	text, err := json.Marshal(spread)
	if err == nil {
		err = json.Unmarshal(text, &numbers)
	}
	if err != nil {
		t.Fatal(err)
	}
	return numbers
}

// wantSame simulates a scenario under a policy and under its twin in a folder.
func wantSame(t rapid.TB, s *scenarios.Scenario, folder, name string, play experiment.Simulator) (n int) {
	t.Helper()
	var texts [2]string
	for i, spec := range []string{name, twin(t, s, folder, name)} {
		var events []record.Event
		if _, err := play(s, spec, func(e record.Event) { events = append(events, e) }); err != nil {
			t.Fatalf("%s under %s: %v", s.Name, spec, err)
		}
		texts[i] = decided(t, events)
		n = len(events)
	}
	if texts[0] == texts[1] {
		return n
	}
	goes, does := strings.Split(texts[0], "\n"), strings.Split(texts[1], "\n")
	for i := range min(len(goes), len(does)) {
		if goes[i] != does[i] {
			t.Fatalf("%s under %s: line %d of the trace differs: in Go\n%s\nin Python\n%s", s.Name, name, i+1, goes[i], does[i])
		}
	}
	t.Fatalf("%s under %s: a trace of %d lines in Go, of %d in Python", s.Name, name, len(goes), len(does))
	return n
}

// TestTwinsOnTheLibrary: policies in Python decide exactly as those in Go, on every
// scenario of the library.
func TestTwinsOnTheLibrary(t *testing.T) {
	needPython(t)
	library, err := scenarios.Library()
	if err != nil {
		t.Fatal(err)
	}
	played := 0
	for _, s := range library {
		for _, name := range twins {
			if _, err := s.Machine(name); err != nil {
				continue // a scenario of torchft's alone
			}
			for _, folder := range folders {
				if wantSame(t, s, folder, name, experiment.OnChurn) > 10 {
					played++
				}
			}
		}
	}
	if played < 120 {
		t.Errorf("only %d traces are longer than ten events", played)
	}
}

// TestTwinsOnPlannedLinks: likewise, where deadlines lie at least real.min_slack after
// the first arrival.
func TestTwinsOnPlannedLinks(t *testing.T) {
	needPython(t)
	links, err := experiment.NewSimulator(experiment.NetworkLinks, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, scenario := range []string{"persistent_straggler", "lognormal_16", "spot_fleet", "coordinator_crash", "late_join"} {
		s, err := scenarios.Load(scenario)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range twins {
			wantSame(t, s, "testdata", name, links)
		}
	}
}

// TestParametersInAFile are those of all programs that do not say otherwise.
func TestParametersInAFile(t *testing.T) {
	needPython(t)
	s, err := scenarios.Parse("short.yaml", []byte(short+"policy:\n  program: {quorum: 0.6, sideline_limit: 0, finish_steps: true}\n"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := s.Text()
	if err != nil {
		t.Fatal(err)
	}
	again, err := scenarios.Parse("short.json", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	set, err := scenarios.NewSetting("policy.program.sideline_limit", "1")
	if err != nil {
		t.Fatal(err)
	}
	changed, err := s.With(set)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		s       *scenarios.Scenario
		spec    string
		evicted int // in this round
	}{{s, "", 2}, {again, "", 2}, {changed, "", 3}, {s, ":sideline_limit=1", 3}} {
		sum, err := experiment.OnChurn(c.s, "program:testdata/straggler.py"+c.spec, nil)
		if err != nil || len(sum.Evicted) != 1 || sum.Evicted[0].Round != c.evicted {
			t.Errorf("%v, evicted %+v, want that in round %d", err, sum.Evicted, c.evicted)
		}
	}
	if _, err := s.Machine("program:testdata/backup.py"); err == nil || !strings.Contains(err.Error(), "has no parameter finish_steps: its parameters are b") {
		t.Errorf("%v", err)
	}
	if _, err := s.Machine("straggler"); err != nil {
		t.Errorf("a policy that is no program: %v", err)
	}
	if _, err := scenarios.Parse("short.yaml", []byte(short+"policy:\n  program: {quorum: [1, 2]}\n")); err == nil || !strings.Contains(err.Error(), "policy.program.quorum must be a single value") {
		t.Errorf("a list: %v", err)
	}
}

// TestTwinsOnRandomScenarios: likewise, with injects of all kinds and random parameters
// of straggler.
func TestTwinsOnRandomScenarios(t *testing.T) {
	needPython(t)
	rapidtest.Check(t, func(t *rapid.T) {
		s := randscenario.Draw(t)
		s.Train = &task.Spec{Outer: task.Outer{Overlap: rapid.IntRange(0, s.InnerSteps).Draw(t, "overlap")}}
		straggler := s.Policy.Parameters[scenarios.Straggler].(*policy.Straggler)
		straggler.FinishSteps = rapid.Bool().Draw(t, "finish")
		straggler.Window = rapid.IntRange(1, 12).Draw(t, "window")
		straggler.K = rapid.Float64Range(0, 5).Draw(t, "k")
		wantSame(t, s, rapid.SampledFrom(folders).Draw(t, "folder"), rapid.SampledFrom(twins).Draw(t, "twin"), experiment.OnChurn)
	})
}
