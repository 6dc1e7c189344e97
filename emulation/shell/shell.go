//go:build linux

// Package shell runs a program of the user's on the emulated network of a
// scenario (Run), others in its nodes (Enter), and writes down the frames of
// nodes as pcap files.
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
	"testbed/emulation/sandbox"
	"testbed/internal/errs"
	"testbed/scenarios/faults"
	"testbed/scenarios/resolved"
	"testbed/shaping"
)

// Environment of a program on the emulated network.
const (
	envNodes = "TESTBED_NODES" // the names, space separated
	envAddr  = "TESTBED_ADDR_" // and the node's name in capitals: its address
	envNode  = "TESTBED_NODE"  // the node that a program was started in by Enter
)

// Exit codes for a program that cannot be started, as shells have them.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// Kinds of the job of Run, RunProgram, and of its captures, RunCapture.
const (
	KindProgram = "program"
	KindCapture = "capture"
)

// Options say which network to build and what to run on it.
type Options struct {
	Scenario *resolved.Scenario
	Links    string // the backend, as in package emulation
	// Hosts asks for a network over several hosts; nil for one on this alone.
	Hosts *cluster.Request
	// Command is the program with its arguments; empty means $SHELL, or sh.
	Command []string
	// At names the node to run it in, which must be on this host; empty: the hub.
	At string
	// Pcap names the nodes whose frames are written to NODE.pcap in PcapDir,
	// each file no longer than PcapLimit bytes.
	Pcap      []string
	PcapDir   string
	PcapLimit int64
	// Verdict is told what the network was worth while the program ran, unless
	// it could not be started; it may be nil.
	Verdict func(monitor.Record)
	// Progress is told what happens in words; it may be nil.
	Progress func(string)
}

// programSpec is the job of Run.
type programSpec struct {
	Name      string // of the scenario
	Plan      *shaping.Plan
	Dilation  float64
	Faults    *faults.Schedule
	Links     string
	Layout    *network.Layout `json:",omitempty"`
	Command   []string
	At        string
	Pcap      []string
	PcapDir   string
	PcapLimit int64
	// Terminal says that standard input is a terminal, for Command to control.
	Terminal bool
}

// programNote is what the job tells of the program.
type programNote struct {
	Started  bool            `json:"started,omitempty"`
	Exit     *int            `json:"exit,omitempty"`
	Fidelity *monitor.Record `json:"fidelity,omitempty"`
}

// signalCommand passes a signal on to the program.
type signalCommand struct{ Signal syscall.Signal }

// Run runs a program of the user's on the scenario's network and returns its
// exit code, 128 + n if signal n ended it. Standard input, output and error
// are the program's. Interrupts are passed on to it. The program runs in the
// hub, between all links, or in the node At; Enter starts others in the nodes. When it has ended,
// everything is removed. The end of ctx ends the wait for hosts, and nothing else.
func Run(ctx context.Context, o Options) (exit int, err error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	interactive := len(o.Command) == 0
	if err := o.check(); err != nil {
		return 0, err
	}
	hosts, links, err := cluster.Form(ctx, o.Hosts, cluster.NetworkOf(o.Scenario), o.Links, o.Progress)
	if err != nil {
		return 0, err
	}
	defer func() { hosts.Close(err) }()
	stdio, err := openStdio()
	if err != nil {
		return 0, err
	}
	defer stdio.restore()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	defer signal.Stop(signals)

	job, err := network.Start(context.Background(), hosts.Job(KindProgram, programSpec{
		Name: o.Scenario.Name, Plan: o.Scenario.Plan, Dilation: o.Scenario.Slowdown(), Faults: o.Scenario.Faults,
		Links: links, Layout: hosts.Layout,
		Command: o.Command, At: o.At, Terminal: stdio.terminal != nil,
		Pcap: o.Pcap, PcapDir: o.PcapDir, PcapLimit: o.PcapLimit,
	}), sandbox.Config{Stdin: stdio.in, Stdout: stdio.out, Stderr: stdio.err})
	if err != nil {
		return 0, err
	}
	defer job.Close() // then the last output is on its way
	stdio.handedOver()
	type result struct {
		exit int
		err  error
	}
	done := make(chan result, 1)
	go func() {
		exit, err := o.listen(job, interactive)
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

// listen takes the notes of the job until the program has ended, and returns
// its exit code.
func (o *Options) listen(job *network.Job, interactive bool) (exit int, err error) {
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
			return 0, fmt.Errorf("reading the sandbox's messages: %w", err)
		}
		if p.Exit != nil {
			if p.Fidelity != nil && o.Verdict != nil {
				o.Verdict(*p.Fidelity)
			}
			return *p.Exit, nil
		}
		if p.Started && interactive {
			o.Progress("nodes " + strings.Join(o.nodes(), " ") + "; testbed in NODE CMD… runs a program in one; exit removes the network")
		}
	}
}

// nodes are the names of the network's nodes.
func (o *Options) nodes() (names []string) {
	for _, n := range o.Scenario.Plan.Nodes {
		names = append(names, n.Name)
	}
	return names
}

func (o *Options) check() error {
	nodes := o.nodes()
	for _, name := range o.Pcap {
		if !slices.Contains(nodes, name) {
			return errs.Usagef("no node %q to capture; the nodes are %s", name, strings.Join(nodes, " "))
		}
	}
	if o.At != "" && !slices.Contains(nodes, o.At) {
		return errs.Usagef("no node %q to run the program in; the nodes are %s", o.At, strings.Join(nodes, " "))
	}
	if len(o.Pcap) > 0 && o.Hosts != nil {
		return errs.Usagef("--pcap writes on one host only; leave it out, or leave --hosts out")
	}
	if len(o.Pcap) > 0 && o.PcapLimit < pcapLeastAllowed {
		return errs.Usagef("--pcap-limit of %d bytes is too small for one frame; raise it", o.PcapLimit)
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
// only if that fails, with an exit code, or if the node is on another host: then
// with that of the program, when it has ended. It works inside of Run.
func Enter(name string, command []string) (int, error) {
	nodes := strings.Fields(os.Getenv(envNodes))
	if len(nodes) == 0 {
		return 0, errs.Usagef("testbed in works only inside of testbed net: start for example testbed net SCENARIO, and then testbed in %s ping …", name)
	}
	if !slices.Contains(nodes, name) {
		return 0, errs.Usagef("no node %q; the nodes are %s", name, strings.Join(nodes, " "))
	}
	if !sandbox.HasMachine(name) && !isMissing(execSocket) {
		dir, err := os.Getwd()
		if err != nil {
			dir = "/"
		}
		return cluster.Exec(execSocket, cluster.Program{Node: name, Command: command, Env: os.Environ(), Dir: dir})
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return notStarted(err)
	}
	runtime.LockOSThread() // the namespaces are the thread's, until exec makes them the process's
	if err := sandbox.EnterMachine(name); err != nil {
		return 0, fmt.Errorf("entering node %s: %w", name, err)
	}
	return notStarted(&fs.PathError{Op: "exec", Path: path, Err: unix.Exec(path, command, inNode(os.Environ(), name))})
}

// RunExec is the process that stands, in a node on another host, for a program that
// Enter was called for.
func RunExec(self *network.Self) error { return cluster.RunExec(self, prepare, notStarted) }

// prepare makes a command of a program, for the node whose namespace this thread is in.
func prepare(p cluster.Program) (*exec.Cmd, error) {
	for _, v := range p.Env {
		if path, ok := strings.CutPrefix(v, "PATH="); ok {
			if err := os.Setenv("PATH", path); err != nil {
				return nil, err
			}
		}
	}
	path, err := exec.LookPath(p.Command[0])
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{Path: path, Args: p.Command, Env: inNode(p.Env, p.Node), Dir: p.Dir}
	if _, err := os.Stat(p.Dir); err != nil {
		cmd.Dir = "/" // this host has no such directory
	}
	return cmd, nil
}

func isMissing(file string) bool {
	_, err := os.Stat(file)
	return errors.Is(err, fs.ErrNotExist)
}

// inNode is an environment in a node.
func inNode(env []string, node string) []string {
	env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, envNode+"=") })
	return append(sandbox.MachineEnv(env, node), envNode+"="+node)
}

// notStarted is the exit code of a program that could not be started, and why.
func notStarted(err error) (int, error) {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return exitNotFound, err
	}
	return exitNotExecutable, err
}

// addrVariable is the environment variable that holds the node's address.
func addrVariable(name string) string {
	return envAddr + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}
