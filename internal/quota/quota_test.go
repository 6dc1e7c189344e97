package quota

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestRead: both versions of control groups, nested ones, and a container's, whose name
// means nothing where it looks.
func TestRead(t *testing.T) {
	for _, c := range []struct {
		name, list string
		files      map[string]string
		want       Quota
		processors int // of 8
	}{
		{"none", "0::/\n", nil, Quota{}, 8},
		{"version 2", "0::/user.slice/run.scope\n", map[string]string{
			"user.slice/run.scope/cpu.max": "150000 100000\n", "user.slice/run.scope/cpu.stat": "usage_usec 5\nthrottled_usec 2500\n",
			"user.slice/cpu.max": "max 100000\n", "user.slice/memory.max": "2000000000\n", "user.slice/memory.current": "500000000\n",
			"user.slice/run.scope/memory.max": "max\n",
		}, Quota{CPUs: 1.5, MemoryBytes: 2e9, UsedBytes: 5e8, Throttled: 2500 * time.Microsecond}, 2},
		{"the narrowest counts", "0::/a/b\n", map[string]string{"a/cpu.max": "50000 100000\n", "a/b/cpu.max": "400000 100000\n"}, Quota{CPUs: 0.5}, 1},
		{"a container", "0::/\n", map[string]string{"cpu.max": "400000 100000\n"}, Quota{CPUs: 4}, 4},
		{"a container that is told its name outside", "0::/kubepods/pod1/c2\n", map[string]string{"cpu.max": "400000 100000\n"}, Quota{CPUs: 4}, 4},
		{"version 1", "4:cpu,cpuacct:/job\n3:memory:/job\n0::/\n", map[string]string{
			"cpu,cpuacct/job/cpu.cfs_quota_us": "200000\n", "cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
			"cpu,cpuacct/job/cpu.stat":         "nr_periods 3\nnr_throttled 1\nthrottled_time 7000000\n",
			"memory/job/memory.limit_in_bytes": "1000000000\n", "memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, Quota{CPUs: 2, MemoryBytes: 1e9, Throttled: 7 * time.Millisecond}, 2},
		{"version 1 without a limit", "4:cpu:/\n", map[string]string{"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, Quota{}, 8},
	} {
		mount := t.TempDir()
		list := filepath.Join(t.TempDir(), "cgroup")
		if err := os.WriteFile(list, []byte(c.list), 0o644); err != nil {
			t.Fatal(err)
		}
		for name, text := range c.files {
			file := filepath.Join(mount, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := read(list, mount); got != c.want || got.Processors(8) != c.processors {
			t.Errorf("%s: %+v and %d processors, want %+v and %d", c.name, got, got.Processors(8), c.want, c.processors)
		}
	}
}
