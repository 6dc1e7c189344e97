package program_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"testbed/experiment"
	"testbed/internal/testenv"
	"testbed/scenarios"
)

var update = flag.Bool("update", false, "write the transcript again; review the difference")

const transcript = "testdata/transcript.txt"

// short is the scenario of the transcript: one of three workers is slow, and evicted.
const short = `
seed: 42
inner_steps: 1
target_outer_steps: 4
horizon: 100000
heartbeat_period: 50000
heartbeat_miss_threshold: 5
base_latency: 50
bandwidth_bpus: 10
state_bytes: 100
workers:
  - {id: 0, inner_step_mean: 1000}
  - {id: 1, inner_step_mean: 1010}
  - {id: 2, inner_step_mean: 3000}
`

// overhearing writes a program that stands between testbed and another, and writes down
// what both say.
func overhearing(t *testing.T, file string) (between, heard string) {
	t.Helper()
	other, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	between, heard = filepath.Join(dir, "between.py"), filepath.Join(dir, "heard.txt")
	text := fmt.Sprintf(`#!/usr/bin/env python3
import subprocess, sys
other = subprocess.Popen([%q], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
with open(%q, "w") as heard:
    for line in sys.stdin:
        print(line, end="", file=other.stdin, flush=True)
        answer = other.stdout.readline()
        heard.write("> " + line + "< " + answer)
        heard.flush()
        print(answer, end="", flush=True)
`, other, heard)
	if err := testenv.WriteExecutable(between, []byte(text)); err != nil {
		t.Fatal(err)
	}
	return between, heard
}

// TestTranscript: testbed asks as testdata/transcript.txt has it, the program answers so,
// and docs/policies.md shows the beginning.
func TestTranscript(t *testing.T) {
	needPython(t)
	s, err := scenarios.Parse("short.yaml", []byte(short))
	if err != nil {
		t.Fatal(err)
	}
	between, heard := overhearing(t, "testdata/straggler.py")
	sum, err := experiment.OnChurn(s, "program:"+between+":quorum=0.6:finish_steps=true:sideline_limit=1", nil)
	if err != nil || !sum.Complete || len(sum.Evicted) != 1 {
		t.Fatalf("%v, %+v", err, sum)
	}
	got, err := os.ReadFile(heard)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(transcript, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(transcript)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("heard\n%s\nwant\n%s", got, want)
	}
	for _, kind := range []string{"hello", "reset", "deadline", "enough", "late", "closed", "finishes_steps"} {
		if !strings.Contains(string(want), `"ask":"`+kind+`"`) {
			t.Errorf("the transcript has no question %s", kind)
		}
	}
	page, err := os.ReadFile("../../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(page), "It begins with:\n\n```\n")
	shown, _, _ = strings.Cut(shown, "```")
	if len(shown) < 100 || !strings.HasPrefix(string(want), shown) {
		t.Errorf("docs/policies.md does not show the beginning of %s", transcript)
	}
}

// TestTranscriptPlayed plays the questions of the transcript to the program, without
// testbed.
func TestTranscriptPlayed(t *testing.T) {
	needPython(t)
	text, err := os.ReadFile(transcript)
	if err != nil {
		t.Fatal(err)
	}
	var questions, answers strings.Builder
	for line := range strings.Lines(string(text)) {
		if q, is := strings.CutPrefix(line, "> "); is {
			questions.WriteString(q)
		} else if a, is := strings.CutPrefix(line, "< "); is {
			answers.WriteString(a)
		} else {
			t.Fatalf("%s has the line %q", transcript, line)
		}
	}
	c := exec.Command("testdata/straggler.py")
	c.Stdin, c.Stderr = strings.NewReader(questions.String()), os.Stderr
	got, err := c.Output()
	if err != nil || string(got) != answers.String() {
		t.Errorf("%v: answered\n%s\nwant\n%s", err, got, answers.String())
	}
}

// TestTheDocumentedProgram is the one that docs/policies.md shows.
func TestTheDocumentedProgram(t *testing.T) {
	page, err := os.ReadFile("../../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("testdata/backup.py")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```python\n"+string(code)+"```") {
		t.Error("docs/policies.md does not show testdata/backup.py as it is")
	}
}
