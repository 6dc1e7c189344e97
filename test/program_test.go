//go:build linux

package test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"testbed/experiment"
	"testbed/experiment/sweep"
	"testbed/internal/testenv"
	"testbed/policy"
	"testbed/record"
	"testbed/report"
	"testbed/scenarios"
)

// pythonPolicy names a policy of the documented programs in Python.
func pythonPolicy(t *testing.T, name string) string {
	t.Helper()
	_, err := exec.LookPath("python3")
	testenv.Need(t, err)
	file, err := filepath.Abs("../policy/program/testdata/" + name + ".py")
	if err != nil {
		t.Fatal(err)
	}
	return "program:" + file
}

// oddPolicy writes a program in Python that closes rounds without a deadline, and does
// something else in the second round.
func oddPolicy(t *testing.T, then string) string {
	t.Helper()
	_, err := exec.LookPath("python3")
	testenv.Need(t, err)
	file := filepath.Join(t.TempDir(), "odd.py")
	text := `#!/usr/bin/env python3
import json, os, sys, time
print("here I am", file=sys.stderr, flush=True)
for line in sys.stdin:
    q = json.loads(line)
    a = {"n": q["n"]}
    if q["ask"] == "hello":
        a.update(version=1, name="odd", answers=["enough"], time_limit_s=3600)
    elif q["ask"] == "enough":
        a.update(enough=False)
        if q["round"]["number"] == 2:
            ` + then + `
    print(json.dumps(a), flush=True)
`
	if err := testenv.WriteExecutable(file, []byte(text)); err != nil {
		t.Fatal(err)
	}
	return "program:" + file
}

// replayed is the record of a run, decided anew under a policy.
func replayed(t *testing.T, dir, spec string) (replay report.Replay) {
	t.Helper()
	r := testbed(t, "simulate", "--replay", dir, "--policy", spec, "--json")
	if err := json.Unmarshal([]byte(r.stdout), &replay); err != nil || r.code != 0 {
		t.Fatalf("%v\n%s", err, r.stderr)
	}
	return replay
}

// TestProgramsPlayForReal: a real run under a policy in Python. Replayed under its twin
// in Go, the record has the same decisions.
func TestProgramsPlayForReal(t *testing.T) {
	needSandbox(t)
	for _, name := range []string{"straggler", "backup", "deadline"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := pythonPolicy(t, name)
			file := scenario(t, 4, "100mbit", "injects:\n  - {op: Slow, at: 0, id: 3, factor: 10}\n")
			var sum record.Summary
			r := testbed(t, "run", file, "--policy", spec, "--json", "--out", filepath.Join(t.TempDir(), "run"))
			if err := json.Unmarshal([]byte(r.stdout), &sum); err != nil || sum.Policy != spec || !sum.Complete || sum.BitIdentical == nil || !*sum.BitIdentical {
				t.Fatalf("exit code %d, %v\n%s\n%s", r.code, err, r.stdout, r.stderr)
			}
			if _, err := os.Stat(filepath.Join(sum.Dir, "logs", "policy.log")); err != nil {
				t.Error(err)
			}
			own, twin := replayed(t, sum.Dir, spec), replayed(t, sum.Dir, name)
			if !own.Same || !twin.Same || twin.Replayed.OuterSteps != sum.OuterSteps {
				t.Errorf("replayed under itself %+v\nunder its twin %+v", own.Differences, twin.Differences)
			}
			if r := testbed(t, "report", sum.Dir); r.code != 0 {
				t.Errorf("reported: exit code %d, %s", r.code, r.stderr)
			}
		})
	}
}

// TestProgramIsAskedAgain by a coordinator that takes the place of one that died.
func TestProgramIsAskedAgain(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	var sum record.Summary
	r := testbed(t, "run", scenario(t, 4, "100mbit", "injects:\n  - {op: CoordinatorCrash, at: 4000, down: 2000}\n"), "--policy", pythonPolicy(t, "straggler"), "--json", "--out", filepath.Join(t.TempDir(), "run"))
	if err := json.Unmarshal([]byte(r.stdout), &sum); err != nil || !sum.Complete || len(sum.Outages) != 1 || sum.Outages[0].Length == nil || sum.BitIdentical == nil || !*sum.BitIdentical {
		t.Fatalf("exit code %d, %v\n%s\n%s", r.code, err, r.stdout, r.stderr)
	}
}

// TestKilledRunOfAProgram goes on from another folder, with a process that is asked all
// questions again.
func TestKilledRunOfAProgram(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	text, err := os.ReadFile(strings.TrimPrefix(pythonPolicy(t, "straggler"), "program:"))
	if err != nil {
		t.Fatal(err)
	}
	file := scenario(t, 3, "100mbit", "  min_slack: 20s\n  checkpoint_every: 1\n  parameters: 100000\n  all_reduce: {error_feedback: true}\n")
	lengthen(t, file, 20)
	dir := filepath.Join(t.TempDir(), "run")
	cmd := command(t, t.Context(), t.Name(), "run", file, "--policy", "program:straggler.py", "--out", dir)
	if err := testenv.WriteExecutable(filepath.Join(cmd.Dir, "straggler.py"), text); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return wholeBefore(dir, 3) > 1 })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	waitFor(t, func() bool { return len(marked(t.Name())) == 0 })
	journal, err := os.ReadFile(filepath.Join(dir, "resume", "journal.jsonl"))
	if err != nil || !strings.Contains(string(journal), `"what":"decided"`) {
		t.Errorf("%v: no decision is in the journal", err)
	}
	var sum record.Summary
	r := testbed(t, "run", "--resume", dir, "--json")
	if err := json.Unmarshal([]byte(r.stdout), &sum); err != nil || !sum.Complete || sum.OuterSteps != 20 || len(sum.ResumedFrom) != 1 || sum.Policy != "program:straggler.py" {
		t.Errorf("exit code %d, %v\n%s\n%s", r.code, err, r.stdout, r.stderr)
	}
}

// TestProgramDiesInARun: one error, its standard error and what there is of the record
// are kept, and nothing else stays.
func TestProgramDiesInARun(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	before, dir := look(t), filepath.Join(t.TempDir(), "run")
	r := testbed(t, "run", scenario(t, 2, "100mbit", ""), "--policy", oddPolicy(t, `sys.exit("no second round for me")`), "--out", dir, "--json")
	said := strings.Split(strings.TrimSpace(r.stderr), "\n")
	why := said[len(said)-1]
	log := filepath.Join(dir, "logs", "policy.log")
	if r.code != exitError || !r.noResult() || !strings.Contains(why, `odd.py (odd) died when it was asked the question "enough": exit status 1; its last line of output: "no second round for me" (its standard error is in `+log+`)`) {
		t.Errorf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	if text, err := os.ReadFile(log); err != nil || string(text) != "here I am\nno second round for me\n" {
		t.Errorf("%s: %v, %q", log, err, text)
	}
	events := readEvents(t, dir)
	end := events[slices.IndexFunc(events, func(e record.Event) bool { return e.Type == record.RunEnd })]
	if *end.Complete || end.Reason.Rule != policy.RulePolicyFailed || !strings.Contains(why, end.Cause) {
		t.Errorf("the record ends with %+v", end)
	}
	var sum record.Summary
	if text, err := os.ReadFile(filepath.Join(dir, record.SummaryFile)); err != nil || json.Unmarshal(text, &sum) != nil || sum.Complete || sum.OuterSteps != 1 {
		t.Errorf("%v: the summary is %s", err, text)
	}
	expectNothing(t, t.Name(), before)
}

// TestProgramCannotBeUsed, which shows before anything is played.
func TestProgramCannotBeUsed(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"simulate", "run", "compare", "sweep", "tune"} {
		dir := filepath.Join(t.TempDir(), "out")
		args := []string{verb, "persistent_straggler", "--policy", "program:./nobody.py"}
		if verb != "simulate" {
			args = append(args, "--out", dir)
		}
		if verb == "sweep" {
			args = append(args, "--set", "inner_steps=1,2")
		}
		r := testbed(t, args...)
		if _, err := os.Stat(dir); r.code != exitUsage || !strings.Contains(r.stderr, "the policy's program ./nobody.py cannot be found") || err == nil {
			t.Errorf("%s: exit code %d, %v\n%s", verb, r.code, err, r.stderr)
		}
	}
}

// TestProgramsAreSweptAndTuned: their parameters are known to both.
func TestProgramsAreSweptAndTuned(t *testing.T) {
	t.Parallel()
	straggler, backup := pythonPolicy(t, "straggler"), pythonPolicy(t, "backup")
	var s sweep.Summary
	args := []string{"sweep", "persistent_straggler", "--policy", "baseline," + backup, "--seeds", "1..2", "--json", "--out"}
	r := testbed(t, append(args, filepath.Join(t.TempDir(), "sweep"), "--set", "policy.program.b=0,1")...)
	if err := json.Unmarshal([]byte(r.stdout), &s); err != nil || s.Done != 8 || s.Cells[0].Speedup.Median != 1 || s.Cells[1].Speedup.Median < 4 {
		t.Errorf("swept: exit code %d, %v, %+v\n%s", r.code, err, s, r.stderr)
	}
	out := filepath.Join(t.TempDir(), "sweep")
	if r := testbed(t, append(args, out, "--set", "policy.program.c=0,1")...); r.code != exitUsage || !strings.Contains(r.stderr, "has no parameter c: its parameters are b") {
		t.Errorf("no such parameter: exit code %d\n%s", r.code, r.stderr)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("something was played all the same")
	}

	var got experiment.Tuned
	r = testbed(t, "tune", "persistent_straggler", "--policy", "baseline,"+straggler+":k=2,"+backup, "--points", "30", "--seeds", "2", "--held-out", "2", "--best", "1", "--repeat", "1", "--world", "sim", "--json", "--out", filepath.Join(t.TempDir(), "tune"))
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || r.code != 0 || got.Points < 10 {
		t.Fatalf("tuned: exit code %d, %v\n%s", r.code, err, r.stderr)
	}
	points, err := os.ReadFile(filepath.Join(got.Dir, experiment.PointsFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{straggler + ":k=2:quorum=0.", backup + ":b=0", backup + ":b=1"} {
		if !strings.Contains(string(points), of) {
			t.Errorf("%s… was not tried:\n%s", of, points)
		}
	}
	if strings.Contains(string(points), ":k=2:k=") {
		t.Errorf("k was given, and searched:\n%s", points)
	}
}

// TestProgramsDiffer: two programs, and one with two values of a parameter, are told
// apart by their specifications.
func TestProgramsDiffer(t *testing.T) {
	t.Parallel()
	backup, deadline := pythonPolicy(t, "backup"), pythonPolicy(t, "deadline")
	policies := []string{backup, backup + ":b=2", deadline}
	var c report.Comparison
	r := testbed(t, "compare", "lognormal_16", "--world", "sim", "--policy", strings.Join(policies, ","), "--json", "--out", filepath.Join(t.TempDir(), "compare"))
	if err := json.Unmarshal([]byte(r.stdout), &c); err != nil || r.code != 0 || !slices.Equal(c.Policies, policies) {
		t.Fatalf("exit code %d, %v\n%s", r.code, err, r.stderr)
	}
	for spec, participants := range map[string]int{backup: 15, backup + ":b=2": 14, deadline: 16} {
		if sum := c.Sim[spec]; sum.Policy != spec || len(sum.Rounds[0].Participants) != participants {
			t.Errorf("%s: %s, %+v", spec, sum.Policy, sum.Rounds)
		}
	}
	if r := testbed(t, "report", c.Dir); r.code != 0 {
		t.Errorf("reported: exit code %d, %s", r.code, r.stderr)
	}
}

// TestProgramDiesInASimulation: the trace has what there was until then.
func TestProgramDiesInASimulation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := testbed(t, "simulate", "persistent_straggler", "--policy", oddPolicy(t, `sys.exit("no second round for me")`), "--trace", filepath.Join(dir, record.EventsFile))
	if said := "here I am\nno second round for me\ntestbed: the policy's program "; r.code != exitError || !strings.HasPrefix(r.stderr, said) || strings.Count(r.stderr, "\n") != 3 {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
	events := readEvents(t, dir)
	if last := events[len(events)-1]; len(events) < 20 || last.Type != record.RunEnd || last.Reason.Rule != policy.RulePolicyFailed {
		t.Errorf("a trace of %d events, the last one %+v", len(events), last)
	}
}

// TestProgramDiesWithTheCommand, although it hangs and its time is not over.
func TestProgramDiesWithTheCommand(t *testing.T) {
	t.Parallel()
	number := filepath.Join(t.TempDir(), "number")
	spec := oddPolicy(t, `open("`+number+`~", "w").write(str(os.getpid())); os.rename("`+number+`~", "`+number+`"); time.sleep(3600)`)
	cmd := command(t, t.Context(), t.Name(), "simulate", "persistent_straggler", "--policy", spec)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	waitFor(t, func() bool {
		text, err := os.ReadFile(number)
		if err == nil {
			pid, err = strconv.Atoi(string(text))
		}
		return err == nil
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	waitFor(t, func() bool { return syscall.Kill(pid, 0) != nil })
}

// TestMeasuredAnswersOfAProgram: a simulated comparison stays interactive. A question
// costs at most ten of the cheapest exchanges with a program in Python on this machine:
// a short line to and fro through pipes.
func TestMeasuredAnswersOfAProgram(t *testing.T) {
	testenv.Measured(t)
	spec := pythonPolicy(t, "straggler")
	s, err := scenarios.Load("lognormal_16")
	if err != nil {
		t.Fatal(err)
	}
	testenv.Measure(t, func() func(testenv.Machine) error {
		const runs = 20
		var events, decisions int
		exchange := linesOfPython(t, 5000)
		began := time.Now()
		for range runs {
			if _, err := experiment.OnChurn(s, spec, func(e record.Event) {
				events++
				if e.Type == record.Arrive {
					decisions += 2 // a question about the deadline, and one about enough
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		answer := time.Since(began) / time.Duration(decisions)
		exchange = (exchange + linesOfPython(t, 5000)) / 2
		t.Logf("an answer takes %v at most (%d events), an exchange of lines %v", answer, events, exchange)
		return func(m testenv.Machine) error {
			if cost := float64(answer) / float64(exchange); cost > 10/(1-m.Taken) {
				return fmt.Errorf("an answer costs %.1f exchanges of lines", cost)
			}
			return nil
		}
	})
}

// linesOfPython measures what an exchange of short lines with a program in Python takes.
func linesOfPython(t *testing.T, exchanges int) time.Duration {
	t.Helper()
	cmd := exec.Command("python3", "-u", "-c", "import sys\nfor line in sys.stdin: sys.stdout.write(line)")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var began time.Time
	answers := bufio.NewReader(out)
	for k := range exchanges + 1 {
		if k == 1 { // the first one waits for Python to start
			began = time.Now()
		}
		if _, err := io.WriteString(in, "{}\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := answers.ReadString('\n'); err != nil || line != "{}\n" {
			t.Fatalf("answered %q, %v", line, err)
		}
	}
	took := time.Since(began) / time.Duration(exchanges)
	if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	return took
}
