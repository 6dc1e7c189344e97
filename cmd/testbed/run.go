package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"testbed/experiment"
	"testbed/internal/errs"
	"testbed/record"
	"testbed/report"
	"testbed/scenarios"
	"testbed/stacks"
)

// realFlags are the flags of commands that run on a real network.
type realFlags struct {
	links     string
	timeScale float64
	dilation  float64
	out       string
	json      bool
	qlog      bool
	hosts     string
	place     string
}

func (f *realFlags) declare(cmd *cobra.Command) {
	linksFlag(cmd, &f.links)
	cmd.Flags().Float64Var(&f.timeScale, "time-scale", 0, "real time divided by scenario time (default: the scenario's)")
	cmd.Flags().Float64Var(&f.dilation, "dilation", 0, "factor by which the whole emulation runs slower than real time (default: the scenario's)")
	cmd.Flags().StringVar(&f.out, "out", "", "directory for the record (default runs/SCENARIO-…)")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the result as JSON")
	cmd.Flags().StringVar(&f.hosts, "hosts", "", "play on several hosts: N@ADDRESS, slurm, slurm:N or kubernetes; see docs/hosts.md")
	cmd.Flags().StringVar(&f.place, "place", "", "with --hosts, the workers of each host, as w0-w3/w4,w5/w6, the leader first (default: chosen by processors and delays)")
}

func (f *realFlags) declareQlog(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.qlog, "qlog", false, "record every QUIC connection in the run directory, for qvis; costs time and space")
}

// dir is the directory for the record.
func (f *realFlags) dir(scenario, what string) (string, error) {
	if f.out != "" {
		return f.out, nil
	}
	return experiment.DefaultDir(scenario, what)
}

// load reads the scenario, applies the flags to it, and checks that it can be
// played here.
func (f *realFlags) load(name string) (experiment.Run, error) {
	r, err := f.read(name)
	if err != nil {
		return r, err
	}
	return r, ready()
}

// read reads the scenario and applies the flags to it.
func (f *realFlags) read(name string) (experiment.Run, error) {
	fail := func(err error) (experiment.Run, error) { return experiment.Run{}, err }
	if err := experiment.CheckLinks(f.links); err != nil {
		return fail(err)
	}
	source, err := scenarios.Find(name)
	if err != nil {
		return fail(err)
	}
	r := experiment.Run{File: source.File, Source: source.Text}
	if r.Scenario, err = source.Parse(); err != nil {
		return fail(err)
	}
	switch {
	case f.timeScale < 0 || f.timeScale > 1e6:
		return fail(errs.Usagef("--time-scale %v must be above 0, and at most 1000000", f.timeScale))
	case f.timeScale > 0:
		if r, err = r.Rescaled(f.timeScale); err != nil {
			return fail(err)
		}
	}
	if f.dilation != 0 {
		return r.Dilated(f.dilation)
	}
	return r, nil
}

// player plays runs on a real network, and shows their progress if show is set.
func (f *realFlags) player(cmd *cobra.Command, show bool) experiment.Real {
	return func(ctx context.Context, r experiment.Run) (record.Summary, error) {
		if r.Title != "" && !progressAsJSON(cmd) {
			fmt.Fprintln(cmd.ErrOrStderr(), r.Title)
		}
		step := func(string, *record.Event) {}
		if show {
			p := newProgress(cmd, r.Scenario, r.Policy)
			defer p.end()
			step = p.step
		}
		return playReal(ctx, r, cmp.Or(r.Links, f.links), f, step)
	}
}

func runCommand() *cobra.Command {
	var flags realFlags
	var policyName, resume, stack string
	var set []string
	cmd := &cobra.Command{
		Use: "run SCENARIO (--policy POLICY | --stack STACK)", Short: "Play a scenario on a real network under one policy",
		Args: func(cmd *cobra.Command, args []string) error {
			if resume == "" {
				return oneScenario(cmd, args)
			}
			return noArguments(cmd, args)
		},
		ValidArgsFunction: completeScenario,
		Long: `Plays a scenario with real worker processes in network namespaces on shaped
links. Needs root or unprivileged user namespaces, which testbed doctor checks. A
run leaves its run directory behind and nothing else. It begins with a short
check of the links; testbed verify measures them thoroughly.

testbed run --resume DIR continues a killed run from the last checkpoint in its
run directory DIR. With --hosts the run continues on these hosts, even if their
number differs from before.

With --stack a training system of somebody else plays the scenario in place of a
policy: see testbed stacks. A stack's options follow its name, as in
--stack gloo:timeout_s=5. Exits with 4 if the stack is not installed.

Exits with 3 if the run is incomplete, if workers ended with different bytes, or
if the emulation did not match its plan (fidelity invalid).`,
	}
	policyFlag(cmd, &policyName)
	needsPolicy := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if policyName != "" && stack != "" {
			return errs.Usagef("--policy and --stack cannot be combined, because a stack decides itself which workers take part; leave one of them out")
		}
		if cmd.Flags().Changed("stack") && stack == "" {
			return errs.Usagef("--stack is empty: name a stack, such as --stack gloo; testbed stacks lists them")
		}
		if resume != "" || stack != "" {
			return nil // it goes on under the same limit; a stack has policies of its own
		}
		return needsPolicy(cmd, args)
	}
	flags.declare(cmd)
	flags.declareQlog(cmd)
	setFlag(cmd, &set)
	cmd.Flags().StringVar(&stack, "stack", "", "play this stack, or the one in this folder, in place of a policy; see testbed stacks")
	cmd.Flags().StringVar(&resume, "resume", "", "continue the killed run in this directory; takes no scenario")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if resume != "" {
			return resumeRun(cmd, resume, &flags)
		}
		r, err := flags.load(args[0])
		if err != nil {
			return err
		}
		if r, err = changedRun(r, set); err != nil {
			return err
		}
		if stack != "" {
			_, err = stacks.Choose(stack)
			r.Policy = stacks.Label(stack)
		} else {
			_, err = r.Scenario.Machine(policyName)
			r.Policy = policyName
		}
		if err != nil {
			return err
		}
		if !progressAsJSON(cmd) {
			warnOfRotation(cmd, r.Scenario, r.Policy)
		}
		if r.Dir, err = flags.dir(r.Scenario.Name, r.Policy); err != nil {
			return err
		}
		sum, err := flags.player(cmd, true)(cmd.Context(), r)
		if err != nil {
			if sum.Dir == "" && flags.out == "" {
				_ = os.Remove(r.Dir) // if it is empty, nothing has run
			}
			if sum.Dir != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "the record of the unfinished run is in %s\n", sum.Dir)
			}
			return err
		}
		return errors.Join(printSummary(cmd, r.Scenario, sum, flags.json), experiment.Usable(sum))
	}
	return cmd
}

func resumeRun(cmd *cobra.Command, dir string, flags *realFlags) error {
	var other error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != "resume" && f.Name != "json" && f.Name != "hosts" {
			other = errs.Usagef("--%s cannot be combined with --resume, because a resumed run keeps its settings; leave --%[1]s out (only --json and --hosts are allowed)", f.Name)
		}
	})
	if other != nil {
		return other
	}
	if err := ready(); err != nil {
		return err
	}
	s, sum, err := resumeReal(cmd.Context(), dir, flags.hosts, func(stage string, _ *record.Event) {
		if stage != "" {
			fmt.Fprintln(cmd.ErrOrStderr(), stage)
		}
	})
	if err != nil {
		return err
	}
	return errors.Join(printSummary(cmd, s, sum, flags.json), experiment.Usable(sum))
}

func printSummary(cmd *cobra.Command, s *scenarios.Scenario, sum record.Summary, asJSON bool) error {
	if asJSON {
		return printJSON(cmd, sum)
	}
	return report.WriteSummary(cmd.OutOrStdout(), s, sum)
}
