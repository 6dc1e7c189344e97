//go:build linux

package shell

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"

	"testbed/emulation/network"
	"testbed/emulation/programs"
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
	o := Options{Network: programs.Network{Scenario: s}}
	if err := o.check(); err != nil || strings.Join(o.Command, " ") != "/bin/fish" {
		t.Errorf("%q, %v", o.Command, err)
	}
	t.Setenv("SHELL", "")
	o = Options{Network: programs.Network{Scenario: s}}
	if err := o.check(); err != nil || strings.Join(o.Command, " ") != "sh" {
		t.Errorf("%q, %v", o.Command, err)
	}
	if _, usage := errors.AsType[*errs.UsageError]((&Options{Network: programs.Network{Scenario: s}, At: "w9"}).check()); !usage {
		t.Error("w9: no usage error")
	}
}

func TestEnterOutsideOfANetwork(t *testing.T) {
	t.Setenv(programs.EnvNodes, "")
	if _, err := Enter("w0", []string{"true"}); err == nil || !strings.Contains(err.Error(), "needs a network of testbed net") {
		t.Errorf("%v", err)
	}
	t.Setenv(programs.EnvNodes, "coordinator w0 w1")
	if _, err := Enter("w7", []string{"true"}); err == nil || !strings.Contains(err.Error(), "the nodes are coordinator w0 w1") {
		t.Errorf("%v", err)
	}
	if code, err := Enter("w0", []string{"there-is-no-such-program"}); code != programs.ExitNotFound || err == nil {
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
}

// TestEarlySignal: one that comes before the program keeps it from starting.
func TestEarlySignal(t *testing.T) {
	var s signals
	s.pass(network.NewSupervisor(strings.NewReader(`{"Signal":2}`), io.Discard))
	if program, early, err := s.start(nil, sandbox.Command{}); program != nil || early != syscall.SIGINT || err != nil {
		t.Errorf("%v, %v, %v", program, early, err)
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
