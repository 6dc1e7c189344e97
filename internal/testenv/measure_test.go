//go:build linux

package testenv

import (
	"errors"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// outcome takes what Measure says to a test.
type outcome struct {
	testing.TB
	failed bool
}

func (*outcome) Helper()                 {}
func (*outcome) Logf(string, ...any)     {}
func (o *outcome) Errorf(string, ...any) { o.failed = true }
func (o *outcome) Failed() bool          { return o.failed }

func TestMeasure(t *testing.T) {
	quiet, stolen, held := Machine{Taken: 0.01, Late: time.Millisecond}, Machine{Taken: 0.3}, Machine{Late: 20 * time.Millisecond}
	for _, c := range []struct {
		name     string
		machines [3]Machine // during each measurement
		right    int        // the first that is right; 0: none
		excuse   bool       // what others took explains a wrong one
		failed   bool
		measured int
	}{
		{"right", [3]Machine{stolen}, 1, false, false, 1},
		{"right at the third attempt", [3]Machine{quiet, stolen, held}, 3, false, false, 3},
		{"wrong on a quiet machine", [3]Machine{quiet, quiet, quiet}, 0, true, true, 3},
		{"wrong when it is quiet at last", [3]Machine{stolen, held, quiet}, 0, true, true, 3},
		{"never quiet, explained", [3]Machine{stolen, stolen, held}, 0, true, false, 3},
		{"never quiet, not explained", [3]Machine{stolen, held, stolen}, 0, false, true, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			var o outcome
			measured := 0
			watch := func() func() Machine {
				return func() Machine { return c.machines[measured-1] }
			}
			repeat(&o, watch, func() func(Machine) error {
				measured++
				return func(m Machine) error {
					if measured == c.right || c.excuse && m != (Machine{}) {
						return nil
					}
					return errors.New("wrong")
				}
			})
			if o.failed != c.failed || measured != c.measured {
				t.Errorf("failed %v after %d measurements, want %v after %d", o.failed, measured, c.failed, c.measured)
			}
		})
	}
}

// TestAccountsOfTime: what this process does is found in the account of the
// machine, and in its own, so that it is not what others take.
func TestAccountsOfTime(t *testing.T) {
	const work = 500 * time.Millisecond
	busy, all := processorTime()
	for own := ownTime(); ownTime()-own < work; {
	}
	nowBusy, nowAll := processorTime()
	// The kernel looks who is busy every few milliseconds.
	if b, a := nowBusy-busy, nowAll-all; b < work/2 || b > a {
		t.Errorf("%v of processor time show as %v of %v", work, b, a)
	}
}

func TestWatch(t *testing.T) {
	stop := watch()
	time.Sleep(50 * time.Millisecond)
	if m := stop(); m.Late <= 0 || m.Taken < 0 || m.Taken > 1 {
		t.Error(m)
	}
}

// TestOwnTimeOfDescendants: what a program of a program does is the test's own, while
// it lives and when it has been killed.
func TestOwnTimeOfDescendants(t *testing.T) {
	const work = 200 * time.Millisecond
	own := ownTime()
	cmd := exec.Command("sh", "-c", "sh -c 'while :; do :; done' & wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ownTime()-own < work; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Error("a minute's work does not show")
			break
		}
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
}
