// Package cpuwait reads how long threads have waited for a busy processor.
package cpuwait

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Times are how long each thread has waited so far, by the thread's number.
// Threads that the kernel does not report are absent.
type Times map[int]time.Duration

// Of returns the times of some threads and of all threads of some processes and of their
// children (Documentation/scheduler/sched-stats.rst). Children that have left their parent
// are not found.
func Of(threads, processes []int) Times {
	t := Times{}
	for _, tid := range threads {
		t.read(tid, fmt.Sprintf("/proc/%d", tid))
	}
	for _, pid := range processes {
		t.process(pid)
	}
	return t
}

// process reads all threads of a process, and then its children.
func (t Times) process(pid int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*", pid)) // the pattern is right
	for _, task := range tasks {
		tid, err := strconv.Atoi(filepath.Base(task))
		if _, seen := t[tid]; err != nil || seen {
			continue
		}
		t.read(tid, task)
		children, _ := os.ReadFile(filepath.Join(task, "children")) // absent in some kernels
		for _, child := range strings.Fields(string(children)) {
			if pid, err := strconv.Atoi(child); err == nil {
				t.process(pid)
			}
		}
	}
}

func (t Times) read(tid int, dir string) {
	data, err := os.ReadFile(filepath.Join(dir, "schedstat"))
	if err != nil {
		return // the thread has ended, or the kernel does not count
	}
	if fields := strings.Fields(string(data)); len(fields) > 1 {
		if ns, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
			t[tid] = time.Duration(ns)
		}
	}
}

// Sum is the total wait of all threads.
func (t Times) Sum() (sum time.Duration) {
	for _, d := range t {
		sum += d
	}
	return sum
}

// Since is the longest wait of a single thread since an earlier time. For
// threads that work simultaneously, the total delay by waiting is at least
// that.
func (t Times) Since(before Times) (most time.Duration) {
	for tid, d := range t {
		if was, is := before[tid]; is && was <= d { // otherwise it is a new thread
			d -= was
		}
		most = max(most, d)
	}
	return most
}
