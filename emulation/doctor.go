//go:build linux

package emulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"testbed/emulation/network"
	"testbed/emulation/sandbox"
	"testbed/internal/errs"
	"testbed/internal/quota"
	"testbed/shaping/fidelity"
	"testbed/shaping/kernel"
	"testbed/shaping/userlink"
)

// Check is the check of one thing that real runs need or can use.
type Check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Needed reports that no real run is possible without it.
	Needed bool   `json:"needed"`
	Detail string `json:"detail"`
	Fix    string `json:"mend,omitempty"`
}

// Doctor reports what this machine can do and what is missing. It tries
// everything.
func Doctor() ([]Check, error) {
	checks := []Check{machineCheck()}
	if err := sandbox.Check(); err != nil {
		c := Check{Name: "sandbox", Needed: true, Detail: err.Error()}
		if unsupported, ok := errors.AsType[*errs.UnsupportedError](err); ok {
			c.Detail, c.Fix = unsupported.Missing, unsupported.Fix
		}
		return append(checks, c), nil
	}
	how := "works as root"
	if os.Geteuid() != 0 {
		how = "works in a user namespace of its own"
	}
	checks = append(checks, Check{Name: "sandbox", OK: true, Needed: true, Detail: how})
	links, err := probeInside()
	return append(append(checks, links...), pythonCheck()), err
}

// PythonTrainers is the name of a check whose failure affects only trainers in
// Python.
const PythonTrainers = "trainers in Python"

// pythonCheck checks the requirements of users' trainers in Python.
func pythonCheck() Check {
	c := Check{Name: PythonTrainers, Fix: "apt-get install python3-numpy; only trainers in Python need it"}
	path, err := exec.LookPath("python3")
	if err != nil {
		c.Detail = "there is no python3 in the PATH: " + os.Getenv("PATH")
		return c
	}
	c.Fix = "install numpy for " + path + " (" + path + " -m pip install numpy, or apt-get install python3-numpy for the system's Python), or put another python3 first in the PATH; only trainers in Python need it"
	ctx, stop := context.WithTimeout(context.Background(), interpreterPatience)
	defer stop()
	cmd := exec.CommandContext(ctx, path, "-c", "import sys, numpy; print(sys.executable, 'with numpy', numpy.__version__)")
	var stderr strings.Builder
	cmd.Stderr, cmd.WaitDelay = &stderr, time.Second
	out, err := cmd.Output()
	if err == nil {
		c.Detail, c.OK, c.Fix = strings.TrimSpace(string(out)), true, ""
		return c
	}
	said := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	c.Detail = fmt.Sprintf("%s could not import numpy: %q (%v)", path, said[len(said)-1], err) // the error is Python's last line
	if ctx.Err() != nil {
		c.Detail = fmt.Sprintf("%s did not import numpy within %v", path, interpreterPatience)
	}
	return c
}

// interpreterPatience is longer than an interpreter takes to start from a cold
// disk.
const interpreterPatience = 20 * time.Second

func machineCheck() Check {
	var u unix.Utsname
	kernelName := "unknown"
	if unix.Uname(&u) == nil {
		kernelName = unix.ByteSliceToString(u.Release[:])
	}
	detail := fmt.Sprintf("Linux %s, %s, %s", kernelName, errs.Count(runtime.NumCPU(), "processor"), runtime.GOARCH)
	if limits := quota.Read().String(); limits != "" {
		detail += ". The control group of this program may use only " + limits
	}
	return Check{Name: "machine", OK: true, Needed: true, Detail: detail}
}

// probeInside lets a sandbox test the kernel's features: an ordinary user may
// not test them outside.
func probeInside() (checks []Check, err error) {
	job, err := network.Start(context.Background(), network.JobSpec{Kind: kindProbe}, sandbox.Config{Stderr: os.Stderr})
	if err != nil {
		return nil, err
	}
	defer job.Close()
	if err := job.Result(&checks, nil); err != nil {
		return nil, fmt.Errorf("probing the kernel: %w", err)
	}
	return checks, nil
}

// runProbe is probeInside in the sandbox.
func runProbe(s *network.Supervisor, _ json.RawMessage) error {
	can := kernel.Probe()
	var checks []Check
	for _, f := range can {
		c := Check{Name: f.Feature, OK: f.Err == nil, Detail: "available"}
		if unsupported, ok := errors.AsType[*errs.UnsupportedError](f.Err); ok {
			c.Detail, c.Fix = fmt.Sprint(unsupported.Err), unsupported.Fix
		} else if f.Err != nil {
			c.Detail = f.Err.Error()
		}
		checks = append(checks, c)
	}
	priority := Check{Name: "router priority", OK: true, Detail: "the router of the link backend user has priority over other programs"}
	if !userlink.MayPrioritise(s.Raise) {
		priority.OK, priority.Fix = false, fidelity.PriorityFix
		priority.Detail = "the router has no priority over other programs: its packets are late whenever those programs are busy"
	}
	checks = append(checks, priority)
	return s.Hand(append(checks, linksCheck(can.Supports(kernel.BackendNetem), can.Supports(kernel.BackendUser))))
}

// linksCheck reports which links auto chooses, given the errors of the
// backends.
func linksCheck(netem, user error) Check {
	c := Check{Name: "links", OK: true, Needed: true}
	switch {
	case netem == nil:
		c.Detail = "--links auto chooses the link backend netem"
	case user == nil:
		c.Detail = "--links auto chooses the link backend user, because the kernel has no netem"
	default:
		c.OK, c.Detail = false, user.Error()
	}
	return c
}
