package sandbox

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWhoeverIsKilledForMemoryIsNamed(t *testing.T) {
	if got := oomKills("pgfault 12\noom_kill 3\nnuma_hit 4\n"); got != 3 {
		t.Errorf("%d kills, want 3", got)
	}
	if got := oomKills("pgfault 12\n"); got != 0 {
		t.Errorf("%d kills of a kernel that does not say", got)
	}
	killed := unix.WaitStatus(unix.SIGKILL)
	if s := newStatus(killed, true).String(); !strings.HasPrefix(s, "signal: killed: the kernel killed processes") {
		t.Error(s)
	}
	for _, s := range []Status{newStatus(killed, false), newStatus(unix.WaitStatus(unix.SIGTERM), true), newStatus(0, true)} {
		if strings.Contains(s.String(), "memory") {
			t.Error(s)
		}
	}
}

// TestLacking: without /run or /dev/null there are no sandboxes, and the error says how to
// make them.
func TestLacking(t *testing.T) {
	dir := t.TempDir()
	if err := lacking(dir, "/dev/null"); err != nil {
		t.Error(err)
	}
	for _, paths := range [][2]string{{dir + "/none", "/dev/null"}, {dir, dir + "/none"}, {dir, dir}} {
		err := lacking(paths[0], paths[1])
		if err == nil || err.Fix == "" || !strings.Contains(err.Error(), "mkdir") && !strings.Contains(err.Error(), "mknod") {
			t.Errorf("%q: %v", paths, err)
		}
	}
}
