//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"testbed/runlog"
	"testbed/scenarios"
	"testbed/train/lesson"
)

// learns is a scenario of n workers with a small language model.
func learns(t *testing.T, n, rounds int, extra string) string {
	t.Helper()
	text := fmt.Sprintf("seed: 3\ninner_steps: 3\ntarget_outer_steps: %d\nhorizon: 100000000\nheartbeat_period: 5000\nheartbeat_miss_threshold: 5\n"+
		"base_latency: 100\nbandwidth_bpus: 10\nstate_bytes: 100\n"+
		"train:\n  task: charlm\n  model: {layers: 1, width: 16, heads: 2, context: 16, batch: 2}\n  outer: {rate: 0.7, momentum: 0.5}\nworkers:\n", rounds)
	for id := range n {
		text += fmt.Sprintf("  - {id: %d, inner_step_mean: 1000}\n", id)
	}
	file := filepath.Join(t.TempDir(), "learns.yaml")
	if err := os.WriteFile(file, []byte(text+extra), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// checkLesson computes what a record teaches, and holds the states and losses in
// it against that, bit by bit.
func checkLesson(t *testing.T, file, dir string) {
	t.Helper()
	s, err := scenarios.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	events := readEvents(t, dir)
	if err := lesson.Check(s, events); err != nil {
		t.Error(err)
	}
	states, validated := 0, 0
	for _, e := range events {
		switch e.Type {
		case runlog.State:
			states++
		case runlog.Validated:
			validated++
		}
	}
	if states < s.TargetOuterSteps || validated < s.TargetOuterSteps-1 { // who was to validate may have crashed
		t.Errorf("%d states and %d losses of %d outer steps", states, validated, s.TargetOuterSteps)
	}
}

// TestRealRunsLearn what their records say, through a crash and a late join, and
// leave a model that writes.
func TestRealRunsLearn(t *testing.T) {
	needSandbox(t)
	for what, extra := range map[string]string{
		"ring": "real: {time_scale: 100}\n",
		"four bits, faults": "real: {time_scale: 100, all_reduce: {bits: 4, error_feedback: true}}\n" +
			"injects:\n  - {op: Crash, at: 9000, id: 1}\n  - {op: Slow, at: 0, id: 2, factor: 3}\n",
		"directly": "real: {time_scale: 100, all_reduce: {algorithm: direct, bits: 32}}\n",
	} {
		file := learns(t, 4, 5, extra)
		sum := runScenario(t, file, "--policy", "straggler")
		checkLesson(t, file, sum.Dir)
		if last := sum.Rounds[len(sum.Rounds)-1]; last.ModelHash == "" || last.Loss == nil || *sum.TokensSeen == 0 {
			t.Errorf("%s: %+v", what, last)
		}
		if r := testbed(t, "sample", sum.Dir, "--prompt", "Anne", "--length", "30"); r.code != 0 || !strings.HasPrefix(r.stdout, "Anne") || len(r.stdout) != 35 {
			t.Errorf("%s: exit code %d, %q, %s", what, r.code, r.stdout, r.stderr)
		}
	}
}

// TestALearningRunGoesOn after everything has died, as if nothing had been.
func TestALearningRunGoesOn(t *testing.T) {
	needSandbox(t)
	file := learns(t, 3, 8, "real: {time_scale: 100, checkpoint_every: 2, all_reduce: {error_feedback: true}}\n")
	dir := filepath.Join(t.TempDir(), "run")
	cmd := command(t, t.Context(), t.Name(), "run", file, "--policy", "baseline", "--out", dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		events, _ := os.ReadFile(filepath.Join(dir, runlog.EventsFile))
		return bytes.Contains(events, []byte(`"type":"outer_step"`)) && bytes.Contains(events, []byte(`"round":6`))
	})
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	if r := testbed(t, "run", "--resume", dir); r.code != 0 && r.code != exitInvalid {
		t.Fatalf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	checkLesson(t, file, dir)
}

// TestSampleUsage: what is no model is told in one line.
func TestSampleUsage(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("She had\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"sample": "name the directory", "sample " + t.TempDir(): "it has no model", "sample " + text: "it is no model",
		"simulate homogeneous --policy baseline --model x": "--model is of --train", "simulate homogeneous --policy baseline --train --model " + text + "x": "the scenario trains none",
	} {
		r := testbed(t, strings.Fields(args)...)
		if r.code != exitUsage || !strings.Contains(r.stderr, want) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, stderr %q, want %q", args, r.code, r.stderr, want)
		}
	}
}
