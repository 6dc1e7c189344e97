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
	// Kernels says which routes of package int8 vectors take.
	Kernels string `json:"kernels"`
}

// ThisMachine describes this one. What only Linux tells is elsewhere the
// architecture for the processor, and an unknown kernel.
func ThisMachine() Machine {
	m := Machine{Processor: runtime.GOARCH, Cores: runtime.NumCPU(), Kernel: "unknown", Go: runtime.Version(), Kernels: int8.Rule()}
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
