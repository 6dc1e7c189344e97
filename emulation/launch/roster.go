//go:build linux

package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"testbed/emulation/monitor"
	"testbed/internal/cpuwait"
)

// roster finds everything that runs in the node of this process: all processes
// with one of its namespaces, whatever started them and whatever their session.
type roster struct {
	own   map[string]string // the node's entries in /proc/PID/ns, by kind
	spare []int             // processes that are not the program's
}

// newRoster returns the roster of this process's node.
func newRoster() (*roster, error) {
	r := &roster{own: map[string]string{}, spare: []int{os.Getpid()}}
	for _, kind := range []string{"net", "uts", "ipc"} {
		ns, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			return nil, fmt.Errorf("looking for the processes of the node: %w", err)
		}
		r.own[kind] = ns
	}
	return r, nil
}

// members are the processes of the node that have not ended.
func (r *roster) members() (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil // a sandbox has /proc
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || slices.Contains(r.spare, pid) {
			continue
		}
		for kind, own := range r.own {
			// Processes that have ended and were not waited for have no namespaces any
			// more.
			if ns, err := os.Readlink(filepath.Join("/proc", e.Name(), "ns", kind)); err == nil && ns == own {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

// Limits on how long all processes of a node may take to end or to stop.
// Processes that wait for a device do neither.
const (
	rosterPatience = 5 * time.Second
	rosterRest     = time.Millisecond
)

// kill ends all processes of the node. It returns the number of processes that
// there were, and of those left, which wait for a device.
func (r *roster) kill() (ended, left int) {
	seen := map[int]bool{}
	left = r.until(func() (open []int) {
		open = r.members()
		for _, pid := range open {
			seen[pid] = true
			// A number is reused only after all others: it cannot be another process's
			// so soon.
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		return open
	})
	return len(seen) - left, left
}

// stop stops all processes of the node, including those started meanwhile. It
// returns the number of processes, and of those that still run.
func (r *roster) stop() (stopped, left int) {
	seen := map[int]bool{}
	left = r.until(func() (open []int) {
		for _, pid := range r.members() {
			seen[pid] = true
			if state(pid) != 'T' && state(pid) != 't' {
				open = append(open, pid)
				_ = unix.Kill(pid, unix.SIGSTOP)
			}
		}
		return open
	})
	return len(seen) - left, left
}

// resume is the end of stop.
func (r *roster) resume() {
	for _, pid := range r.members() {
		_ = unix.Kill(pid, unix.SIGCONT)
	}
}

// until calls try until it returns no process, and returns how many were left when
// patience was over.
func (r *roster) until(try func() []int) int {
	for deadline := time.Now().Add(rosterPatience); ; time.Sleep(rosterRest) {
		open := try()
		if len(open) == 0 || time.Now().After(deadline) {
			return len(open)
		}
	}
}

// state is the state of a process, from proc_pid_stat(5), 0 if it has ended.
func state(pid int) byte {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	if _, rest, found := strings.Cut(string(text), ") "); found && rest != "" {
		return rest[0]
	}
	return 0
}

// meter adds up the processor time of a node's processes.
type meter struct {
	last  map[int]time.Duration
	ended time.Duration // of processes that have ended
}

// read returns the processor time of these processes, and of all that were read
// before.
func (m *meter) read(pids []int) time.Duration {
	sum := time.Duration(0)
	now := make(map[int]time.Duration, len(pids))
	add := func(pid int) {
		if _, is := now[pid]; is {
			return
		}
		t, lives := monitor.ProcessorTime(pid)
		if before := m.last[pid]; !lives || t < before { // it has ended, or its number belongs to another process
			m.ended += before
		}
		if lives {
			now[pid] = t
			sum += t
		}
	}
	for _, pid := range pids {
		add(pid)
	}
	for pid := range m.last {
		add(pid)
	}
	m.last = now
	return m.ended + sum
}

// delays adds up how long the threads of a node have waited for a processor.
type delays struct {
	last  cpuwait.Times
	ended time.Duration // of threads that are no more
}

// add takes the times of all threads, and returns the sum with that of earlier threads
// that have ended.
func (d *delays) add(now cpuwait.Times) time.Duration {
	for tid, t := range d.last {
		if n, lives := now[tid]; !lives || n < t { // or another thread has its number
			d.ended += t
		}
	}
	d.last = now
	return d.ended + now.Sum()
}
