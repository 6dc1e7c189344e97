//go:build linux

package cluster

import (
	"slices"
	"strings"
	"testing"
)

// TestSrunPassesProcessorsOn: a step binds no processor away, and takes over what the
// allocation has for each task.
func TestSrunPassesProcessorsOn(t *testing.T) {
	t.Setenv("SLURM_CPUS_PER_TASK", "")
	if got := cpuFlags(); !slices.Equal(got, []string{"--cpu-bind=none"}) {
		t.Errorf("%q outside of an allocation that says", got)
	}
	t.Setenv("SLURM_CPUS_PER_TASK", "6")
	if got := cpuFlags(); !slices.Equal(got, []string{"--cpu-bind=none", "--cpus-per-task=6"}) {
		t.Errorf("%q where a task has six processors", got)
	}
}

// TestHostsRefuseLeadersOfIPv6 before they wait for one.
func TestHostsRefuseLeadersOfIPv6(t *testing.T) {
	for _, leader := range []string{"[2001:db8::1]:7400", "[::1]:7400"} {
		if _, err := Join(t.Context(), leader, "token", Hello{}); err == nil || !strings.Contains(err.Error(), "give an IPv4 address") {
			t.Errorf("%s: %v", leader, err)
		}
	}
}
