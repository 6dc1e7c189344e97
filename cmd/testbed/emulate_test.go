package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"testbed/estimate/emulated"
	"testbed/record"
)

func TestEmulateInTheSimulator(t *testing.T) {
	file, dir := written(t, "calibration.json", calibration), filepath.Join(t.TempDir(), "small")
	out, err := estimated("../../docs/emulated/six.yaml", "--emulate", "--world", "sim", "--calibration", file, "--out", dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"6 nodes at 50 Mbit/s, 60 ms of round trip", "nothing was run on the emulated network", "Test of the assumptions", "The run itself, 6 nodes", "scenario and records: " + dir} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	out, err = estimated("--emulate", "--world", "sim", "--set", "nodeSpread=0.2", "--seed", "9", "--repeat", "2", "--json", "--out", filepath.Join(t.TempDir(), "default"))
	var got emulated.Result
	if err != nil || json.Unmarshal([]byte(out), &got) != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got.World != record.Sim || got.Round.N != 2*(emulated.Rounds-1) || got.Of.NodeSpread != 0.2 || len(got.Predictions) != 2 || got.Measurements != nil {
		t.Errorf("%s", out)
	}
}

func TestEmulateSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
	}{
		{"--seed applies only with --emulate; add --emulate", []string{"--seed", "3"}},
		{"--emulate needs one run, and shows all variants", []string{"--emulate", "--variant", "page"}},
		{"--emulate needs one run", []string{"--emulate", "--sweep", "mfu=0.3"}},
		{"--repeat 0 must be at least 1", []string{"--emulate", "--repeat", "0"}},
		{"--world real: choose sim or both", []string{"--emulate", "--world", "real"}},
		{"--links applies to real runs only", []string{"--emulate", "--world", "sim", "--links", "user"}},
		{"--emulate: numNodes is 1: one node has no peer to sync with", []string{"--emulate", "--world", "sim", "--set", "numNodes=1"}},
	} {
		_, err := estimated(c.args...)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || exitCode(err) != exitUsage {
			t.Errorf("%q: error %v (exit code %d), want %s", c.args, err, exitCode(err), c.want)
		}
	}
}
