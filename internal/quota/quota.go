// Package quota reads the limits of this process's control group: containers
// and systemd's units often get less than the whole machine.
package quota

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Quota has a process's limits and usage. Zero: no limit, or none known.
type Quota struct {
	CPUs        float64       // processors
	MemoryBytes int64         // of memory
	UsedBytes   int64         // in use so far
	Throttled   time.Duration // total time in which the quota CPUs was used up
}

// Read reads the quota of this process. It is cheap.
func Read() Quota { return read("/proc/self/cgroup", "/sys/fs/cgroup") }

// String names the limits, for people; empty if there are none.
func (q Quota) String() string {
	var parts []string
	if q.CPUs > 0 {
		unit := "processors"
		if q.CPUs == 1 {
			unit = "processor"
		}
		parts = append(parts, fmt.Sprintf("%.4g %s", q.CPUs, unit))
	}
	if q.MemoryBytes > 0 {
		parts = append(parts, fmt.Sprintf("%.3g GB of memory", float64(q.MemoryBytes)/1e9))
	}
	return strings.Join(parts, " and ")
}

// Processors is how many of so many processors a program can keep busy, at
// least 1.
func (q Quota) Processors(all int) int {
	if q.CPUs > 0 {
		all = min(all, int(math.Ceil(q.CPUs)))
	}
	return max(all, 1)
}

// read is Read with a list of groups and a mount of them (cgroups(7)).
func read(list, mount string) (q Quota) {
	text, err := os.ReadFile(list)
	if err != nil {
		return q
	}
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		switch controllers := strings.Split(f[1], ","); {
		case f[1] == "": // version 2, alone or together with version 1
			for _, root := range []string{mount, filepath.Join(mount, "unified")} {
				q.each(root, f[2], q.version2)
			}
		default:
			for _, c := range controllers {
				switch c {
				case "cpu":
					q.eachOf(mount, f[1], c, f[2], q.cpu1)
				case "memory":
					q.eachOf(mount, f[1], c, f[2], q.memory1)
				}
			}
		}
	}
	return q
}

func (q *Quota) eachOf(mount, name, controller, group string, look func(dir string)) {
	for _, dir := range []string{name, controller} {
		if _, err := os.Stat(filepath.Join(mount, dir)); err == nil {
			q.each(filepath.Join(mount, dir), group, look)
			return
		}
	}
}

// each visits a group and those around it, up to the visible root: in a
// container that is the container's own, under which its group's name has no
// meaning.
func (q *Quota) each(root, group string, look func(dir string)) {
	for dir := filepath.Join("/", group); ; dir = filepath.Dir(dir) {
		look(filepath.Join(root, dir))
		if dir == "/" {
			return
		}
	}
}

func (q *Quota) version2(dir string) {
	if f := fields(dir, "cpu.max"); len(f) == 2 && f[0] != "max" {
		q.limit(number(f[0]), number(f[1]), fields(dir, "cpu.stat"), "throttled_usec", time.Microsecond)
	}
	if f := fields(dir, "memory.max"); len(f) == 1 && f[0] != "max" {
		q.memory(number(f[0]), fields(dir, "memory.current"))
	}
}

func (q *Quota) cpu1(dir string) {
	quota, period := fields(dir, "cpu.cfs_quota_us"), fields(dir, "cpu.cfs_period_us")
	if len(quota) == 1 && len(period) == 1 {
		q.limit(number(quota[0]), number(period[0]), fields(dir, "cpu.stat"), "throttled_time", time.Nanosecond)
	}
}

func (q *Quota) memory1(dir string) {
	if f := fields(dir, "memory.limit_in_bytes"); len(f) == 1 {
		q.memory(number(f[0]), fields(dir, "memory.usage_in_bytes"))
	}
}

// limit records a quota of processor time for a period, if it is the smallest.
func (q *Quota) limit(quota, period int64, stat []string, throttled string, unit time.Duration) {
	if quota <= 0 || period <= 0 {
		return
	}
	if cpus := float64(quota) / float64(period); q.CPUs == 0 || cpus < q.CPUs {
		q.CPUs = cpus
	}
	for k := 0; k+1 < len(stat); k += 2 {
		if stat[k] == throttled {
			q.Throttled = max(q.Throttled, time.Duration(number(stat[k+1]))*unit)
		}
	}
}

// noLimit is more memory than any machine has: version 1 writes such values for
// no limit.
const noLimit = 1 << 60

func (q *Quota) memory(limit int64, used []string) {
	if limit <= 0 || limit >= noLimit || q.MemoryBytes > 0 && limit >= q.MemoryBytes {
		return
	}
	q.MemoryBytes = limit
	if len(used) == 1 {
		q.UsedBytes = number(used[0])
	}
}

func fields(dir, name string) []string {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
