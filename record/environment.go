package record

import (
	"maps"
	"path/filepath"
	"runtime/debug"
	"slices"
)

// Environment is where a run was made: the program, the machine, and the
// command line that asked for it. What could not be found out is empty.
type Environment struct {
	Began string `json:"began"` // RFC 3339
	// Command is the command line, the program's name first.
	Command []string `json:"command,omitempty"`
	// Version is the program's; older records lack it.
	Version string `json:"version,omitempty"`
	// Revision is that of the program's source; a + at its end says that the
	// source had been changed since.
	Revision    string `json:"revision,omitempty"`
	Go          string `json:"go"`
	OS          string `json:"os"`
	Arch        string `json:"arch"`
	Kernel      string `json:"kernel,omitempty"`
	Processor   string `json:"processor,omitempty"`
	Processors  int    `json:"processors"`
	MemoryBytes int64  `json:"memory_bytes,omitempty"`
	// Trainer is the program of the user's own that trains, if one does.
	Trainer *Trainer `json:"trainer,omitempty"`
	// CPUQuota and MemoryQuotaBytes are what the control group of the program may use of
	// processors and memory; absent where it has no limit.
	CPUQuota         float64 `json:"cpu_quota,omitempty"`
	MemoryQuotaBytes int64   `json:"memory_quota_bytes,omitempty"`
	// Hosts are the others of a run over several; the above is the leader's.
	Hosts []HostEnvironment `json:"hosts,omitempty"`
	// SHA256 are the digests of the scenario's files in the run directory, in
	// hexadecimal, by their names; older records lack them.
	SHA256 map[string]string `json:"sha256,omitempty"`
}

// Trainer is a program of the user's own that trains, as it was when the run began.
type Trainer struct {
	// Command is its command line, run in Dir, and Path the executable.
	Command []string `json:"command"`
	Dir     string   `json:"dir"`
	Path    string   `json:"path"`
	// SHA256 are the digests, in hexadecimal, of the executable, of the arguments that
	// are files, and of what the program imports that is its own and no library; by
	// paths from Dir.
	SHA256 map[string]string `json:"sha256"`
	// Parameters is how many it has.
	Parameters int `json:"parameters,omitempty"`
	// Python is the version of its interpreter, and Libraries those of what it
	// imports, if it joins with the Python package.
	Python    string            `json:"python,omitempty"`
	Libraries map[string]string `json:"libraries,omitempty"`
}

// Changed names the files that differ from what the digests say, from the folder Dir.
func (t *Trainer) Changed() (names []string) {
	if t == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(t.SHA256)) {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(t.Dir, name)
		}
		if hash, err := FileDigest(path); err != nil || hash != t.SHA256[name] {
			names = append(names, name)
		}
	}
	return names
}

// HostEnvironment is the environment of another host.
type HostEnvironment struct {
	Name string `json:"name"`
	Environment
}

// Host is a host of a run over several, and what is on it. The first one leads.
type Host struct {
	Name  string   `json:"name"`
	Nodes []string `json:"nodes"`
	// ClockBound is by how much its clock can have been misjudged beside the
	// leader's at the end of the run, in microseconds by the clock, rounded up; of
	// the leader, and in a run that was cut short, zero.
	ClockBound int64 `json:"clock_bound_us"`
}

// Version is that of this program, as https://semver.org has it.
const Version = "0.3.0"

// revision is set by the linker, -X testbed/record.revision=…, where the go
// command finds the source without its history.
var revision string

// Revision is that of the source that this program was built from, as
// Environment has it, and empty where nobody knew it.
func Revision() string {
	found := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			found[s.Key] = s.Value
		}
	}
	switch known := found["vcs.revision"]; {
	case known == "":
		return revision
	case found["vcs.modified"] == "true":
		return known + "+"
	default:
		return known
	}
}
