package load

import (
	"os"
	"syscall"
)

// maxRSS is the peak memory of a process in megabytes; 0: unknown.
func maxRSS(s *os.ProcessState) float64 {
	if r, ok := s.SysUsage().(*syscall.Rusage); ok {
		return float64(r.Maxrss) * 1024 / 1e6
	}
	return 0
}
