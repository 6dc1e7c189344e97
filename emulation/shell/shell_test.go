//go:build linux

package shell

import (
	"errors"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"testbed/emulation/network"
	"testbed/emulation/sandbox"
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
	t.Setenv("SHELL", "/bin/fish")
	o := Options{Scenario: s}
	if err := o.check(); err != nil || strings.Join(o.Command, " ") != "/bin/fish" {
		t.Errorf("%q, %v", o.Command, err)
	}
	t.Setenv("SHELL", "")
	o = Options{Scenario: s, Pcap: []string{"w1"}, PcapLimit: pcapLeastAllowed}
	if err := o.check(); err != nil || strings.Join(o.Command, " ") != "sh" {
		t.Errorf("%q, %v", o.Command, err)
	}
	for _, o := range []Options{
		{Scenario: s, Pcap: []string{"w9"}, PcapLimit: 1 << 20},
		{Scenario: s, Pcap: []string{"w1"}, PcapLimit: pcapLeastAllowed - 1},
	} {
		if _, usage := errors.AsType[*errs.UsageError](o.check()); !usage {
			t.Errorf("%q, %d: no usage error", o.Pcap, o.PcapLimit)
		}
	}
}

func TestEnterOutsideOfANetwork(t *testing.T) {
	t.Setenv(envNodes, "")
	if _, err := Enter("w0", []string{"true"}); err == nil || !strings.Contains(err.Error(), "only inside of testbed net") {
		t.Errorf("%v", err)
	}
	t.Setenv(envNodes, "coordinator w0 w1")
	if _, err := Enter("w7", []string{"true"}); err == nil || !strings.Contains(err.Error(), "the nodes are coordinator w0 w1") {
		t.Errorf("%v", err)
	}
	if code, err := Enter("w0", []string{"there-is-no-such-program"}); code != exitNotFound || err == nil {
		t.Errorf("%d, %v", code, err)
	}
}

func TestExitCodes(t *testing.T) {
	for _, test := range []struct{ got, want int }{
		{exitOf(sandbox.Status{Code: 3}), 3},
		{exitOf(sandbox.Status{Code: -1, Signal: syscall.SIGTERM}), 143},
	} {
		if test.got != test.want {
			t.Errorf("%d, want %d", test.got, test.want)
		}
	}
	if code, _ := notStarted(exec.ErrNotFound); code != exitNotFound {
		t.Errorf("not found: %d", code)
	}
	if code, _ := notStarted(syscall.EACCES); code != exitNotExecutable {
		t.Errorf("not executable: %d", code)
	}
	if got := addrVariable("dc-1w0"); got != "TESTBED_ADDR_DC_1W0" {
		t.Error(got)
	}
}

// TestEarlySignal: one that comes before the program keeps it from starting.
func TestEarlySignal(t *testing.T) {
	var s signals
	s.pass(network.NewSupervisor(strings.NewReader(`{"Signal":2}`), io.Discard))
	if program, early, err := s.start(nil, sandbox.Command{}); program != nil || early != syscall.SIGINT || err != nil {
		t.Errorf("%v, %v, %v", program, early, err)
	}
}

func TestCaptured(t *testing.T) {
	for want, c := range map[string]captured{
		"5 frames": {Frames: 5},
		"5 frames; 2 more did not fit the limit of the file; 1 MISSED, they came too fast": {Frames: 5, Beyond: 2, Missed: 1},
	} {
		if got := c.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestWorkerInjects(t *testing.T) {
	s, err := scenarios.Load("crash_mid_round")
	if err != nil {
		t.Fatal(err)
	}
	if n := workerInjects(s.Faults()); n == 0 {
		t.Error("a crash is an inject of a worker")
	}
}
