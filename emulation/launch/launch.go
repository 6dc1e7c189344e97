//go:build linux

package launch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"testbed/emulation/monitor"
	"testbed/emulation/network"
	"testbed/emulation/programs"
	"testbed/emulation/sandbox"
	"testbed/internal/errs"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios/faults"
	"testbed/scenarios/resolved"
)

// KindLaunch is the kind of the job of Run, RunLaunch.
const KindLaunch = "launch"

// Options determine which network to build and what to start on it.
type Options struct {
	programs.Network
	// Command is started in the node of every worker without a command in PerNode.
	// It may be empty if PerNode has one for all.
	Command []string
	PerNode map[string][]string
	// Central is started in the coordinator's node before all others, and ended after
	// them; it may be empty.
	Central    []string
	MasterPort int
	Grace      time.Duration
	KeepGoing  bool
	Together   bool // as in Config
	Unattended bool // as in Config
	Clock      programs.Rule
	Limits     Limits
	// Most limits what is kept of each node.
	Most Most
	// Env are further variables of all programs.
	Env []string
	// Cannot has reasons by inject: injects that these programs cannot suffer. They
	// are left out, and a line says why.
	Cannot map[faults.Op]string
	// Factors is a directory in which programs find how slow they are meant to be: a
	// Slow writes its factor to the file with the node's name. Empty: a Slow limits
	// the node's processor time.
	Factors string
	// Output takes what the programs print; nil: standard output and error.
	Output *os.File
	// Event is called with each event of the record; it may be nil.
	Event func(record.ProgramEvent)
	// Dir is an existing directory for the record and the programs' output; empty: none is
	// kept.
	Dir string
	// Progress is called with progress in words; it may be nil.
	Progress func(string)
}

// Most limits what is kept of a node: 0 is no limit. What comes after it is dropped, and a
// line says so. Dropped marks do not count as progress.
type Most struct {
	Output, Marks, MarkBytes int
}

// Result is the result of a launch.
type Result struct {
	Exit int
	// Cause is the first failure in words; empty if there was none.
	Cause string
	// Limit is the limit that has ended the launch in words; empty if none has.
	Limit string
	// Missed are injects and late programs that did not happen, in words.
	Missed []string
	// Fidelity is the network's fidelity since the start of the scenario's clock.
	// It is nil if the clock never started; Unclocked gives the reason.
	Fidelity  *monitor.Record
	Unclocked string
}

// spec is the job of Run.
type spec struct {
	Network programs.Spec
	Machine Config
	Starts  map[string]start // by node
	Dir     string
	Zero    policy.Time // the scenario time at the start of its clock
	Colours [2]bool     // standard output and error are terminals
	Unfit   []string    // what happens to no program, in words
	Env     []string
	Factors string
	Most    Most
}

// start describes how to start the program of a node.
type start struct {
	Command []string
	Rank    *rank // nil: it is not a worker's
}

// note is a note of the job.
type note struct {
	programs.Told
	Result *Result `json:"result,omitempty"`
}

// signalCommand passes a signal on to the programs.
type signalCommand struct{ Signal syscall.Signal }

// patience is the number of signals that end the launch at once. The first is
// passed on to the programs, the second kills them.
const patience = 3

// Run starts the programs on the scenario's network and waits for their end. Output goes
// to standard output and error, line by line. Signals are passed on to the programs.
func Run(ctx context.Context, o Options) (result Result, err error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	job, err := o.job()
	if err != nil {
		return Result{}, err
	}
	hosts, network_, err := o.Form(ctx, o.Progress)
	if err != nil {
		return Result{}, err
	}
	defer func() { hosts.Close(err) }()
	job.Network = network_
	keep, err := programs.NewRecorder(o.Dir)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, keep.Close()) }()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	defer signal.Stop(signals)
	box, err := network.Start(context.Background(), hosts.Job(KindLaunch, job), sandbox.Config{Stdout: cmp.Or(o.Output, os.Stdout), Stderr: cmp.Or(o.Output, os.Stderr)})
	if err != nil {
		return Result{}, err
	}
	defer box.Close()
	type end struct {
		result *Result
		err    error
	}
	done := make(chan end, 1)
	go func() {
		r, err := o.listen(box, keep)
		done <- end{r, err}
	}()
	for seen := 0; ; {
		select {
		case sig := <-signals:
			if seen++; seen >= patience {
				return Result{Exit: 128 + int(sig.(syscall.Signal)), Cause: "interrupted " + fmt.Sprint(seen) + " times"}, nil
			}
			box.Send(signalCommand{sig.(syscall.Signal)})
		case e := <-done:
			if e.err != nil {
				return Result{}, e.err
			}
			return *e.result, nil
		}
	}
}

// listen handles the notes of the job until its result.
func (o *Options) listen(job *network.Job, keep *programs.Recorder) (*Result, error) {
	for {
		n, err := job.Next()
		if err != nil {
			return nil, err
		}
		if n.Stage != "" && !n.Quiet {
			o.Progress(n.Stage)
		}
		if n.Data == nil {
			continue
		}
		var told note
		if err := json.Unmarshal(n.Data, &told); err != nil {
			return nil, fmt.Errorf("internal error: parsing a message of the sandbox: %w", err)
		}
		if err := keep.Write(told.Event); err != nil {
			return nil, err
		}
		if told.Event != nil && o.Event != nil {
			o.Event(*told.Event)
		}
		if told.Result != nil {
			return told.Result, nil
		}
	}
}

// job checks the options and makes their job, without its network.
func (o *Options) job() (*spec, error) {
	if err := o.Network.Check(); err != nil {
		return nil, err
	}
	s := o.Scenario
	first := s.FirstJoin()
	j := &spec{
		Machine: Config{Grace: o.Grace, KeepGoing: o.KeepGoing, Together: o.Together, Unattended: o.Unattended, Clock: o.Clock, Limits: o.Limits},
		Starts:  map[string]start{}, Dir: o.Dir, Zero: first, Env: o.Env, Factors: o.Factors, Most: o.Most,
		Colours: [2]bool{o.Output == nil && coloured(os.Stdout), o.Output == nil && coloured(os.Stderr)},
	}
	if o.Grace < 0 {
		return nil, errs.Usagef("--grace %v: the time must not be below 0", o.Grace)
	}
	if o.MasterPort < 1 || o.MasterPort > 65535 {
		return nil, errs.Usagef("--master-port %d: the port must be between 1 and 65535", o.MasterPort)
	}
	if len(o.Central) > 0 {
		j.Machine.Programs = append(j.Machine.Programs, Program{Node: policy.CoordinatorNode, Central: true})
		j.Starts[policy.CoordinatorNode] = start{Command: o.Central}
	}
	workers := slices.SortedFunc(slices.Values(s.Workers), func(a, b resolved.Worker) int { return cmp.Compare(a.ID, b.ID) })
	master := s.Plan.Nodes[s.Plan.Index(workers[0].ID.Node())].Addr.Addr().String()
	var names []string
	for k, w := range workers {
		name := w.ID.Node()
		names = append(names, name)
		command := o.Command
		if own, is := o.PerNode[name]; is {
			command = own
		}
		if len(command) == 0 {
			return nil, errs.Usagef("there is no program for %s: write -- and a program after the scenario, or --per-node %s=CMD", name, name)
		}
		j.Machine.Programs = append(j.Machine.Programs, Program{
			Node: name, Late: w.JoinAt > first, JoinAt: s.ClockDuration(w.JoinAt) - s.ClockDuration(first),
		})
		j.Starts[name] = start{Command: command, Rank: &rank{Worker: int(w.ID), Rank: k, World: len(workers), Master: master, Port: o.MasterPort}}
	}
	for _, name := range slices.Sorted(maps.Keys(o.PerNode)) {
		if !slices.Contains(names, name) {
			return nil, errs.Usagef("--per-node %s=…: there is no worker %[1]s; the workers are %[2]s", name, strings.Join(names, " "))
		}
	}
	j.Machine.Injects, j.Unfit = injectsOf(s, len(o.Central) > 0, o.Cannot)
	return j, nil
}

// Missing is the first program that this machine does not have, as an error of
// package exec; nil if it has all. Other hosts may have other programs.
func (o *Options) Missing() error {
	if o.Hosts != nil {
		return nil
	}
	for _, command := range slices.Concat([][]string{o.Command, o.Central}, slices.Collect(maps.Values(o.PerNode))) {
		if len(command) == 0 {
			continue
		}
		// testbed is found in nodes from any directory.
		if _, err := exec.LookPath(command[0]); err != nil && command[0] != "testbed" {
			return err
		}
	}
	return nil
}

// coloured reports whether a file is a terminal that may show colours
// (no-color.org).
func coloured(f *os.File) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}
