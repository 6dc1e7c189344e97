//go:build linux

// Package shell runs a user's program on the emulated network of a scenario
// (Run), and others in its nodes (Enter).
package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"testbed/emulation/cluster"
	"testbed/emulation/monitor"
	"testbed/emulation/network"
	"testbed/emulation/programs"
	"testbed/emulation/sandbox"
	"testbed/internal/errs"
)

// KindProgram is the kind of the job of Run, RunProgram.
const KindProgram = "program"

// Options determine which network to build and what to run on it.
type Options struct {
	programs.Network
	// Command is the program with its arguments; empty means $SHELL, or sh.
	Command []string
	// At names the node to run it in, which must be on this host; empty: the hub.
	At string
	// Clock is the rule that starts the clock of the scenario's injects.
	// ClockTraffic only sees the workers of this host.
	Clock programs.Rule
	// Dir is an existing directory for the record; empty: none is kept.
	Dir string
	// Verdict is called with the network's fidelity while the program ran, unless
	// it could not be started. It may be nil.
	Verdict func(monitor.Record)
	// Progress is called with progress in words; it may be nil.
	Progress func(string)
}

// programSpec is the job of Run.
type programSpec struct {
	Network programs.Spec
	Clock   programs.Rule
	Record  bool // it is kept
	Command []string
	At      string
	// Terminal reports that standard input is a terminal, for Command to control.
	Terminal bool
}

// programNote is a note of the job about the program.
type programNote struct {
	programs.Told
	Started  bool            `json:"started,omitempty"`
	Exit     *int            `json:"exit,omitempty"`
	Fidelity *monitor.Record `json:"fidelity,omitempty"`
}

// signalCommand passes a signal on to the program.
type signalCommand struct{ Signal syscall.Signal }

// Run runs a user's program on the scenario's network and returns its exit
// code, 128 + n if signal n ended it. Standard input, output and error are the
// program's. Interrupts are passed on to it. The program runs in the hub,
// between all links, or in the node At; Enter starts others in the nodes. When
// it has ended, everything is removed. The end of ctx only ends the wait for
// hosts.
func Run(ctx context.Context, o Options) (exit int, err error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	interactive := len(o.Command) == 0
	if err := o.check(); err != nil {
		return 0, err
	}
	hosts, spec, err := o.Form(ctx, o.Progress)
	if err != nil {
		return 0, err
	}
	defer func() { hosts.Close(err) }()
	keep, err := programs.NewRecorder(o.Dir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, keep.Close()) }()
	stdio, err := openStdio()
	if err != nil {
		return 0, err
	}
	defer stdio.restore()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	defer signal.Stop(signals)

	job, err := network.Start(context.Background(), hosts.Job(KindProgram, programSpec{
		Network: spec, Clock: o.Clock, Record: o.Dir != "", Command: o.Command, At: o.At, Terminal: stdio.terminal != nil,
	}), sandbox.Config{Stdin: stdio.in, Stdout: stdio.out, Stderr: stdio.err})
	if err != nil {
		return 0, err
	}
	defer job.Close() // by then the last output is on its way
	stdio.handedOver()
	type result struct {
		exit int
		err  error
	}
	done := make(chan result, 1)
	go func() {
		exit, err := o.listen(job, interactive, keep)
		done <- result{exit, err}
	}()
	for {
		select {
		case sig := <-signals:
			job.Send(signalCommand{sig.(syscall.Signal)})
		case r := <-done:
			return r.exit, r.err
		}
	}
}

// listen handles the notes of the job until the program has ended, and returns
// its exit code.
func (o *Options) listen(job *network.Job, interactive bool, keep *programs.Recorder) (exit int, err error) {
	for {
		n, err := job.Next()
		if err != nil {
			return 0, err
		}
		if n.Stage != "" && (interactive || !n.Quiet) {
			o.Progress(n.Stage)
		}
		var p programNote
		if n.Data == nil {
			continue
		}
		if err := json.Unmarshal(n.Data, &p); err != nil {
			return 0, fmt.Errorf("internal error: parsing a message of the sandbox: %w", err)
		}
		if err := keep.Write(p.Event); err != nil {
			return 0, err
		}
		if p.Exit != nil {
			if p.Fidelity != nil && o.Verdict != nil {
				o.Verdict(*p.Fidelity)
			}
			return *p.Exit, nil
		}
		if p.Started && interactive {
			o.Progress("the nodes are " + strings.Join(o.Nodes(), " ") + ". testbed in NODE CMD… runs a program in a node, and exit removes the network")
		}
	}
}

func (o *Options) check() error {
	if err := o.Network.Check(); err != nil {
		return err
	}
	if nodes := o.Nodes(); o.At != "" && !slices.Contains(nodes, o.At) {
		return errs.Usagef("--at: the network has no node %q; its nodes are %s", o.At, strings.Join(nodes, " "))
	}
	if len(o.Command) == 0 {
		shell := os.Getenv("SHELL")
		if shell == "" {
			shell = "sh"
		}
		o.Command = []string{shell}
	}
	return nil
}

// Enter replaces this process by a program in the machine of a node. It returns
// only if that fails, with an exit code, or if the node is on another host:
// then with the program's exit code, when it has ended. It works inside of Run.
func Enter(name string, command []string) (int, error) {
	nodes := strings.Fields(os.Getenv(programs.EnvNodes))
	if len(nodes) == 0 {
		return 0, errs.Usagef("the command testbed in needs a network of testbed net; run testbed net SCENARIO, and in its shell testbed in %s ping …", name)
	}
	if !slices.Contains(nodes, name) {
		return 0, errs.Usagef("the network has no node %q; the nodes are %s", name, strings.Join(nodes, " "))
	}
	if !sandbox.HasMachine(name) && !isMissing(programs.ExecSocket) {
		dir, err := os.Getwd()
		if err != nil {
			dir = "/"
		}
		return cluster.Exec(programs.ExecSocket, cluster.Program{Node: name, Command: command, Env: os.Environ(), Dir: dir})
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return programs.NotStarted(err)
	}
	runtime.LockOSThread() // the namespaces are the thread's, until exec makes them the process's
	if err := sandbox.EnterMachine(name); err != nil {
		return 0, fmt.Errorf("entering node %s: %w", name, err)
	}
	return programs.NotStarted(&fs.PathError{Op: "exec", Path: path, Err: unix.Exec(path, command, programs.InNode(os.Environ(), name))})
}

// RunExec is the process in a node on another host that represents a program of
// Enter.
func RunExec(self *network.Self) error {
	return cluster.RunExec(self, programs.Prepare, programs.NotStarted)
}

func isMissing(file string) bool {
	_, err := os.Stat(file)
	return errors.Is(err, fs.ErrNotExist)
}
