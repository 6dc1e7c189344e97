//go:build linux

package programs

import (
	"errors"
	"os/exec"
	"syscall"
	"testing"

	"testbed/internal/errs"
	"testbed/scenarios"
)

func TestCheck(t *testing.T) {
	scenario, err := scenarios.Load("homogeneous")
	if err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Resolve("")
	if err != nil {
		t.Fatal(err)
	}
	if err := (&Network{Scenario: s, Pcap: []string{"w1"}, PcapLimit: pcapLeastAllowed}).Check(); err != nil {
		t.Error(err)
	}
	for _, n := range []Network{
		{Scenario: s, Pcap: []string{"w9"}, PcapLimit: 1 << 20},
		{Scenario: s, Pcap: []string{"w1"}, PcapLimit: pcapLeastAllowed - 1},
	} {
		if _, usage := errors.AsType[*errs.UsageError](n.Check()); !usage {
			t.Errorf("%q, %d: no usage error", n.Pcap, n.PcapLimit)
		}
	}
}

func TestExitCodes(t *testing.T) {
	if code, _ := NotStarted(exec.ErrNotFound); code != ExitNotFound {
		t.Errorf("not found: %d", code)
	}
	if code, _ := NotStarted(syscall.EACCES); code != ExitNotExecutable {
		t.Errorf("not executable: %d", code)
	}
	if got := addrVariable("dc-1w0"); got != "TESTBED_ADDR_DC_1W0" {
		t.Error(got)
	}
}

func TestCaptured(t *testing.T) {
	for want, c := range map[string]captured{
		"5 frames": {Frames: 5},
		"1 frame, without 3 MISSED because frames came too fast":                                                         {Frames: 1, Missed: 3},
		"5 frames, without 2 that did not fit into the size limit of the file and 1 MISSED because frames came too fast": {Frames: 5, Beyond: 2, Missed: 1},
	} {
		if got := c.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
