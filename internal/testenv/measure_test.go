//go:build linux

package testenv

import (
	"errors"
	"os/exec"
	"syscall"
	"testing"
	"testing/synctest"
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
		takes    time.Duration // each measurement
		machines []Machine     // during each, the last for ever
		right    int           // the first that is right; 0: none
		excuse   bool          // what others took explains a wrong one
		beside   bool          // nothing of it explains anything
		failed   bool
		measured int
	}{
		{"right", time.Second, []Machine{stolen}, 1, false, false, false, 1},
		{"wrong on a quiet machine", time.Second, []Machine{quiet}, 2, true, false, true, 1},
		{"right at the third attempt", time.Second, []Machine{stolen, held}, 3, false, false, false, 3},
		{"wrong when it is quiet at last", time.Second, []Machine{stolen, held, quiet}, 0, true, false, true, 3},
		{"never quiet, explained", time.Second, []Machine{stolen}, 0, true, false, false, 30},
		{"never quiet, not explained", time.Second, []Machine{stolen}, 0, false, false, true, 30},
		{"beside others, right at the third attempt", time.Second, []Machine{held}, 3, true, true, false, 3},
		{"beside others, who explain nothing", time.Second, []Machine{held}, 0, true, true, true, 30},
		{"long, never quiet", time.Minute, []Machine{held}, 0, true, false, false, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var o outcome
				measured := 0
				watch := func() func() (was, explains Machine) {
					return func() (was, explains Machine) {
						was = c.machines[min(measured, len(c.machines))-1]
						if !c.beside {
							explains = was
						}
						return was, explains
					}
				}
				repeat(&o, watch, func() func(Machine) error {
					measured++
					time.Sleep(c.takes)
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

// TestWatch: both kinds say as much of the machine, if not that as much explains.
func TestWatch(t *testing.T) {
	stop, stopBeside := watch(), watchBeside()
	time.Sleep(50 * time.Millisecond)
	was, explains := stop()
	if was != explains || was.Late <= 0 || was.Taken < 0 || was.Taken > 1 {
		t.Errorf("%v, of which %v explains", was, explains)
	}
	if was, explains := stopBeside(); explains.Late != 0 || was.Late <= 0 || explains.Taken != 0 && explains.Taken != was.Taken {
		t.Errorf("beside others %v, of which %v explains", was, explains)
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
