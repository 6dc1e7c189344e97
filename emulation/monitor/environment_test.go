//go:build linux

package monitor

import "testing"

func TestEnvironmentOfThisMachine(t *testing.T) {
	e := Environment([]string{"testbed", "run"})
	if e.Began == "" || e.Go == "" || e.Kernel == "" || e.Processors < 1 || e.MemoryBytes < 1<<20 || len(e.Command) != 2 {
		t.Errorf("%+v", e)
	}
}
