//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"testbed/internal/errs"
	"testbed/internal/lines"
	"testbed/record"
	"testbed/stacks/measure"
)

// Exit codes of testbed.
const (
	exitOK          = 0
	exitInvalid     = 3
	exitUnsupported = 4
)

// testbed is the program that plays and simulates.
type testbed struct {
	program, scratch string
	settings         settings
	limit            time.Duration
	// patience is how long a run may take to end when it was interrupted.
	patience time.Duration
}

// play plays a run. An error means that it has no record, and wraps
// errors.ErrUnsupported if the stack is not installed.
func (t *testbed) play(ctx context.Context, j job, dir string) (exit int, err error) {
	args := []string{"run", j.scenario, "--json", "--out", dir, "--time-scale", fmt.Sprint(t.settings.TimeScale)}
	if j.player.Stack != nil {
		args = append(args, "--stack", j.player.Name)
	} else {
		args = append(args, "--policy", j.player.Policy, "--set", fmt.Sprintf("real.all_reduce.bits=%d", j.player.Bits))
	}
	if t.settings.TCP != "" {
		args = append(args, "--set", "real.tcp="+t.settings.TCP)
	}
	log, err := os.Create(dir + ".log")
	if err != nil {
		return 0, err
	}
	defer log.Close()
	limited, stop := context.WithTimeout(ctx, t.limit)
	defer stop()
	cmd := exec.CommandContext(limited, t.program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error {
		// The first signal reaches the programs of a stack, which may be stuck. The second
		// one kills them.
		time.AfterFunc(t.patience/3, func() { _ = cmd.Process.Signal(syscall.SIGINT) }) // it may have ended
		return cmd.Process.Signal(syscall.SIGINT)
	}
	cmd.WaitDelay = t.patience
	// A run does not survive the campaign, which plays it again. The kernel watches the
	// thread that starts the run.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	exit = cmd.ProcessState.ExitCode()
	_, none := os.Stat(filepath.Join(dir, record.SummaryFile))
	switch {
	case exit == exitUnsupported:
		missing, fix, _ := strings.Cut(strings.TrimPrefix(lastLine(log.Name()), "testbed: "), "; ")
		return exit, &errs.UnsupportedError{Missing: missing, Fix: fix}
	case none == nil && (exit == exitOK || exit == exitInvalid || limited.Err() != nil):
		return exit, nil
	case err == nil:
		err = none
	}
	return exit, fmt.Errorf("%w: %s; see %s", err, lastLine(log.Name()), log.Name())
}

// lastLine is the last line of a file that is not JSON.
func lastLine(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	for k := len(all) - 1; k >= 0; k-- {
		if line := strings.TrimSpace(all[k]); line != "" && !strings.ContainsAny(line[:1], "{}[]\"") {
			return line
		}
	}
	return ""
}

// simulator simulates a scenario with a policy, on the planned links.
type simulator func(ctx context.Context, scenario, policy string, bits int) (measure.Measures, error)

// simulate is a simulator.
func (t *testbed) simulate(ctx context.Context, scenario, policy string, bits int) (m measure.Measures, err error) {
	trace := filepath.Join(t.scratch, "trace.jsonl")
	cmd := exec.CommandContext(ctx, t.program, "simulate", scenario, "--network", "links", "--policy", policy, "--json", "--trace", trace,
		"--set", fmt.Sprintf("real.time_scale=%g", t.settings.TimeScale), "--set", fmt.Sprintf("real.all_reduce.bits=%d", bits))
	var out, errout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errout
	if err := cmd.Run(); err != nil && cmd.ProcessState.ExitCode() != exitInvalid {
		return m, fmt.Errorf("simulating %s with %s: %w: %s", scenario, policy, err, errout.String())
	}
	r := &measure.Record{}
	if err := json.Unmarshal(out.Bytes(), &r.Summary); err != nil {
		return m, fmt.Errorf("simulating %s with %s: %w", scenario, policy, err)
	}
	file, err := os.Open(trace)
	if err != nil {
		return m, err
	}
	defer file.Close()
	err = lines.Read(file, trace, func(_ int, _ []byte, e *record.Event) error {
		r.Events = append(r.Events, *e)
		return nil
	})
	return measure.Of(r), errors.Join(err, os.Remove(trace))
}
