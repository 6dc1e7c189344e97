//go:build linux

package monitor

import (
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"testbed/internal/testenv"
)

func TestParseStat(t *testing.T) {
	total, steal, softirq := parseStat(strings.NewReader("cpu  100 20 30 400 5 0 7 11 99 99\ncpu0 1 2 3\n"))
	if total != 573 || steal != 11 || softirq != 7 {
		t.Errorf("total %d, steal %d, softirq %d; want 573, 11, 7 (guest time is in user time)", total, steal, softirq)
	}
	if total, _, _ := parseStat(strings.NewReader("")); total != 0 {
		t.Errorf("nothing sums up to %d", total)
	}
}

func TestRunnableWaitOfThisProcess(t *testing.T) {
	_, err := os.Stat("/proc/self/schedstat") // how long processes wait for a processor
	testenv.Need(t, err)
	// More threads than processors: one has to wait.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + 2))
	var waited atomic.Bool
	for range runtime.NumCPU() + 1 {
		go func() {
			for !waited.Load() {
			}
		}()
	}
	defer waited.Store(true)
	for begin := time.Now(); RunnableWait(os.Getpid()) <= 0; {
		if time.Since(begin) > time.Minute {
			t.Fatal("no thread of this test ever waited for a processor")
		}
	}
	if d := RunnableWait(-1); d != 0 {
		t.Errorf("a process that does not exist waited %v", d)
	}
}

// TestMeter: the time of a node's processes is that of all of them, one after the other.
func TestMeter(t *testing.T) {
	m := Meter{}
	first := m.Read("w0", os.Getpid())
	if first <= 0 || m.Read("w1", 0) != 0 {
		t.Fatalf("this process has computed for %v, no process for %v", first, m.Read("w1", 0))
	}
	for d := first; d <= first; d = m.Read("w0", os.Getpid()) { // ends, because it computes
	}
	dead := m.Read("w0", 0)
	if dead <= first || m.Read("w0", 0) != dead {
		t.Errorf("a process that has ended: %v, then %v; while it ran: %v", dead, m.Read("w0", 0), first)
	}
	if next := m.Read("w0", os.Getpid()); next < 2*dead {
		t.Errorf("after another process %v, want at least twice %v", next, dead)
	}
}
