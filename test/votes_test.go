//go:build linux

package test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"testbed/internal/testenv"
	"testbed/internal/testscenario"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
)

// voters writes a scenario for torchft.
func voters(t *testing.T, more string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "voters.yaml")
	text := `
seed: 1
inner_steps: 2
target_outer_steps: 5
horizon: 200000
heartbeat_period: 1000
heartbeat_miss_threshold: 5
base_latency: 100
bandwidth_bpus: 10
state_bytes: 1000
real: {time_scale: 100, parameters: 1500}
` + more
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestMeasuredSplitVote: a reduction fails at one worker alone. The others take the step,
// and it heals.
func TestMeasuredSplitVote(t *testing.T) {
	testenv.MeasuredParallel(t)
	needSandbox(t)
	play(t, func(sum record.Summary) error {
		without := slices.IndexFunc(sum.Rounds, func(r record.Round) bool { return slices.Equal(r.Participants, []policy.ID{0, 2}) })
		if last := sum.Rounds[len(sum.Rounds)-1]; without < 0 || len(last.Participants) != 3 || len(sum.Evicted)+len(sum.Diverged) > 0 {
			return fmt.Errorf("rounds %+v, evicted %v, diverged %v; want one without w1, and all in the last", sum.Rounds, sum.Evicted, sum.Diverged)
		}
		return nil
	}, voters(t, `workers: [{id: 0, inner_step_mean: 1000}, {id: 1, inner_step_mean: 1000}, {id: 2, inner_step_mean: 1000}]
injects: [{op: FailReduce, id: 1, at: 3000, alone: true}]
`), "--policy", "torchft:min_replicas=2")
}

// TestSplitBrain: two lighthouses, each with two workers, have outer steps taken
// twice. The command says so.
func TestSplitBrain(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	file := voters(t, `workers: [{id: 0, inner_step_mean: 1000}, {id: 1, inner_step_mean: 1000}, {id: 2, inner_step_mean: 1000, lighthouse: 1}, {id: 3, inner_step_mean: 1000, lighthouse: 1}]
injects: []
`)
	amend(t, file, "heartbeat_miss_threshold: 5", "heartbeat_miss_threshold: 50") // nobody is to be lost
	r := testbed(t, "run", "--json", "--out", filepath.Join(t.TempDir(), "run"), file, "--policy", "torchft:min_replicas=2")
	var sum record.Summary
	if err := json.Unmarshal([]byte(r.stdout), &sum); err != nil {
		t.Fatal(err, r.stderr)
	}
	if r.code != exitInvalid || len(sum.Diverged) != 1 || sum.BitIdentical == nil || !*sum.BitIdentical || !strings.Contains(r.stderr, "was taken twice (split brain)") {
		t.Errorf("exit code %d, diverged %+v, bit-identical %v\n%s", r.code, sum.Diverged, sum.BitIdentical, r.stderr)
	}
	if r := testbed(t, "simulate", file, "--policy", "baseline"); r.code != exitUsage || !strings.Contains(r.stderr, "workers[2].lighthouse is 1, but there are no lighthouses under baseline: remove it, or choose torchft") {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
}

// TestSync: in torchft's sync mode whoever heals counts as its donor does: all at step
// 0, then a worker whose reduction has failed, and one that has died. All have the same
// bytes, and the training computed from the record leads to the same hashes.
func TestSync(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	file := voters(t, `workers: [{id: 0, inner_step_mean: 1000}, {id: 1, inner_step_mean: 1000}, {id: 2, inner_step_mean: 1000}, {id: 3, inner_step_mean: 1000}]
injects: [{op: FailReduce, id: 1, at: 3000, alone: true}, {op: Restart, id: 3, at: 9000, after: 1000}]
`)
	amend(t, file, "heartbeat_miss_threshold: 5", "heartbeat_miss_threshold: 50") // nobody is silent for so long
	amend(t, file, "horizon: 200000", "horizon: 2000000")
	amend(t, file, "target_outer_steps: 5", "target_outer_steps: 10")
	amend(t, file, "parameters: 1500", "parameters: 1500, all_reduce: {bits: 8, error_feedback: true}")
	sum := complete(t, file, "--policy", "torchft:sync=true:init_sync=true:join_timeout=500000:quorum_timeout=1000000:timeout=1000000")
	s, err := scenarios.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	events := readEvents(t, sum.Dir)
	if err := testscenario.CheckTraining(testscenario.Resolve(t, s, ""), events); err != nil {
		t.Error(err)
	}
	first, healed := 0, map[policy.ID]int{}
	for _, e := range events {
		if e.Type != record.ReduceStart {
			continue
		}
		for _, r := range e.Repeated {
			if e.Round == 1 {
				first++
			} else {
				healed[r.ID]++
			}
		}
	}
	t.Logf("in round 1 %d count as the first, later %v as their donors", first, healed)
	if first != 3 || healed[1] == 0 {
		t.Errorf("in round 1 %d count as the first, later %v as their donors; want 3, and w1 once more", first, healed)
	}
}
