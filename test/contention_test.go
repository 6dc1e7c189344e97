//go:build linux

package test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"testbed/emulation/monitor"
	"testbed/internal/testenv"
	"testbed/record"
)

// keepBusy takes the processors with so many busy loops each, until the returned function is
// called.
func keepBusy(t *testing.T, each int) (end func()) {
	t.Helper()
	var all []*exec.Cmd
	for range each * runtime.NumCPU() {
		c := exec.Command("sh", "-c", "while :; do :; done")
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return func() {
		for _, c := range all {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
		all = nil
	}
}

// fidelityOf reads what was measured of a run.
func fidelityOf(t *testing.T, dir string) (f monitor.Record) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, record.FidelityFile))
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestMeasuredContentionIsNotSlowness: where compute is measured, other programs' busy loops
// make nobody slow without the verdict saying so, and dilation makes up for them.
func TestMeasuredContentionIsNotSlowness(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	_, err := os.Stat("/proc/self/schedstat")
	testenv.Need(t, err)
	const real = "real:\n  time_scale: 100\n  compute: measured\n  min_slack: 5ms\n  links: {default: {rate_up: 100mbit, rate_down: 100mbit, one_way_delay: 1ms}}\n"
	for name, file := range map[string]string{
		"a model":   learns(t, 4, 8, real),
		"a program": own(t, 4, 8, "computes 10", real),
	} {
		t.Run(name, func(t *testing.T) {
			steps := func(dir string) (took, waited float64) {
				for _, e := range readEvents(t, dir) {
					if e.Type == record.Step {
						took, waited = took+float64(e.Duration-e.Waited), waited+float64(e.Waited)
					}
				}
				return took, waited
			}
			testenv.Measure(t, func() func(testenv.Machine) error {
				defer keepBusy(t, 3)()
				sum, _ := once(t, file, "--policy", "straggler:k=1")
				computed, waited := steps(sum.Dir)
				f := fidelityOf(t, sum.Dir).Measured
				t.Logf("%s: steps computed for %.0f µs and waited for %.0f; %.0f %% of a round; sidelined %q, %d doubts", sum.Fidelity.Verdict, computed, waited, 100*f.ComputeWait, who(sum.Sidelined), len(f.Doubts))
				return func(testenv.Machine) error {
					if waited == 0 {
						return fmt.Errorf("of %.0f µs no step waited beside %d busy loops", computed, 3*runtime.NumCPU())
					}
					if sum.Fidelity.Verdict == "valid" {
						return fmt.Errorf("valid: %.0f %% of a round is waiting, sidelined %q", 100*f.ComputeWait, who(sum.Sidelined))
					}
					return nil
				}
			})
			testenv.Measure(t, func() func(testenv.Machine) error {
				defer keepBusy(t, 1)()
				sum, _ := once(t, file, "--policy", "baseline", "--dilation", "16")
				f := fidelityOf(t, sum.Dir).Measured
				t.Logf("dilated: %s %q, %.1f %% of a round", sum.Fidelity.Verdict, sum.Fidelity.Reasons, 100*f.ComputeWait)
				return func(testenv.Machine) error {
					if f.ComputeWait > 0.05 {
						return fmt.Errorf("dilated 16 times, waiting is still %.0f %% of a round", 100*f.ComputeWait)
					}
					return nil
				}
			})
		})
	}
}
