//go:build !nohost

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"testbed/emulation"
	"testbed/emulation/bench"
	"testbed/emulation/cluster"
	"testbed/emulation/network"
	"testbed/emulation/stackrun"
	"testbed/experiment"
	"testbed/internal/errs"
	"testbed/record"
	"testbed/scenarios"
	"testbed/scenarios/resolved"
	"testbed/stacks"
)

// startedAgain runs this process's program if a real run has started the
// process, and returns its exit code.
func startedAgain(args []string) (code int, is bool) {
	var err error
	switch {
	case len(args) < 2:
		return 0, false
	case args[1] == emulation.VerbInside:
		err = emulation.RunInside()
	case args[1] == emulation.VerbNode:
		err = emulation.RunNode()
	default:
		return 0, false
	}
	return quiet(err), true
}

// quiet is the exit code of the verbs that report to the process that started
// them.
func quiet(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitError
	}
	return 0
}

// ready reports whether real runs are possible on this machine, on these links.
func ready(links ...string) error { return emulation.Ready(links...) }

// loadResolved reads a scenario for its network alone.
func loadResolved(name string) (*resolved.Scenario, error) {
	s, err := scenarios.Load(name)
	if err != nil {
		return nil, err
	}
	return s.Resolve("")
}

// measureLoad compares a scenario's reductions with this machine's capacity.
func measureLoad(ctx context.Context, s *scenarios.Scenario) (*scenarios.MachineLoad, error) {
	if err := ready(); err != nil {
		return nil, err
	}
	r, err := s.Resolve("")
	if err != nil {
		return nil, err
	}
	planned, carried, err := bench.Load(ctx, r)
	if err != nil {
		return nil, err
	}
	return scenarios.NewMachineLoad(planned, carried), nil
}

// playReal plays a run on a real network.
func playReal(ctx context.Context, r experiment.Run, links string, f *realFlags, step func(stage string, e *record.Event)) (record.Summary, error) {
	if text, is := stacks.Labelled(r.Policy); is {
		return playStack(ctx, r, text, links, f, step)
	}
	over, err := cluster.ParseRequest(f.hosts)
	if err != nil {
		return record.Summary{}, err
	}
	asked, err := experiment.AskTrainer(ctx, r.Scenario)
	if err != nil {
		return record.Summary{}, err
	}
	sum, err := emulation.Play(ctx, emulation.Options{
		Scenario: asked, File: r.File, Text: r.Source, Policy: r.Policy, Dir: r.Dir, Links: links, Qlog: f.qlog, Hosts: over, Place: f.place,
		Command: os.Args, Progress: func(p emulation.Progress) { step(p.Stage, p.Event) },
	})
	return sum, orLost(err, r.Policy, r.Scenario)
}

// playStack plays a run with a stack.
func playStack(ctx context.Context, r experiment.Run, text, links string, f *realFlags, step func(stage string, e *record.Event)) (record.Summary, error) {
	if f.hosts != "" || f.place != "" || f.qlog {
		return record.Summary{}, errs.Usagef("--hosts, --place and --qlog cannot be combined with --stack, because stacks run on one host and do not use QUIC; leave these flags out")
	}
	stack, err := stacks.Choose(text)
	if err != nil {
		return record.Summary{}, err
	}
	return stackrun.Play(ctx, stackrun.Options{
		Scenario: r.Scenario, File: r.File, Text: r.Source, Stack: stack, Label: r.Policy, Links: links, Command: os.Args, Dir: r.Dir,
		Progress: func(p emulation.Progress) { step(p.Stage, p.Event) },
	})
}

// orLost turns the loss of a host into an invalid run.
func orLost(err error, policy string, s *scenarios.Scenario) error {
	if lost, ok := errors.AsType[*network.LostError](err); ok {
		return &experiment.InvalidError{Policy: policy, Seed: s.Seed, Reason: lost.Why}
	}
	return err
}

// resumeReal resumes a run that was killed.
func resumeReal(ctx context.Context, dir, over string, step func(stage string, e *record.Event)) (*scenarios.Scenario, record.Summary, error) {
	asked, err := cluster.ParseRequest(over)
	if err != nil {
		return nil, record.Summary{}, err
	}
	s, sum, err := emulation.Resume(ctx, emulation.Options{Dir: dir, Hosts: asked, Command: os.Args, Progress: func(p emulation.Progress) { step(p.Stage, p.Event) }})
	return s, sum, orLost(err, sum.Policy, s)
}
