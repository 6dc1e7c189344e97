//go:build linux

package network

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"
)

// usagePeriod is the time between two looks at a process.
const usagePeriod = 10 * time.Second

// Usage is a process's use of the machine.
type Usage struct {
	Seconds     float64 `json:"seconds"` // since the start of the sandbox; filled in by the reader
	Process     string  `json:"process"` // a node, the router, or init
	Goroutines  int     `json:"goroutines"`
	Descriptors int     `json:"descriptors"`
	// HeapBytes were live at the last collection. ResidentBytes is the process's
	// resident memory.
	HeapBytes     uint64 `json:"heap_bytes"`
	ResidentBytes uint64 `json:"resident_bytes"`
}

// readUsage measures this process.
func readUsage() (Usage, error) {
	u := Usage{Goroutines: runtime.NumGoroutine()}
	heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(heap)
	u.HeapBytes = heap[0].Value.Uint64()
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return u, fmt.Errorf("reading the process's memory: %w", err)
	}
	if fields := strings.Fields(string(statm)); len(fields) > 1 {
		pages, _ := strconv.ParseUint(fields[1], 10, 64) // written by the kernel
		u.ResidentBytes = pages * uint64(os.Getpagesize())
	}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return u, fmt.Errorf("counting the process's descriptors: %w", err)
	}
	u.Descriptors = len(files) - 1 // one is the directory itself
	return u, nil
}

// ProfilesEnv names the environment variable with the folder, if any, into
// which each process of a run writes its profiles: those of the heap and of the
// goroutines, after a collection, at every look at its usage. They show what
// grows.
const ProfilesEnv = "TESTBED_PROFILES"

func init() {
	if os.Getenv(ProfilesEnv) != "" {
		runtime.MemProfileRate = 4 << 10 // the heaps are small
	}
}

// WatchUsage calls OnUsage for init, too.
func (s *Supervisor) WatchUsage() {
	go watchUsage("init", func(u Usage) {
		s.Post(func() error {
			s.OnUsage(u)
			return nil
		})
	})
}

// watchUsage reports the usage of the process of this name, periodically and
// for ever.
func watchUsage(process string, tell func(Usage)) {
	profiles := os.Getenv(ProfilesEnv)
	looks := 0
	for range time.Tick(usagePeriod) {
		if looks++; profiles != "" {
			runtime.GC()
			for _, kind := range []string{"heap", "goroutine"} {
				file, err := os.Create(filepath.Join(profiles, fmt.Sprintf("%s-%04d.%s", process, looks, kind)))
				if err != nil {
					break
				}
				_ = pprof.Lookup(kind).WriteTo(file, 0) // an aid, not part of the record
				file.Close()
			}
		}
		u, err := readUsage()
		if err != nil {
			return // no proc file system: nothing to report
		}
		u.Process = process
		tell(u)
	}
}
