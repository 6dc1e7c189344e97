package runlog

// Environment is where a run was made: the program, the machine, and the
// command line that asked for it. What could not be found out is empty.
type Environment struct {
	Began string `json:"began"` // RFC 3339
	// Command is the command line, the program's name first.
	Command []string `json:"command,omitempty"`
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
}
