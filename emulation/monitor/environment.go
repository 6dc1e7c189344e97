//go:build linux

package monitor

import (
	"os"
	"regexp"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"testbed/internal/quota"
	"testbed/record"
)

var processorName = regexp.MustCompile(`(?m)^model name\s*:\s*(.+)$`)

// Environment describes this machine and program for the record of a run.
func Environment(command []string) record.Environment {
	e := record.Environment{
		Began: time.Now().Format(time.RFC3339), Command: command, Version: record.Version, Revision: record.Revision(),
		Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Processors: runtime.NumCPU(),
	}
	q := quota.Read()
	e.CPUQuota, e.MemoryQuotaBytes = q.CPUs, q.MemoryBytes
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		e.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	var s unix.Sysinfo_t
	if unix.Sysinfo(&s) == nil {
		e.MemoryBytes = int64(s.Totalram) * int64(s.Unit)
	}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if m := processorName.FindSubmatch(text); m != nil { // arm64 gives none
			e.Processor = string(m[1])
		}
	}
	return e
}
