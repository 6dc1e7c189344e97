//go:build linux

package cpuwait

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"testbed/internal/testenv"
)

// TestOfAProcessAndItsChildren: two busy loops on one processor wait for each other,
// whoever has started them.
func TestOfAProcessAndItsChildren(t *testing.T) {
	_, err := os.Stat("/proc/self/schedstat")
	testenv.Need(t, err)
	_, err = exec.LookPath("taskset")
	testenv.Need(t, err)
	c := exec.Command("taskset", "-c", firstProcessor(t), "sh", "-c", "(while :; do :; done) & while :; do :; done")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		for tid := range Of(nil, []int{c.Process.Pid}) {
			if p, err := os.FindProcess(tid); err == nil {
				_ = p.Kill()
			}
		}
		_ = c.Wait()
	}()
	var before Times
	for began := time.Now(); len(before) < 2; before = Of(nil, []int{c.Process.Pid}) {
		if time.Since(began) > time.Minute {
			t.Fatalf("the child of a process was not found: %v", before)
		}
	}
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		after := Of([]int{os.Getpid()}, []int{c.Process.Pid})
		if most := after.Since(before); most > 0 && after.Sum() > most {
			return
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("two loops on one processor never waited: %v, then %v", before, after)
		}
	}
}

func TestSince(t *testing.T) {
	before := Times{1: 10, 2: 100, 3: 7}
	for name, test := range map[string]struct {
		now  Times
		want time.Duration
	}{
		"one waited":                      {Times{1: 15, 2: 100}, 5},
		"the longest":                     {Times{1: 15, 2: 130}, 30},
		"a new thread":                    {Times{1: 10, 4: 20}, 20},
		"a new thread of an old number":   {Times{3: 6}, 6},
		"nobody did, or nothing is known": {Times{}, 0},
	} {
		if got := test.now.Since(before); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// firstProcessor is one that this process may use.
func firstProcessor(t *testing.T) string {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	for cpu := 0; ; cpu++ {
		if set.IsSet(cpu) {
			return strconv.Itoa(cpu)
		}
	}
}
