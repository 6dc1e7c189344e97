//go:build linux

package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"testbed/internal/rapidtest"
	"testbed/internal/testenv"
	"testbed/policy"
	"testbed/record"
)

func readEvents(t *testing.T, dir string) []record.Event {
	t.Helper()
	events, cut := eventsSoFar(t, dir)
	if cut {
		t.Fatalf("the record in %s ends within a line", dir)
	}
	return events
}

// eventsSoFar are those of a run that may be under way, and whether its last line
// is half written.
func eventsSoFar(t *testing.T, dir string) (events []record.Event, cut bool) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, record.EventsFile))
	if err != nil {
		t.Fatal(err)
	}
	whole := bytes.LastIndexByte(text, '\n') + 1
	if events, err = record.Read(bytes.NewReader(text[:whole])); err != nil {
		t.Fatal(err)
	}
	return events, whole < len(text)
}

// TestMeasuredCoordinatorDiesDuringAReduction, which ends without it, and stays away
// for longer than the heartbeat time-out.
func TestMeasuredCoordinatorDiesDuringAReduction(t *testing.T) {
	testenv.MeasuredParallel(t)
	needSandbox(t)
	// The first reduction lasts from about 2,100 to more than 5,000 µs.
	file := scenario(t, 4, "15mbit", "injects:\n  - {op: CoordinatorCrash, at: 3000, down: 6000}\n")
	for _, policy := range []string{"baseline", "straggler"} {
		sum := play(t, func(sum record.Summary) error {
			if len(sum.Evicted)+len(sum.Sidelined) > 0 {
				return fmt.Errorf("sidelined %q, evicted %q", who(sum.Sidelined), who(sum.Evicted))
			}
			if len(sum.Outages) != 1 || sum.Outages[0].Length == nil || *sum.Outages[0].Length < 6000 {
				return fmt.Errorf("outages %+v, want one of 6,000 µs", sum.Outages)
			}
			var crash, back, reduced, aborted int
			for i, e := range readEvents(t, sum.Dir) {
				switch {
				case e.Type == record.CoordinatorCrash:
					crash = i
				case e.Type == record.CoordinatorBack:
					back = i
				case e.Type == record.Reduced && e.Round == 1 && crash > 0 && back == 0:
					reduced++
				case e.Type == record.ReduceAbort:
					aborted++
				}
			}
			if reduced != 4 || aborted > 0 {
				return fmt.Errorf("%d of 4 workers ended the reduction without the coordinator, %d aborts", reduced, aborted)
			}
			return nil
		}, file, "--policy", policy)
		if _, err := os.Stat(filepath.Join(sum.Dir, "resume")); err == nil {
			t.Errorf("%s: what a killed run needs is left behind", policy)
		}
	}
}

// TestCoordinatorIsKilledFromOutside again and again, without the scenario's
// knowledge. The run bears three deaths and ends with the fourth.
func TestCoordinatorIsKilledFromOutside(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	for _, kills := range []int{2, 4} {
		t.Run(fmt.Sprint(kills), func(t *testing.T) {
			t.Parallel()
			file := scenario(t, 3, "100mbit", "  parameters: 10000\n")
			lengthen(t, file, 4*kills) // it is never over before they have died
			run := start(t, file, "--policy", "baseline")
			killed, alive := 0, true
			sum := run.follow(t, func(e record.Event) {
				alive = alive || e.Type == record.CoordinatorBack
				if e.Type == record.OuterStep && alive && killed < kills {
					killed, alive = killed+1, false
					pid, err := run.process(policy.CoordinatorNode)
					if err == nil {
						err = syscall.Kill(pid, syscall.SIGKILL)
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
			if killed != kills || len(sum.Outages) != min(kills, 3) {
				t.Errorf("killed %d times of %d: outages %+v", killed, kills, sum.Outages)
			}
			for _, o := range sum.Outages {
				if o.Cause != "signal: killed" || o.Length == nil && kills < 4 {
					t.Errorf("outage %+v", o)
				}
			}
			if code := run.ProcessState.ExitCode(); kills > 3 {
				if code != exitError || !strings.Contains(run.said(), "the coordinator died: signal: killed (it had already failed and been restarted 3 times); see ") {
					t.Errorf("killed %d times: exit code %d\n%s", kills, code, run.said())
				}
				return
			} else if code != exitInvalid || !sum.Complete || !*sum.BitIdentical || len(sum.Evicted)+len(sum.Sidelined) > 0 {
				t.Errorf("exit code %d; complete %v, bit-identical %v, evicted %v, sidelined %v", code, sum.Complete, *sum.BitIdentical, sum.Evicted, sum.Sidelined)
			}
			if f := sum.Fidelity; f.Verdict != "invalid" || !strings.Contains(strings.Join(f.Reasons, "; "), "the coordinator died unexpectedly") {
				t.Errorf("fidelity %+v", f)
			}
		})
	}
}

// TestKilledRunIsResumed kills a whole run twice. The second time, the last
// checkpoint is damaged as well.
func TestKilledRunIsResumed(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	before := look(t)
	// No deadline comes before all have arrived, on whatever machine.
	file := scenario(t, 3, "100mbit", "  min_slack: 20s\n  checkpoint_every: 1\n  parameters: 100000\n  all_reduce: {error_feedback: true}\n")
	const rounds = 20 // it is never over before it is killed, on whatever machine
	lengthen(t, file, rounds)
	dir := filepath.Join(t.TempDir(), "run")
	args := []string{"run", file, "--policy", "straggler", "--out", dir}
	for life := range 2 {
		id := fmt.Sprintf("%s-%d", t.Name(), life)
		cmd := command(t, t.Context(), id, args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if life == 0 {
			waitFor(t, func() bool { return wholeBefore(dir, 3) > 0 })
			if r := testbed(t, "run", "--resume", dir); r.code != exitError || !strings.Contains(r.stderr, "still going on") {
				t.Errorf("resumed a living run: exit code %d, %s", r.code, r.stderr)
			}
		}
		// What is on its way to the record dies with the process.
		waitFor(t, func() bool {
			if wholeBefore(dir, 3) < 1+2*life {
				return false
			}
			last, led, resumed := lastOf(t, dir), false, 0
			events, _ := eventsSoFar(t, dir)
			for _, e := range events {
				if e.Type == record.RunResume {
					resumed++
				}
				led = led || e.Type == record.State && e.Round == last && len(e.Participants) == 3
			}
			return led && resumed == life
		})
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
		expectNothing(t, id, before)
		args = []string{"run", "--resume", dir, "--json"}
	}
	last := lastOf(t, dir)
	name := filepath.Join(dir, "resume", fmt.Sprintf("outer-%d.checkpoint", last))
	if err := os.Truncate(name, 1000); err != nil {
		t.Fatal(err)
	}
	r := testbed(t, args...)
	var sum record.Summary
	if err := json.Unmarshal([]byte(r.stdout), &sum); err != nil || r.code != 0 && r.code != exitInvalid { // on a disturbed machine
		t.Fatalf("exit code %d, %v\n%s\n%s", r.code, err, r.stdout, r.stderr)
	}
	if !strings.Contains(r.stderr, "a checkpoint cannot be used") {
		t.Errorf("nothing was said of the damaged checkpoint:\n%s", r.stderr)
	}
	if !sum.Complete || len(sum.Rounds) != rounds || len(sum.ResumedFrom) != 2 || sum.ResumedFrom[1] != last-1 || !*sum.BitIdentical {
		t.Errorf("complete %v, %d rounds, resumed from %v, want from %d", sum.Complete, len(sum.Rounds), sum.ResumedFrom, last-1)
	}
	// One lineage: whatever a run goes on from has been compared before, and with
	// what quantisation had taken, too, it comes to the same again.
	hashes, repeated := map[int]string{}, 0
	for i, e := range readEvents(t, dir) {
		switch {
		case e.Type == record.State && len(e.Participants) == 3:
			if before := hashes[e.Round]; before != "" {
				if repeated++; before != e.Hash {
					t.Errorf("event %d: outer step %d led to %s, and before to %s", i, e.Round, e.Hash, before)
				}
			}
			hashes[e.Round] = e.Hash
		case e.Type == record.RunResume && (hashes[e.Round] != e.Hash || len(e.IDs) != 3):
			t.Errorf("event %d: went on with %v from %s; outer step %d had led to %s", i, e.IDs, e.Hash, e.Round, hashes[e.Round])
		}
	}
	if repeated == 0 {
		t.Error("no outer step was taken twice")
	}
	if hashes[rounds] == "" {
		t.Error("nobody told what the last outer step led to")
	}
	if r := testbed(t, args...); r.code != exitError || !strings.Contains(r.stderr, "nothing to resume") {
		t.Errorf("resumed a run that is over: exit code %d, %s", r.code, r.stderr)
	}
	if r := testbed(t, "run", "--resume", dir, "--policy", "baseline"); r.code != exitUsage {
		t.Errorf("resumed under another policy: exit code %d, %s", r.code, r.stderr)
	}
}

// wholeBefore is the outer step of the last checkpoint but one of a run of so many
// workers, if what is each one's own lies beside it, else 0. A run that is killed then
// loses nothing of it.
func wholeBefore(dir string, workers int) int {
	all, _ := filepath.Glob(filepath.Join(dir, "resume", "outer-*.checkpoint"))
	if len(all) != 2 {
		return 0
	}
	steps := min(stepsOf(all[0]), stepsOf(all[1]))
	own, _ := filepath.Glob(filepath.Join(dir, "resume", fmt.Sprintf("outer-%d.*.residual", steps)))
	if len(own) != workers-1 { // one's own is in the checkpoint
		return 0
	}
	return steps
}

// stepsOf is the outer step of a checkpoint of that name.
func stepsOf(name string) (steps int) {
	_, _ = fmt.Sscanf(filepath.Base(name), "outer-%d.checkpoint", &steps) // else 0
	return steps
}

// lastOf is the outer step of the last checkpoint.
func lastOf(t *testing.T, dir string) (last int) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "resume", "outer-*.checkpoint"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no checkpoint: %v", err)
	}
	for _, name := range names {
		last = max(last, stepsOf(name))
	}
	return last
}

// TestAnOldRunGoesOn: a run that was killed after its first outer step, when the program was
// that of commit 8295e8e, is resumed.
func TestAnOldRunGoesOn(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	if err := os.CopyFS(dir, os.DirFS("testdata/killed")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, record.LogsDir), 0o755); err != nil { // is not kept in the test data
		t.Fatal(err)
	}
	before := readEvents(t, dir)
	r := testbed(t, "run", "--resume", dir, "--json")
	var sum record.Summary
	if err := json.Unmarshal([]byte(r.stdout), &sum); err != nil || r.code != 0 && r.code != exitInvalid { // on a disturbed machine
		t.Fatalf("exit code %d, %v\n%s\n%s", r.code, err, r.stdout, r.stderr)
	}
	if !sum.Complete || len(sum.Rounds) != 5 || !slices.Equal(sum.ResumedFrom, []int{1}) || !*sum.BitIdentical {
		t.Errorf("complete %v, %d rounds, resumed from %v, same bytes %v", sum.Complete, len(sum.Rounds), sum.ResumedFrom, *sum.BitIdentical)
	}
	after := readEvents(t, dir)
	if len(after) <= len(before) || !reflect.DeepEqual(after[:len(before)], before) {
		t.Errorf("the record does not go on where it was cut off: %d events, then %d", len(before), len(after))
	}
	if r := testbed(t, "report", dir); r.code != 0 {
		t.Errorf("its report: exit code %d, %s", r.code, r.stderr)
	}
}

// TestResumeOfAResumeThatIsNotOnRecord: the second life was killed when the coordinator's
// journal had its beginning, and the record not yet.
func TestResumeOfAResumeThatIsNotOnRecord(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	file := scenario(t, 3, "100mbit", "  checkpoint_every: 1\n  parameters: 20000\n")
	lengthen(t, file, 8)
	dir := filepath.Join(t.TempDir(), "run")
	events := filepath.Join(dir, record.EventsFile)
	killAt := func(mark string, args ...string) {
		t.Helper()
		cmd := command(t, t.Context(), t.Name(), args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool {
			text, err := os.ReadFile(events)
			return err == nil && bytes.Contains(text, []byte(mark))
		})
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	}
	killAt(`"round":5,`, "run", file, "--policy", "baseline", "--out", dir)
	killAt(`"run_resume"`, "run", "--resume", dir)
	text, err := os.ReadFile(events)
	if err != nil {
		t.Fatal(err)
	}
	all := bytes.SplitAfter(text, []byte("\n"))
	k := slices.IndexFunc(all, func(line []byte) bool { return bytes.Contains(line, []byte(`"run_resume"`)) })
	if err := os.WriteFile(events, bytes.Join(all[:k], nil), 0o644); err != nil {
		t.Fatal(err)
	}
	r := testbed(t, "run", "--resume", dir, "--json")
	var sum record.Summary
	if err := json.Unmarshal([]byte(r.stdout), &sum); err != nil || !sum.Complete || sum.BitIdentical == nil || !*sum.BitIdentical || len(sum.ResumedFrom) != 2 {
		t.Errorf("exit code %d, %v, complete %v, resumed from %v\n%s", r.code, err, sum.Complete, sum.ResumedFrom, r.stderr)
	}
}

// TestRecordsSurviveEveryKill kills a run at random moments and resumes it in a loop; then
// every reader reads everything. The explorer tries other moments.
func TestRecordsSurviveEveryKill(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	random := rand.New(rand.NewPCG(rapidtest.Seed(), 31))
	file := scenario(t, 3, "100mbit", "  min_slack: 20s\n  checkpoint_every: 1\n  parameters: 20000\n")
	lengthen(t, file, 30)
	dir := filepath.Join(t.TempDir(), "run")
	begin := []string{"run", file, "--policy", "straggler", "--out", dir}
	args := begin
	for life := range 5 {
		cmd := command(t, t.Context(), fmt.Sprintf("%s-%d", t.Name(), life), args...)
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case <-time.After(time.Duration(500+random.IntN(3000)) * time.Millisecond):
			if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Fatal(err)
			}
			<-ended
			args = []string{"run", "--resume", dir, "--json"}
		case err := <-ended:
			// It was killed before there was anything to go on from, or came to its end.
			if !strings.Contains(said.String(), "run the scenario again") && err != nil && cmd.ProcessState.ExitCode() != exitInvalid {
				t.Fatalf("life %d: %v\n%s", life, err, said.String())
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			args = begin
		}
	}
	r := testbed(t, args...)
	if strings.Contains(r.stderr, "run the scenario again") {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		r = testbed(t, begin...)
	}
	if r.code != 0 && r.code != exitInvalid { // on a disturbed machine
		t.Fatalf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(files) < 3 {
		t.Fatalf("files of lines: %q, %v", files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for n, line := range bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")) {
			if len(text) > 0 && !json.Valid(line) {
				t.Errorf("%s, line %d is not JSON: %q", name, n+1, line)
			}
		}
	}
	if r := testbed(t, "report", dir); r.code != 0 {
		t.Errorf("report: exit code %d, %s", r.code, r.stderr)
	}
	// What they say of a resumed run is no matter here, only that they can read it.
	for _, args := range [][]string{{"calibrate", "--refit", dir}, {"simulate", "--replay", dir, "--policy", "straggler"}} {
		if r := testbed(t, args...); r.code > exitUsage || strings.Contains(r.stderr, "line") || strings.Contains(r.stderr, "SHA") || strings.Contains(r.stderr, "follow") {
			t.Errorf("%s: exit code %d, %s", args[0], r.code, r.stderr)
		}
	}
}
