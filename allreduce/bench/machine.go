package bench

import (
	"bufio"
	"bytes"
	"os"
	"runtime"
	"strings"

	"testbed/allreduce/int8"
)

// Machine is where a benchmark ran.
type Machine struct {
	Processor string `json:"processor"`
	Cores     int    `json:"cores"`
	Kernel    string `json:"kernel"`
	Go        string `json:"go"`
	// Kernels says which routes of package int8 a step of the ring takes, where
	// that matters.
	Kernels string `json:"kernels"`
}

// WithKernels is the machine with its Kernels, which may have to be measured for
// it.
func (m Machine) WithKernels() Machine {
	m.Kernels = int8.Rule()
	return m
}

// ThisMachine describes this one, without its Kernels. What only Linux tells is
// elsewhere the architecture for the processor, and an unknown kernel.
func ThisMachine() Machine {
	m := Machine{Processor: runtime.GOARCH, Cores: runtime.NumCPU(), Kernel: "unknown", Go: runtime.Version()}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = string(bytes.TrimSpace(release))
	}
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return m
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		if key, value, _ := strings.Cut(in.Text(), ":"); strings.TrimSpace(key) == "model name" {
			m.Processor = strings.TrimSpace(value)
			break
		}
	}
	return m
}
