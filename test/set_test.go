//go:build linux

package test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"testbed/record"
	"testbed/scenarios"
)

// TestRunSet: run takes --set, and its record has the scenario that was played.
func TestRunSet(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	file := scenario(t, 3, "100mbit", "  min_slack: 20s\n  parameters: 1000\n")
	dir := filepath.Join(t.TempDir(), "run")
	r := testbed(t, "run", file, "--policy", "baseline", "--out", dir, "--json", "--set", "target_outer_steps=2", "--set", "real.parameters=2000")
	var sum record.Summary
	if err := json.Unmarshal([]byte(r.stdout), &sum); err != nil || r.code != 0 && r.code != exitInvalid { // on a disturbed machine
		t.Fatalf("exit code %d, %v\n%s\n%s", r.code, err, r.stdout, r.stderr)
	}
	s, err := scenarios.Load(filepath.Join(dir, "scenario.json"))
	if err != nil || sum.OuterSteps != 2 || s.TargetOuterSteps != 2 || s.Real.Parameters != 2000 {
		t.Errorf("%d outer steps, and the record's scenario: %v", sum.OuterSteps, err)
	}
	for _, args := range [][]string{{"--set", "target_outer_stps=2"}, {"--set", "real.parameters=2000000000"}} {
		out := filepath.Join(t.TempDir(), "none")
		r := testbed(t, append([]string{"run", file, "--policy", "baseline", "--out", out}, args...)...)
		if r.code != exitUsage {
			t.Errorf("%v: exit code %d, %s", args, r.code, r.stderr)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%v left %s", args, out)
		}
	}
}
