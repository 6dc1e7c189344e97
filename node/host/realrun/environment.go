//go:build linux

package realrun

import (
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"testbed/runlog"
)

var processorName = regexp.MustCompile(`(?m)^model name\s*:\s*(.+)$`)

// environment describes this machine and program for the record of a run.
func environment(command []string) runlog.Environment {
	e := runlog.Environment{
		Began: time.Now().Format(time.RFC3339), Command: command, Revision: revision(),
		Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Processors: runtime.NumCPU(),
	}
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

// revision is that of the source that this program was built from, where the
// go command knew it.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	found := map[string]string{}
	for _, s := range info.Settings {
		found[s.Key] = s.Value
	}
	if found["vcs.revision"] != "" && found["vcs.modified"] == "true" {
		return found["vcs.revision"] + "+"
	}
	return found["vcs.revision"]
}
