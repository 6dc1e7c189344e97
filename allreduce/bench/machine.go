package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"

	"testbed/allreduce/int8"
)

// Machine is the machine of a benchmark.
type Machine struct {
	Processor string `json:"processor"`
	Cores     int    `json:"cores"`
	Kernel    string `json:"kernel"`
	Go        string `json:"go"`
	// Kernels describes the routes of package int8 in a step of the ring, if that
	// matters.
	Kernels string `json:"kernels"`
}

// WithKernels is the machine with its Kernels, which it may have to measure.
func (m Machine) WithKernels() Machine {
	m.Kernels = int8.Rule()
	return m
}

// line describes the machine in words.
func (m Machine) line() string {
	cores := "cores"
	if m.Cores == 1 {
		cores = "core"
	}
	return fmt.Sprintf("%s, %d %s, Linux %s, %s, kernels %s", m.Processor, m.Cores, cores, m.Kernel, m.Go, m.Kernels)
}

// ThisMachine describes this machine, without its Kernels. On systems other
// than Linux, the processor is the architecture, and the kernel is unknown.
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
