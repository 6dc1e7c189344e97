//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"testbed/runlog"
)

func readEvents(t *testing.T, dir string) []runlog.Event {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, runlog.EventsFile))
	if err != nil {
		t.Fatal(err)
	}
	events, err := runlog.Read(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// TestCoordinatorDiesDuringAReduction, which ends without it, and stays away
// for longer than a silent worker is borne with.
func TestCoordinatorDiesDuringAReduction(t *testing.T) {
	needSandbox(t)
	// The first reduction lasts from about 2,100 to more than 5,000 µs.
	file := scenario(t, 4, "15mbit", "injects:\n  - {op: CoordinatorCrash, at: 3000, down: 6000}\n")
	for _, policy := range []string{"baseline", "straggler"} {
		sum := runScenario(t, file, "--policy", policy)
		if len(sum.Evicted)+len(sum.Sidelined) > 0 {
			t.Errorf("%s: sidelined %q, evicted %q", policy, who(sum.Sidelined), who(sum.Evicted))
		}
		if len(sum.Outages) != 1 || sum.Outages[0].Length == nil || *sum.Outages[0].Length < 6000 {
			t.Errorf("%s: outages %+v, want one of 6,000 µs", policy, sum.Outages)
		}
		var crash, back, reduced, aborted int
		for i, e := range readEvents(t, sum.Dir) {
			switch {
			case e.Type == runlog.CoordinatorCrash:
				crash = i
			case e.Type == runlog.CoordinatorBack:
				back = i
			case e.Type == runlog.Reduced && e.Round == 1 && crash > 0 && back == 0:
				reduced++
			case e.Type == runlog.ReduceAbort:
				aborted++
			}
		}
		if reduced != 4 || aborted > 0 {
			t.Errorf("%s: %d of 4 workers ended the reduction without the coordinator, %d aborts", policy, reduced, aborted)
		}
		if _, err := os.Stat(filepath.Join(sum.Dir, "resume")); err == nil {
			t.Errorf("%s: what a killed run needs is left behind", policy)
		}
	}
}

// TestKilledRunIsResumed kills a whole run twice. The second time, the last
// checkpoint is damaged as well.
func TestKilledRunIsResumed(t *testing.T) {
	needSandbox(t)
	before := look(t)
	file := scenario(t, 3, "100mbit", "  checkpoint_every: 1\n  parameters: 100000\n")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.Replace(text, []byte("target_outer_steps: 3"), []byte("target_outer_steps: 8"), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "run")
	args := []string{"run", file, "--policy", "straggler", "--out", dir}
	for life := range 2 {
		id := fmt.Sprintf("%s-%d", t.Name(), life)
		cmd := command(t, t.Context(), id, args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool {
			_, err := os.Stat(filepath.Join(dir, "resume", fmt.Sprintf("outer-%d.checkpoint", 2+2*life)))
			return err == nil
		})
		if life == 0 {
			if r := testbed(t, "run", "--resume", dir); r.code != exitError || !strings.Contains(r.stderr, "still going on") {
				t.Errorf("resumed a living run: exit code %d, %s", r.code, r.stderr)
			}
		}
		time.Sleep(50 * time.Millisecond)
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
	var sum runlog.Summary
	if err := json.Unmarshal([]byte(r.stdout), &sum); err != nil || r.code != 0 {
		t.Fatalf("exit code %d, %v\n%s\n%s", r.code, err, r.stdout, r.stderr)
	}
	if !strings.Contains(r.stderr, "not usable") {
		t.Errorf("nothing was said of the damaged checkpoint:\n%s", r.stderr)
	}
	if !sum.Complete || len(sum.Rounds) != 8 || len(sum.ResumedFrom) != 2 || sum.ResumedFrom[1] != last-1 || !*sum.BitIdentical {
		t.Errorf("complete %v, %d rounds, resumed from %v, want from %d", sum.Complete, len(sum.Rounds), sum.ResumedFrom, last-1)
	}
	// One lineage: whatever a run goes on from has been compared before.
	hashes := map[int]string{}
	for i, e := range readEvents(t, dir) {
		switch {
		case e.Type == runlog.State && len(e.Participants) == 3:
			hashes[e.Round] = e.Hash
		case e.Type == runlog.RunResume && (hashes[e.Round] != e.Hash || len(e.IDs) != 3):
			t.Errorf("event %d: went on with %v from %s; outer step %d had led to %s", i, e.IDs, e.Hash, e.Round, hashes[e.Round])
		}
	}
	if r := testbed(t, args...); r.code != exitError || !strings.Contains(r.stderr, "nothing to resume") {
		t.Errorf("resumed a run that is over: exit code %d, %s", r.code, r.stderr)
	}
	if r := testbed(t, "run", "--resume", dir, "--policy", "baseline"); r.code != exitUsage {
		t.Errorf("resumed under another policy: exit code %d, %s", r.code, r.stderr)
	}
}

// lastOf is the outer step of the last checkpoint.
func lastOf(t *testing.T, dir string) (last int) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "resume", "outer-*.checkpoint"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no checkpoint: %v", err)
	}
	for _, name := range names {
		var n int
		if _, err := fmt.Sscanf(filepath.Base(name), "outer-%d.checkpoint", &n); err != nil {
			t.Fatal(err)
		}
		last = max(last, n)
	}
	return last
}
