//go:build linux

package realrun

import "testing"

func TestEnvironmentOfThisMachine(t *testing.T) {
	e := environment([]string{"testbed", "run"})
	if e.Began == "" || e.Go == "" || e.Kernel == "" || e.Processors < 1 || e.MemoryBytes < 1<<20 || len(e.Command) != 2 {
		t.Errorf("%+v", e)
	}
}
