package load

import (
	"os"
	"syscall"
)

// maxRSS is the most memory that a process had, in megabytes; 0: not known.
func maxRSS(s *os.ProcessState) float64 {
	if r, ok := s.SysUsage().(*syscall.Rusage); ok {
		return float64(r.Maxrss) * 1024 / 1e6
	}
	return 0
}
