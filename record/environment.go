package record

import "runtime/debug"

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
	// Hosts are the others of a run over several; the above is the leader's.
	Hosts []HostEnvironment `json:"hosts,omitempty"`
	// SHA256 are the digests of the scenario's files in the run directory, in
	// hexadecimal, by their names; older records lack them.
	SHA256 map[string]string `json:"sha256,omitempty"`
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
