//go:build linux

package test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"testbed/experiment"
	"testbed/experiment/calibrate"
	"testbed/internal/testenv"
	"testbed/record"
	"testbed/scenarios"
)

// TestMeasuredCalibrate runs two of the experiments, and has the simulator use what they
// tell.
func TestMeasuredCalibrate(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	var dir string
	testenv.Measure(t, func() func(testenv.Machine) error {
		dir = filepath.Join(t.TempDir(), "calibration")
		c, err := calibrated(t, dir)
		return func(m testenv.Machine) error {
			if err != nil {
				return err // no round may have been left alone
			}
			for _, run := range c.Runs {
				// A machine that stalls makes a run longer than anything explains.
				if e := run.Fitted/run.Measured - 1; e > 0.5 || e < -0.5-m.Taken/2 {
					return fmt.Errorf("%s: fitted %.2f s, measured %.2f s", run.Name, run.Fitted, run.Measured)
				}
			}
			return nil
		}
	})
	if t.Failed() {
		return
	}
	// The same runs give the same calibration again.
	again := testbed(t, "calibrate", "--refit", dir)
	if again.code != 0 || !strings.Contains(again.stdout, "error on held-out runs: ") {
		t.Errorf("exit code %d:\n%s%s", again.code, again.stdout, again.stderr)
	}
	if _, err := scenarios.Load(filepath.Join(dir, "homogeneous.yaml")); err != nil {
		t.Errorf("the calibrated scenario: %v", err)
	}
	wall := func(args ...string) int64 {
		t.Helper()
		var sum record.Summary
		r := testbed(t, append([]string{"simulate", "homogeneous", "--policy", "baseline", "--json"}, args...)...)
		if err := json.Unmarshal([]byte(r.stdout), &sum); err != nil {
			t.Fatalf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
		}
		return int64(sum.WallClock)
	}
	file := filepath.Join(dir, experiment.CalibrationFile)
	plain, fitted := wall("--network", "links"), wall("--network", "links", "--calibration", file)
	if fitted <= plain {
		t.Errorf("with what the machine adds the run takes %d µs, without %d", fitted, plain)
	}
	if churn := wall(); churn != 11_050 || wall("--calibration", file) == churn {
		t.Errorf("churn's network takes %d µs, calibrated the same", churn)
	}
}

// calibrated runs two of the experiments.
func calibrated(t *testing.T, dir string) (c calibrate.Calibration, err error) {
	t.Helper()
	r := testbed(t, "calibrate", "homogeneous", "--only", "payload-20000,workers-2", "--retries", "0", "--out", dir, "--json")
	if r.code != 0 {
		return c, fmt.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	if err := json.Unmarshal([]byte(r.stdout), &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Runs) != 2 || c.Costs.Step.Observations == 0 || c.Costs.Fetch.Observations != 0 || c.Links == "" || len(c.Versions) == 0 {
		t.Errorf("calibration %+v", c)
	}
	return c, nil
}

func TestCalibrateUsage(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "c.json")
	if err := os.WriteFile(empty, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"calibrate --only nothing", 2, "choose from middle"},
		{"calibrate --repeat 0", 2, "--repeat"},
		{"calibrate no_such_scenario", 2, "no_such_scenario"},
		{"calibrate prime_defaults", 2, "share links with uploads (real.upload)"},
		{"calibrate charlm_regions", 2, "belong to regions (train.regions)"},
		{"calibrate --refit " + t.TempDir(), 1, "has no run that ended"},
		{"calibrate homogeneous --policy no_such_policy", 2, "is not a policy; choose one of"},
		{"calibrate --refit " + t.TempDir() + " no_such_scenario", 2, "no_such_scenario"},
		{"simulate homogeneous --policy baseline --network tcp", 2, "choose churn or links"},
		{"simulate homogeneous --policy baseline --calibration " + empty, 2, "schema 0"},
		{"simulate homogeneous --policy baseline --calibration auto", 2, "add --network links"},
	} {
		r := testbed(t, strings.Fields(c.args)...)
		if r.code != c.code || !strings.Contains(r.stderr, c.want) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, %s, want %d and %q", c.args, r.code, r.stderr, c.code, c.want)
		}
	}
}

// TestForeignCalibration warns, and is used; one that does not say where it was
// made is used without a word.
func TestForeignCalibration(t *testing.T) {
	t.Parallel()
	for machine, want := range map[string]string{
		`{"processor": "none like it", "cores": 2000, "kernel": "0.01", "go": "go1"}`: "the calibration was made with another processor (none like it, not ",
		`{}`: "",
	} {
		file := filepath.Join(t.TempDir(), "c.json")
		text := `{"schema": 1, "machine": ` + machine + `, "links": "user", "costs": {"efficiency": {"value": 1}}}`
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		r := testbed(t, "simulate", "homogeneous", "--policy", "baseline", "--network", "links", "--calibration", file)
		if lines := strings.Count(r.stderr, "\n"); r.code != 0 || !strings.Contains(r.stderr, want) || want == "" && lines > 0 || want != "" && lines != 3 {
			t.Errorf("%s: exit code %d, %s", machine, r.code, r.stderr)
		}
	}
}
