//go:build linux

package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// halt makes a process stand still until resume is called.
type halt func(pid int) (resume func(), err error)

// bySignal is SIGSTOP, which the process's parent may notice.
func bySignal(pid int) (resume func(), err error) {
	return func() { _ = syscall.Kill(pid, syscall.SIGCONT) }, syscall.Kill(pid, syscall.SIGSTOP)
}

// halts are all ways to make a process stand still that this machine has: a signal, and the
// freezers of control groups of both versions, which nobody notices (cgroups(7)).
func halts(t *testing.T) map[string]halt {
	t.Helper()
	all := map[string]halt{"signal": bySignal}
	for version, mount := range freezers() {
		group, err := os.MkdirTemp(mount, "testbed-test-")
		if err != nil {
			t.Logf("the freezer of %s is not tried: %v", version, err)
			continue
		}
		t.Cleanup(func() {
			for range 100 { // until what was frozen has ended
				if os.Remove(group) == nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
			t.Errorf("the control group %s stays", group)
		})
		all[version] = (&freezer{group: group}).halt
	}
	return all
}

// freezers are the folders in which control groups with a freezer can be made, by version.
func freezers() map[string]string {
	all := map[string]string{}
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		switch {
		case len(f) < 4:
		case f[2] == "cgroup2":
			all["cgroup version 2"] = f[1]
		case f[2] == "cgroup" && strings.Contains(","+f[3]+",", ",freezer,"):
			all["cgroup version 1"] = f[1]
		}
	}
	return all
}

// freezer makes a control group for each process that it freezes, below its own.
type freezer struct {
	group string
	made  atomic.Int64
}

func (z *freezer) halt(pid int) (thaw func(), err error) {
	group := filepath.Join(z.group, strconv.FormatInt(z.made.Add(1), 10))
	if err := os.Mkdir(group, 0o755); err != nil {
		return nil, err
	}
	write := func(file, text string) error {
		return os.WriteFile(filepath.Join(group, file), []byte(text), 0)
	}
	state, stop, start, shown, frozen := "freezer.state", "FROZEN", "THAWED", "freezer.state", "FROZEN"
	if _, err := os.Stat(filepath.Join(group, "cgroup.freeze")); err == nil {
		state, stop, start, shown, frozen = "cgroup.freeze", "1", "0", "cgroup.events", "frozen 1"
	}
	thaw = func() {
		_ = write(state, start)
		go func() {
			for range 600 { // until the process has ended
				if os.Remove(group) == nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		}()
	}
	if err := write("cgroup.procs", strconv.Itoa(pid)); err != nil {
		_ = os.Remove(group)
		return nil, err
	}
	if err := write(state, stop); err != nil {
		return thaw, err
	}
	for range 100 {
		if text, err := os.ReadFile(filepath.Join(group, shown)); err == nil && strings.Contains(string(text), frozen) {
			return thaw, nil
		}
		time.Sleep(time.Millisecond)
	}
	return thaw, fmt.Errorf("process %d is not frozen", pid)
}
