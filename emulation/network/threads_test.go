package network

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"testbed/internal/testenv"
)

// TestSlowMonitor: with a single thread for Go code one other thread than the
// first gets slack, and with more none.
func TestSlowMonitor(t *testing.T) {
	slack := func(id int) string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", id))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	id, err := monitorThread()
	if err != nil {
		t.Fatal(err)
	}
	before := slack(id)
	if os.Getuid() != 0 {
		testenv.Need(t, errors.New("only root may change a thread's slack, as a sandbox's nodes may (CAP_SYS_NICE)"))
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	if err := slowMonitor(); err != nil || slack(id) != before {
		t.Errorf("with two: slack %s, was %s, %v", slack(id), before, err)
	}
	runtime.GOMAXPROCS(1)
	defer os.WriteFile(fmt.Sprintf("/proc/%d/timerslack_ns", id), []byte(before), 0)
	if err := slowMonitor(); err != nil || slack(id) != fmt.Sprint(monitorSlack) {
		t.Errorf("with one: slack %s, want %d, %v", slack(id), monitorSlack, err)
	}
	if got := slack(os.Getpid()); got == fmt.Sprint(monitorSlack) {
		t.Error("the first thread's timers are late, too")
	}
}
