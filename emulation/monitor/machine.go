//go:build linux

package monitor

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"testbed/internal/cpuwait"
	"testbed/internal/quota"
	"testbed/shaping/fidelity"
)

// Machine is the whole machine's use of time since boot.
type Machine struct {
	Pressure time.Duration // at least one runnable task waited for a processor
	// Throttled is how long the program's control group stalled because its quota
	// of processor time was used up. CPUQuota is the quota, in processors.
	Throttled time.Duration
	CPUQuota  float64
	// In clock ticks of all processors.
	Total, Steal, SoftIRQ uint64
}

// ReadMachine observes this machine. Values that its kernel does not report are
// 0.
func ReadMachine() Machine {
	q := quota.Read()
	m := Machine{Pressure: CPUPressure(), Throttled: q.Throttled, CPUQuota: q.CPUs}
	f, err := os.Open("/proc/stat")
	if err != nil {
		return m
	}
	defer f.Close()
	m.Total, m.Steal, m.SoftIRQ = parseStat(f)
	return m
}

// parseStat reads the first line of /proc/stat (proc_stat(5)).
func parseStat(r io.Reader) (total, steal, softirq uint64) {
	in := bufio.NewScanner(r)
	if !in.Scan() {
		return 0, 0, 0
	}
	const softirqField, stealField, fields = 6, 7, 8 // guest time is part of user time
	for k, text := range strings.Fields(strings.TrimPrefix(in.Text(), "cpu ")) {
		v, err := strconv.ParseUint(text, 10, 64)
		if err != nil || k >= fields {
			break
		}
		total += v
		switch k {
		case softirqField:
			softirq = v
		case stealField:
			steal = v
		}
	}
	return total, steal, softirq
}

// Since adds the shares of the time from then to m, which was took long.
func (m Machine) Since(then Machine, took time.Duration, to *fidelity.Measurements) {
	if took > 0 {
		to.CPUPressure = min(float64(m.Pressure-then.Pressure)/float64(took), 1)
		to.Throttled = min(float64(m.Throttled-then.Throttled)/float64(took), 1)
	}
	to.CPUQuota = m.CPUQuota
	if ticks := float64(m.Total - then.Total); m.Total > then.Total {
		to.Steal, to.SoftIRQ = float64(m.Steal-then.Steal)/ticks, float64(m.SoftIRQ-then.SoftIRQ)/ticks
	}
}

// CPUPressure returns the time since boot in which at least one runnable task
// of this machine waited for a processor (Documentation/accounting/psi.rst), or
// 0 if the kernel does not report it.
func CPUPressure() time.Duration {
	f, err := os.Open("/proc/pressure/cpu")
	if err != nil {
		return 0
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	for in.Scan() {
		rest, found := strings.CutPrefix(in.Text(), "some ")
		_, total, ok := strings.Cut(rest, "total=")
		if us, err := strconv.ParseInt(total, 10, 64); found && ok && err == nil {
			return time.Duration(us) * time.Microsecond
		}
	}
	return 0
}

// AvailableMemory is the number of bytes that programs may allocate before the
// machine has to swap (proc_meminfo(5)) or their control group is full, or 0 if
// the kernel does not report it.
func AvailableMemory() int64 {
	free := machineMemory()
	if q := quota.Read(); q.MemoryBytes > 0 {
		if left := max(q.MemoryBytes-q.UsedBytes, 1); free == 0 || left < free {
			return left
		}
	}
	return free
}

func machineMemory() int64 {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(data), "MemAvailable:")
	line, _, _ := strings.Cut(rest, "\n")
	kib, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(line, "kB")), 10, 64)
	return kib << 10
}

// lowest is the priority (nice value) of threads that yield the processor to
// all others, as training threads do.
const lowest = 19

// RunnableWait returns how long the threads of a process have waited for a
// processor (Documentation/scheduler/sched-stats.rst), except those of lowest
// priority, or 0 if the kernel does not report it.
func RunnableWait(pid int) time.Duration {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid)) // the pattern is right
	var threads []int
	for _, name := range tasks {
		tid, _ := strconv.Atoi(filepath.Base(name))
		if p, err := unix.Getpriority(unix.PRIO_PROCESS, tid); err == nil && 20-p == lowest {
			continue
		}
		threads = append(threads, tid)
	}
	return cpuwait.Of(threads, nil).Sum()
}

// ProcessorTime is a process's processor time in all its threads. ok is false
// if it has ended.
func ProcessorTime(pid int) (d time.Duration, ok bool) {
	// The clock of another process, clock_getcpuclockid(3): its number is made of
	// the complement of the process's number, and of the kind, which is 2.
	const kind = 2
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|kind), &ts); err != nil {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}

// Meter adds up the processor time of the processes of each node, one after the
// other. A process that has died counts as it was when it was last read.
type Meter map[string]*metered

// metered is the state of a node: the process that runs, its time when it was
// last read, and the time of the processes before it.
type metered struct {
	pid          int
	last, before time.Duration
}

// Read returns the processor time of a node whose process is pid; 0 is none.
func (m Meter) Read(node string, pid int) time.Duration {
	n := m[node]
	if n == nil {
		n = &metered{}
		m[node] = n
	}
	if n.pid != pid {
		n.pid, n.last, n.before = pid, 0, n.before+n.last
	}
	if pid != 0 {
		if now, lives := ProcessorTime(pid); lives {
			n.last = now
		}
	}
	return n.before + n.last
}
