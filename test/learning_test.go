//go:build linux

package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"testbed/experiment/sweep"
	"testbed/internal/testscenario"
	"testbed/record"
	"testbed/report"
	"testbed/scenarios"
)

// learns is a scenario of n workers with a small language model.
func learns(t *testing.T, n, rounds int, extra string) string {
	t.Helper()
	text := fmt.Sprintf("seed: 3\ninner_steps: 3\ntarget_outer_steps: %d\nhorizon: 100000000\nheartbeat_period: 5000\nheartbeat_miss_threshold: %d\n"+
		"base_latency: 100\nbandwidth_bpus: 10\nstate_bytes: 100\n"+
		"train:\n  task: charlm\n  model: {layers: 1, width: 16, heads: 2, context: 16, batch: 2}\n  outer: {rate: 0.7, momentum: 0.5}\nworkers:\n", rounds, borne(extra))
	for id := range n {
		text += fmt.Sprintf("  - {id: %d, inner_step_mean: 1000}\n", id)
	}
	file := filepath.Join(t.TempDir(), "learns.yaml")
	if err := os.WriteFile(file, []byte(text+extra), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// exchanging gives a scenario of learns other outer steps.
func exchanging(t *testing.T, file, outer string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, bytes.Replace(text, []byte("momentum: 0.5"), []byte("momentum: 0.5"+outer), 1), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// checkTraining computes what a record trains, and holds the states and losses in
// it against that, bit by bit.
func checkTraining(t *testing.T, file, dir string) {
	t.Helper()
	s, err := scenarios.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	events := readEvents(t, dir)
	if err := testscenario.CheckTraining(testscenario.Resolve(t, s, ""), events); err != nil {
		t.Error(err)
	}
	states, most := 0, s.TargetOuterSteps
	validated := map[int]bool{}
	due := 0 // rounds whose losses died with the run that was killed
	for _, e := range events {
		switch e.Type {
		case record.State:
			states++
		case record.Validated:
			validated[e.Round] = true
		case record.RunResume:
			most-- // it may have died between the checkpoint and what is told of it
			due = states
		}
	}
	missing := 0
	for round := due + 1; round <= s.TargetOuterSteps; round++ {
		if s.Grouping().Global(round) && !validated[round] { // other rounds lead to no one model
			missing++
		}
	}
	if states < most || missing > 1 { // the worker that was to validate may have crashed
		t.Errorf("%d states and %d losses of %d outer steps, %d missing after outer step %d", states, len(validated), s.TargetOuterSteps, missing, due)
	}
	last := func(e record.Event) bool { return e.Type == record.State && e.Round == s.TargetOuterSteps }
	if !slices.ContainsFunc(events, last) {
		t.Errorf("nobody told what outer step %d led to", s.TargetOuterSteps)
	}
}

// TestRealRunsLearn what their records say, through a crash and a late join, and
// leave a model that writes.
func TestRealRunsLearn(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	for what, extra := range map[string]string{
		"ring": "real: {time_scale: 100}\n",
		"four bits, faults": "real: {time_scale: 100, all_reduce: {bits: 4, error_feedback: true}}\n" +
			"injects:\n  - {op: Crash, at: 9000, id: 1}\n  - {op: Slow, at: 0, id: 2, factor: 3}\n",
		"streaming": "real: {time_scale: 100, all_reduce: {error_feedback: true}}\ninjects:\n  - {op: Slow, at: 0, id: 2, factor: 3}\n",
		"directly":  "real: {time_scale: 100, all_reduce: {algorithm: direct, bits: 32}}\n",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			file := learns(t, 4, 5, extra)
			if what == "streaming" {
				exchanging(t, file, ", fragments: 2, overlap: 2, mix: 0.5")
			}
			sum := complete(t, file, "--policy", "straggler")
			checkTraining(t, file, sum.Dir)
			if last := sum.Rounds[len(sum.Rounds)-1]; last.ModelHash == "" || last.Loss == nil || len(last.PseudoGradients) == 0 || len(sum.LayerErrors) == 0 || *sum.TokensSeen == 0 {
				t.Errorf("%+v", last)
			}
			if r := testbed(t, "sample", sum.Dir, "--prompt", "Anne", "--length", "30"); r.code != 0 || !strings.HasPrefix(r.stdout, "Anne") || len(r.stdout) != 35 {
				t.Errorf("exit code %d, %q, %s", r.code, r.stdout, r.stderr)
			}
		})
	}
}

// TestRegionsInBothWorlds: a real run of two regions comes, in each of them and in
// all, to the bits that the simulator comes to.
func TestRegionsInBothWorlds(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	file := learns(t, 4, 4, "real:\n  time_scale: 100\n  links:\n    default: {one_way_delay: 1ms}\n    groups: {eu: {nodes: [w0, w3]}, us: {nodes: [w1, w2]}}\n"+
		"    paths: [{between: [eu, us], one_way_delay: 20ms}]\n")
	exchanging(t, file, "}\n  regions: {every: 2")
	real := complete(t, file, "--policy", "baseline")
	var simulated record.Summary
	r := testbed(t, "simulate", file, "--policy", "baseline", "--network", "links", "--train", "--json")
	if err := json.Unmarshal([]byte(r.stdout), &simulated); r.code != 0 || err != nil {
		t.Fatalf("exit code %d, %v: %s", r.code, err, r.stderr)
	}
	for k, r := range real.Rounds {
		if of := simulated.Rounds[k]; r.Model() == "" || r.Model() != of.Model() || len(r.Regions) != r.Round%2*2 {
			t.Errorf("round %d comes to %s %+v, simulated %s %+v", r.Round, r.ModelHash, r.Regions, of.ModelHash, of.Regions)
		}
		if known := r.Loss != nil && r.Loss.Validation != nil; known != (r.Round%2 == 0) {
			t.Errorf("round %d has the losses %+v", r.Round, r.Loss)
		}
	}
	s, err := scenarios.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := testscenario.CheckTraining(testscenario.Resolve(t, s, ""), readEvents(t, real.Dir)); err != nil {
		t.Error(err)
	}
	if page := testbed(t, "report", real.Dir); page.code != 0 {
		t.Errorf("exit code %d: %s", page.code, page.stderr)
	}
}

// inRound6 starts a run and waits until it is in its sixth round.
func inRound6(t *testing.T, file, dir string) *exec.Cmd {
	t.Helper()
	cmd := command(t, t.Context(), t.Name(), "run", file, "--policy", "baseline", "--out", dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		events, _ := os.ReadFile(filepath.Join(dir, record.EventsFile))
		return bytes.Contains(events, []byte(`"type":"outer_step"`)) && bytes.Contains(events, []byte(`"round":6`))
	})
	return cmd
}

// TestALearningRunGoesOn after everything has died, as if nothing had been.
func TestALearningRunGoesOn(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	for _, outer := range []string{", fragments: 3, mix: 0.5, overlap: 1", ", overlap: 3, correction: eager", "}\n  regions: {every: 2, workers: {eu: [0, 2], us: [1]}"} {
		t.Run(outer, func(t *testing.T) {
			t.Parallel()
			file := learns(t, 3, 20, "real: {time_scale: 100, checkpoint_every: 2, all_reduce: {error_feedback: true}}\n")
			exchanging(t, file, outer)
			dir := filepath.Join(t.TempDir(), "run")
			cmd := inRound6(t, file, dir)
			if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // killed
			if r := testbed(t, "run", "--resume", dir); r.code != 0 && r.code != exitInvalid {
				t.Fatalf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
			}
			checkTraining(t, file, dir)
		})
	}
}

// TestSweepByLoss: a sweep writes the same table on any number of processors, and
// holds what was learnt in its cells against each other; compare takes settings.
func TestSweepByLoss(t *testing.T) {
	t.Parallel()
	file := learns(t, 3, 4, "injects:\n  - {op: Slow, at: 0, id: 2, factor: 5}\n")
	var tables [2][]byte
	for k, processors := range []string{"1", "3"} {
		dir := filepath.Join(t.TempDir(), "sweep")
		r := call(t, []string{"GOMAXPROCS=" + processors}, program, "sweep", file, "--train", "--network", "links", "--seeds", "1..3", "--set", "real.all_reduce.bits=8,4", "--set", "train.outer.momentum=0.3", "--out", dir, "--json")
		var s sweep.Summary
		if err := json.Unmarshal([]byte(r.stdout), &s); r.code != 0 || err != nil {
			t.Fatalf("exit code %d, %v: %s", r.code, err, r.stderr)
		}
		if o := s.Cells[1].Learning["straggler"]; s.Target == nil || o.EqualTokens.N != 3 || o.Final.N != 3 || o.Sooner.N != 3 || o.Sooner.Interval == nil && !o.Sooner.Same {
			t.Errorf("%+v", s.Cells)
		}
		var err error
		if tables[k], err = os.ReadFile(filepath.Join(dir, sweep.TableFile)); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(tables[0], tables[1]) {
		t.Errorf("with one processor\n%s\nwith three\n%s", tables[0], tables[1])
	}
	r := testbed(t, "compare", file, "--world", "sim", "--train", "--set", "target_outer_steps=2", "--out", filepath.Join(t.TempDir(), "compare"), "--json")
	var c report.Comparison
	if err := json.Unmarshal([]byte(r.stdout), &c); r.code != 0 || err != nil || c.Sim["baseline"].OuterSteps != 2 || c.Learning["sim"] == nil {
		t.Errorf("exit code %d, %v: %s", r.code, err, r.stderr)
	}
}

// TestSampleUsage: what is no model is told in one line.
func TestSampleUsage(t *testing.T) {
	t.Parallel()
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("She had\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"sample": "name the directory of a run", "sample " + t.TempDir(): "there is no model: the directory has no file called model", "sample no-such": "there is no model: no file or directory has this name", "sample " + text: "the file is not a model",
		"sweep homogeneous --loss 2": "--loss needs --train", "sweep homogeneous --train": "train.task has no loss", "sweep homogeneous --train --real": "apply to the simulator only",
		"tune homogeneous --train --world sim": "has no train section, so there is no loss to search for", "compare homogeneous --set inner_steps": "has no value", "sweep homogeneous --network tcp": "there is no",
		"simulate homogeneous --policy baseline --model x": "--model applies only with --train", "simulate homogeneous --policy baseline --train --model " + text + "x": "the scenario trains no model",
	} {
		r := testbed(t, strings.Fields(args)...)
		if r.code != exitUsage || !strings.Contains(r.stderr, want) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, stderr %q, want %q", args, r.code, r.stderr, want)
		}
	}
}

// TestInterruptedTraining: a simulation that trains for minutes ends when it is
// told to, and says so.
func TestInterruptedTraining(t *testing.T) {
	t.Parallel()
	cmd := command(t, t.Context(), t.Name(), "simulate", "charlm_straggler", "--policy", "baseline", "--train", "--set", "target_outer_steps=4000", "--set", "horizon=100000000000")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(4 * time.Second) // it would take an hour or two
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // an exit code, looked at below
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		cmd.Process.Kill()
		t.Fatal("it goes on a minute after the interrupt")
	}
	if code := cmd.ProcessState.ExitCode(); code != exitError || stderr.String() != "testbed: interrupted\n" {
		t.Errorf("exit code %d, %s", code, stderr.String())
	}
}
