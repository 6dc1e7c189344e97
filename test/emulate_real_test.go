//go:build linux

package test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"

	"testbed/estimate/emulated"
	"testbed/record"
)

// TestEmulateForReal: what the verb plays is the scenario that it leaves.
func TestEmulateForReal(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	r := testbed(t, "estimate", "--emulate", "--json", "--set", "numNodes=3", "--set", "bandwidthMbps=2000", "--out", filepath.Join(t.TempDir(), "small"))
	var got emulated.Result
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || r.code != 0 && r.code != exitInvalid {
		t.Fatalf("exit code %d, %v\n%s\n%s", r.code, err, r.stdout, r.stderr)
	}
	simulated := slices.IndexFunc(got.Predictions, func(p emulated.Prediction) bool { return p.By == emulated.Simulated })
	if got.World != record.Real || got.Round.N != emulated.Rounds-1 || simulated < 0 || got.Predictions[simulated].RoundRatio <= 0 {
		t.Errorf("%s", r.stdout)
	}
}
