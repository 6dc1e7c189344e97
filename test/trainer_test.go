//go:build linux

package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"testbed/experiment"
	"testbed/internal/testscenario"
	"testbed/record"
	"testbed/scenarios"
)

// own is a scenario of n workers with a program of the user's own: this test
// binary, which behaves like that, if nothing else is given.
func own(t *testing.T, n, rounds int, how, extra string, program ...string) string {
	t.Helper()
	if program == nil {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		program = []string{exe, how}
	}
	line, err := json.Marshal(program)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("seed: 3\ninner_steps: 3\ntarget_outer_steps: %d\nhorizon: 100000000\nheartbeat_period: 5000\nheartbeat_miss_threshold: 12\n"+
		"base_latency: 100\nbandwidth_bpus: 10\nstate_bytes: 100\n"+
		"train:\n  task: program\n  program: %s\n  outer: {rate: 0.7, momentum: 0.5}\n  tokens_per_step: 7\n  time_limit: 60s\nworkers:\n", rounds, line)
	for id := range n {
		text += fmt.Sprintf("  - {id: %d, inner_step_mean: 1000}\n", id)
	}
	file := filepath.Join(t.TempDir(), "own.yaml")
	if err := os.WriteFile(file, []byte(text+extra), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// checkOwn is checkTraining with the program started.
func checkOwn(t *testing.T, file, dir string) {
	t.Helper()
	s, err := scenarios.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	events := readEvents(t, dir)
	if err := experiment.WithTrainer(t.Context(), s, func(s *scenarios.Scenario) error {
		return testscenario.CheckTraining(testscenario.Resolve(t, s, ""), events)
	}); err != nil {
		t.Error(err)
	}
}

// hashes are those of the model after every round.
func hashes(sum record.Summary) (all []string) {
	for _, r := range sum.Rounds {
		all = append(all, r.ModelHash)
	}
	return all
}

// TestOwnTrainerInBothWorlds: with the program of the user's own a real run and a
// simulated one come to the same, bit by bit; and what a record with faults in it
// says leads to the states that are in it.
func TestOwnTrainerInBothWorlds(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	for what, extra := range map[string]string{
		"measured": "real: {time_scale: 100}\n",
		"planned":  "real: {time_scale: 100, compute: planned, parameters: 5, all_reduce: {bits: 4, error_feedback: true}}\n",
	} {
		file := own(t, 3, 4, "well", extra)
		real := complete(t, file, "--policy", "baseline")
		r := testbed(t, "simulate", file, "--policy", "baseline", "--train", "--json")
		var sim record.Summary
		if err := json.Unmarshal([]byte(r.stdout), &sim); err != nil {
			t.Fatalf("exit code %d, %v\n%s", r.code, err, r.stderr)
		}
		if a, b := hashes(real), hashes(sim); len(a) != 4 || a[0] == "" || strings.Join(a, " ") != strings.Join(b, " ") {
			t.Errorf("%s: real %v, simulated %v", what, a, b)
		}
		last := real.Rounds[3]
		if last.Loss == nil || last.Loss.Train == nil || real.Rounds[2].Loss.Validation == nil || *real.TokensSeen != 3*4*3*7 {
			t.Errorf("%s: %+v, %v tokens", what, last, real.TokensSeen)
		}
		checkOwn(t, file, real.Dir)
		if r := testbed(t, "sample", real.Dir); r.code != exitUsage || !strings.Contains(r.stderr, "only the program that trained the model can interpret") {
			t.Errorf("exit code %d, %s", r.code, r.stderr)
		}
	}
	faults := own(t, 4, 6, "well", "real: {time_scale: 100, compute: planned}\ninjects:\n"+
		"  - {op: Slow, at: 0, id: 2, factor: 3}\n  - {op: Restart, at: 7000, id: 1, after: 3000}\n  - {op: Pause, at: 9000, id: 0}\n  - {op: Resume, at: 11000, id: 0}\n")
	checkOwn(t, faults, complete(t, faults, "--policy", "straggler").Dir)
}

// TestOwnTrainerFails: each failure is that of its worker, and the run goes on
// without it; the error names worker, program, log and mend.
func TestOwnTrainerFails(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	for how, want := range map[string]string{
		"are killed at round 2 of 1":  "crashed: signal: killed",
		"fall silent at round 2 of 1": "has not sent the loss of the inner step within LIMIT",
		"say rubbish at round 2 of 1": "sent an invalid message",
		"NaN of 1":                    "handed over its parameters with the value NaN",
		"another size of 1":           "joined with 6 parameters, but this run has 5",
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			file := own(t, 3, 4, how, "real: {time_scale: 100}\n")
			limits := []time.Duration{time.Minute}
			if strings.Contains(how, "silent") {
				limits = []time.Duration{6 * time.Second, time.Minute} // a busy machine needs longer for other messages
			}
			var dir, why string
			var r result
			for _, limit := range limits {
				dir, why = filepath.Join(t.TempDir(), "run"), strings.Replace(want, "LIMIT", limit.String(), 1)
				r = testbed(t, "run", file, "--policy", "baseline", "--json", "--out", dir, "--set", "train.time_limit="+limit.String())
				if strings.Contains(r.stderr, why) {
					break
				}
			}
			var sum record.Summary
			if err := json.Unmarshal([]byte(r.stdout), &sum); err != nil {
				t.Fatalf("exit code %d, %v\n%s", r.code, err, r.stderr)
			}
			reasons := strings.Join(sum.Fidelity.Reasons, "; ")
			log := filepath.Join(dir, "logs", "w1.trainer.log")
			for _, part := range []string{"worker w1 gave up unexpectedly", how, why, "its output is in " + log} {
				if !strings.Contains(reasons, part) || !strings.Contains(r.stderr, part) {
					t.Errorf("%q is not said:\n%s\n%s", part, reasons, r.stderr)
				}
			}
			if r.code != exitInvalid || !sum.Complete || !*sum.BitIdentical {
				t.Fatalf("exit code %d, complete %v", r.code, sum.Complete)
			}
			for _, round := range sum.Rounds[2:] {
				if len(round.Participants) != 2 {
					t.Errorf("round %d: %v", round.Round, round.Participants)
				}
			}
			if _, err := os.Stat(log); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOwnTrainerIsNotThere: what cannot work is told in one line before a run.
func TestOwnTrainerIsNotThere(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	missing := own(t, 2, 2, "well", "", "no-such-program", "train.py")
	crashes := own(t, 2, 2, "crash at start", "")
	otherSize := own(t, 2, 2, "well", "real: {parameters: 7}\n")
	unasked := own(t, 2, 2, "well", "")
	for _, c := range []struct {
		file, args, want string
		code             int
	}{
		{missing, "run --policy baseline", `the program "no-such-program" cannot be started: executable file not found in $PATH; install it`, exitUsage},
		{missing, "simulate --policy baseline --train", `train.program`, exitUsage},
		{crashes, "run --policy baseline", `(init) crashed: exit status 7; its last line of output: "now I crash"`, exitError},
		{crashes, "simulate --policy baseline --train", `asking the program for its initial parameters`, exitError},
		{otherSize, "run --policy baseline", "is 7, but the program has 5 parameters", exitUsage},
		{unasked, "simulate --policy baseline --network links", "real.parameters", exitUsage},
	} {
		args := strings.Fields(c.args)
		r := testbed(t, append([]string{args[0], c.file}, args[1:]...)...)
		if r.code != c.code || !strings.Contains(r.stderr, c.want) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, want %d with %q:\n%s", c.args, r.code, c.code, c.want, r.stderr)
		}
	}
	if r := testbed(t, "simulate", unasked, "--policy", "baseline"); r.code != 0 {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
}

// TestOwnTrainersDieWithTheRun, whoever is killed, and the run goes on as if
// nothing had been.
func TestOwnTrainersDieWithTheRun(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	before := look(t)
	file := own(t, 3, 20, "well", "real: {time_scale: 100, checkpoint_every: 2}\n")
	dir := filepath.Join(t.TempDir(), "run")
	cmd := inRound6(t, file, dir)
	if n := len(trainersOf(t, file)); n < 3 {
		t.Errorf("%d trainers, want 3 and one that validates", n)
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	expectNothing(t, t.Name(), before)
	waitFor(t, func() bool { return len(trainersOf(t, file)) == 0 })
	if r := testbed(t, "run", "--resume", dir); r.code != 0 && r.code != exitInvalid {
		t.Fatalf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	checkOwn(t, file, dir)

	// Likewise of a simulation, which has no sandbox.
	slow := own(t, 3, 100000, "well", "")
	cmd = command(t, t.Context(), t.Name()+"-sim", "simulate", slow, "--policy", "baseline", "--train")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return len(trainersOf(t, slow)) >= 3 })
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	waitFor(t, func() bool { return len(trainersOf(t, slow)) == 0 })
}

// trainersOf are the numbers of the processes that train in a scenario's folder.
func trainersOf(t *testing.T, file string) (pids []int) {
	t.Helper()
	for _, name := range filesOf("cwd") {
		if at, err := os.Readlink(name); err == nil && at == filepath.Dir(file) {
			pid, err := strconv.Atoi(strings.Split(name, "/")[2])
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestOwnTrainerSharesItsWorkersFate: it stalls and dies with its worker,
// while the run goes on.
func TestOwnTrainerSharesItsWorkersFate(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	file := own(t, 3, 100, "well", "real: {time_scale: 100}\ninjects:\n"+
		"  - {op: Pause, at: 3000, id: 0}\n  - {op: Resume, at: 60000, id: 0}\n  - {op: Crash, at: 65000, id: 1}\n")
	dir := filepath.Join(t.TempDir(), "run")
	cmd := command(t, t.Context(), t.Name(), "run", file, "--policy", "baseline", "--out", dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := func() (n int) {
		for _, pid := range trainersOf(t, file) {
			stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // proc_pid_stat(5)
			if _, after, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(after, "T") {
				n++
			}
		}
		return n
	}
	recorded := func(what string) bool {
		events, _ := os.ReadFile(filepath.Join(dir, record.EventsFile))
		return bytes.Contains(events, []byte(`"type":"`+what+`"`))
	}
	waitFor(t, func() bool { return stopped() > 0 })
	if recorded("resume") {
		t.Error("it was stopped when nobody was paused")
	}
	waitFor(t, func() bool { return recorded("resume") && stopped() == 0 })
	waitFor(t, func() bool { return recorded("crash") })
	waitFor(t, func() bool { return len(trainersOf(t, file)) <= 3 }) // of two workers, and one that validates
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	waitFor(t, func() bool { return len(trainersOf(t, file)) == 0 })
}
