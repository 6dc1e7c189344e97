//go:build linux

package cluster

import (
	"errors"
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

// TestAnAllocationNeedsTwoHosts: this one, and at least one more.
func TestAnAllocationNeedsTwoHosts(t *testing.T) {
	t.Setenv(slurmJob, "7")
	t.Setenv(slurmNodes, "1")
	t.Setenv(slurmNode, "a")
	if n, err := allocated(); err == nil || !strings.Contains(err.Error(), "has only this host") {
		t.Errorf("%d, %v", n, err)
	}
	t.Setenv(slurmNode, "") // this host is outside of the allocation
	if n, err := allocated(); err != nil || n != 2 {
		t.Errorf("%d, %v; want 2", n, err)
	}
}

// TestTheEndOfSrunIsExplained with its status, even if that is 0, and its output.
func TestTheEndOfSrunIsExplained(t *testing.T) {
	const begin = "srun, which started the hosts, ended unexpectedly: "
	for _, c := range []struct {
		err          error
		output, want string
	}{
		{nil, "", "exit status 0"},
		{errors.New("exit status 1"), "", "exit status 1"},
		{errors.New("exit status 1"), "no such partition\n", "exit status 1\nno such partition"},
	} {
		if got := srunEnded(c.err, c.output).Error(); got != begin+c.want {
			t.Errorf("%v and %q: %q", c.err, c.output, got)
		}
	}
}

// TestHostsRefuseLeadersOfIPv6 before they wait for one.
func TestHostsRefuseLeadersOfIPv6(t *testing.T) {
	for _, leader := range []string{"[2001:db8::1]:7400", "[::1]:7400"} {
		if _, err := Join(t.Context(), leader, "token", Hello{}); err == nil || !strings.Contains(err.Error(), "it must be an IPv4 address") {
			t.Errorf("%s: %v", leader, err)
		}
	}
}
