package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// raised are the limits that allow a process of an ordinary user to have
// priority, with the values that the router of user links needs: real-time
// priority 1 or, on one processor, a nice value of -20 (getrlimit(2) counts
// from 20 downwards).
var raised = map[int]uint64{unix.RLIMIT_RTPRIO: 1, unix.RLIMIT_NICE: 40}

// raiseLimits raises the limits of this process, and so of the sandbox that it
// starts, as far as it may: up to the hard limit, and above it with
// CAP_SYS_RESOURCE, which the program's file or its parent process can give
// (capabilities(7)). In the sandbox's user namespace capabilities do not count
// for that, but limits do.
func raiseLimits() {
	for limit, needed := range raised {
		var has unix.Rlimit
		if unix.Getrlimit(limit, &has) != nil || has.Cur >= needed {
			continue
		}
		if unix.Setrlimit(limit, &unix.Rlimit{Cur: needed, Max: max(has.Max, needed)}) != nil && has.Max > has.Cur {
			_ = unix.Setrlimit(limit, &unix.Rlimit{Cur: has.Max, Max: has.Max}) // better than nothing
		}
	}
	// A program whose file has capabilities may not be inspected through /proc,
	// where the user namespace's IDs are written.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
}

// Raise gives a thread of the sandbox real-time priority 1, if this process may
// do so: its file, or its parent process, gave it CAP_SYS_NICE. The thread
// belongs to init or a child of init; thread is its number in the sandbox. In
// the sandbox, which has another user namespace, the capability does not count.
func (s *Sandbox) Raise(thread int) {
	if runtime.NumCPU() < 2 {
		return // it would do harm there: see userlink.raisePriority
	}
	rr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}
	if tid := threadOf(s.process.Pid, thread); tid > 0 && unix.SchedSetAttr(tid, &rr, 0) == nil { // otherwise it works without, and reports that itself
		// The other threads of its session (sched(7), the autogroup feature).
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", tid), []byte("-20"), 0)
	}
}

// threadOf returns the number here of a thread of init or one of its children,
// given its number in their own PID namespace; 0: there is none.
func threadOf(init, thread int) int {
	processes := []string{strconv.Itoa(init)}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*", init)) // the pattern is right
	for _, task := range tasks {
		children, _ := os.ReadFile(filepath.Join(task, "children"))
		processes = append(processes, strings.Fields(string(children))...)
	}
	for _, pid := range processes {
		tasks, _ := filepath.Glob("/proc/" + pid + "/task/[0-9]*")
		for _, task := range tasks {
			status, _ := os.ReadFile(filepath.Join(task, "status"))
			_, rest, _ := strings.Cut(string(status), "\nNSpid:")
			line, _, _ := strings.Cut(rest, "\n")
			numbers := strings.Fields(line) // the last one is the innermost namespace's
			if len(numbers) > 1 && numbers[len(numbers)-1] == strconv.Itoa(thread) {
				tid, _ := strconv.Atoi(filepath.Base(task))
				return tid
			}
		}
	}
	return 0
}
