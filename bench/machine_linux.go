package bench

import (
	"bufio"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is where a benchmark ran.
type Machine struct {
	Processor string `json:"processor"`
	Cores     int    `json:"cores"`
	Kernel    string `json:"kernel"`
	Go        string `json:"go"`
}

// ThisMachine describes this one.
func ThisMachine() Machine {
	m := Machine{Processor: runtime.GOARCH, Cores: runtime.NumCPU(), Kernel: "unknown", Go: runtime.Version()}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
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
