package record

import (
	"maps"
	"path/filepath"
	"runtime/debug"
	"slices"
)

// Environment is where a run was made: the program, the machine, and the
// command line that asked for it. Unknown fields are empty.
type Environment struct {
	Began string `json:"began"` // RFC 3339
	// Command is the command line, the program's name first.
	Command []string `json:"command,omitempty"`
	// Version is the program's version; older records lack it.
	Version string `json:"version,omitempty"`
	// Revision is the revision of the program's source. A + at its end means that
	// the source had been changed since.
	Revision    string `json:"revision,omitempty"`
	Go          string `json:"go"`
	OS          string `json:"os"`
	Arch        string `json:"arch"`
	Kernel      string `json:"kernel,omitempty"`
	Processor   string `json:"processor,omitempty"`
	Processors  int    `json:"processors"`
	MemoryBytes int64  `json:"memory_bytes,omitempty"`
	// Trainer is the user's own training program, if one is used.
	Trainer *Trainer `json:"trainer,omitempty"`
	// CPUQuota and MemoryQuotaBytes are the limits of processors and memory of the
	// program's control group; absent without a limit.
	CPUQuota         float64 `json:"cpu_quota,omitempty"`
	MemoryQuotaBytes int64   `json:"memory_quota_bytes,omitempty"`
	// Hosts are the other hosts of a run over several. All other fields describe
	// the leader.
	Hosts []HostEnvironment `json:"hosts,omitempty"`
	// SHA256 are the digests of the scenario's files in the run directory, in
	// hexadecimal, by their names; older records lack them.
	SHA256 map[string]string `json:"sha256,omitempty"`
}

// Trainer is the user's own training program, as it was when the run began.
type Trainer struct {
	// Command is its command line, Dir the directory it runs in, and Path the
	// executable.
	Command []string `json:"command"`
	Dir     string   `json:"dir"`
	Path    string   `json:"path"`
	// SHA256 has digests in hexadecimal, by paths from Dir: of the executable, of
	// the arguments that are files, and of the program's own imports, without
	// libraries.
	SHA256 map[string]string `json:"sha256"`
	// Parameters is the number of its model's parameters.
	Parameters int `json:"parameters,omitempty"`
	// Python is the version of its interpreter, and Libraries the versions of its
	// imported libraries, if it joins with the Python package.
	Python    string            `json:"python,omitempty"`
	Libraries map[string]string `json:"libraries,omitempty"`
}

// Changed names the files in the folder Dir that differ from their digests.
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

// Host is a host of a run over several, with its nodes. The first host leads.
type Host struct {
	Name  string   `json:"name"`  // The host's name.
	Nodes []string `json:"nodes"` // The nodes on it.
	// A bound on the error of the host's clock against the leader's at the end of
	// the run, in real microseconds, rounded up. It is 0 for the leader, and in a
	// run that was cut short.
	ClockBound int64 `json:"clock_bound_us"`
}

// Version is the version of this program, as in https://semver.org.
const Version = "0.3.0"

// revision is set by the linker, -X testbed/record.revision=…, where the go
// command builds from source without its history.
var revision string

// Revision is the revision of the source that this program was built from, as
// in Environment. It is empty if unknown.
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
