package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"testbed/node/host"
	"testbed/node/host/emulation"
	"testbed/node/host/realrun"
	"testbed/runlog"
	"testbed/scenarios"
	"testbed/shaping/fidelity"
)

// realFlags are the flags of commands that run on a real network.
type realFlags struct {
	links     string
	timeScale float64
	out       string
	json      bool
}

func (f *realFlags) declare(cmd *cobra.Command) {
	linksFlag(cmd, &f.links)
	cmd.Flags().Float64Var(&f.timeScale, "time-scale", 0, "real time divided by scenario time; the scenario's own if 0")
	cmd.Flags().StringVar(&f.out, "out", "", "directory for the record (default runs/SCENARIO-…)")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the result as JSON")
}

func linksFlag(cmd *cobra.Command, links *string) {
	cmd.Flags().StringVar(links, "links", emulation.LinksAuto, "who delays packets: netem (the kernel), user (a router process), or auto")
}

func qlogFlag(cmd *cobra.Command, qlog *bool) {
	cmd.Flags().BoolVar(qlog, "qlog", false, "record every QUIC connection in the run directory, for qvis; costs time and space")
}

func checkLinks(links string) error {
	if !slices.Contains([]string{emulation.LinksAuto, emulation.LinksNetem, emulation.LinksUser}, links) {
		return usageError{fmt.Errorf("--links %s: choose auto, netem or user", links)}
	}
	return nil
}

// load reads the scenario and applies the flags to it.
func (f *realFlags) load(name string) (*scenarios.Scenario, realrun.Options, error) {
	if err := checkLinks(f.links); err != nil {
		return nil, realrun.Options{}, err
	}
	source, err := scenarios.Find(name)
	if err != nil {
		return nil, realrun.Options{}, err
	}
	s, err := source.Parse()
	if err != nil {
		return nil, realrun.Options{}, err
	}
	switch {
	case f.timeScale < 0 || f.timeScale > 1e6:
		return nil, realrun.Options{}, usageError{fmt.Errorf("--time-scale %v must lie in (0, 1000000]", f.timeScale)}
	case f.timeScale > 0:
		if err := s.Rescale(f.timeScale); err != nil {
			return nil, realrun.Options{}, err
		}
		// The record keeps what was played.
		if source.Text, err = s.Text(); err != nil {
			return nil, realrun.Options{}, err
		}
		source.File = s.Name + ".json"
	}
	if err := host.Ready(); err != nil {
		return nil, realrun.Options{}, err
	}
	return s, realrun.Options{Scenario: s, File: source.File, Text: source.Text, Links: f.links, Command: os.Args}, nil
}

func runCommand() *cobra.Command {
	var flags realFlags
	var policyName, resume string
	var qlog bool
	cmd := &cobra.Command{
		Use: "run SCENARIO --policy POLICY", Short: "Play a scenario on a real network",
		Args: func(cmd *cobra.Command, args []string) error {
			if resume == "" {
				return oneScenario(cmd, args)
			}
			return noArguments(cmd, args)
		},
		ValidArgsFunction: completeScenario,
		Long: `Plays a scenario with real worker processes in network namespaces on shaped
links. Needs root or unprivileged user namespaces; testbed doctor tells whether
this machine has them. Nothing is left behind but the run directory. A short
check of the links comes first; testbed verify measures them thoroughly.

A run that was killed as a whole goes on with testbed run --resume DIR, DIR
being its run directory, from its last checkpoint.

Exits with 3 if the run stayed incomplete, if workers ended with different
bytes, or if the emulation was not what it claimed to be (fidelity invalid).`,
	}
	policyFlag(cmd, &policyName)
	needsPolicy := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if resume != "" {
			return nil // it goes on under the same
		}
		return needsPolicy(cmd, args)
	}
	flags.declare(cmd)
	qlogFlag(cmd, &qlog)
	cmd.Flags().StringVar(&resume, "resume", "", "go on with the run in this directory, which was killed; takes no scenario")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if resume != "" {
			return resumeRun(cmd, resume, flags.json)
		}
		s, o, err := flags.load(args[0])
		if err != nil {
			return err
		}
		if _, err := s.Machine(policyName); err != nil {
			return err
		}
		o.Policy, o.Dir, o.Qlog = policyName, flags.out, qlog
		if o.Dir == "" {
			o.Dir = realrun.DefaultDir(s.Name, policyName)
		}
		show := newProgress(cmd.ErrOrStderr(), s, policyName)
		o.Progress = show.step
		sum, err := realrun.Play(cmd.Context(), o)
		show.end()
		if err != nil {
			if sum.Dir != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "the partial record is in %s\n", sum.Dir)
			}
			return err
		}
		if err := printSummary(cmd, s, sum, flags.json); err != nil {
			return err
		}
		return validity(sum)
	}
	return cmd
}

func resumeRun(cmd *cobra.Command, dir string, json bool) error {
	var other error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != "resume" && f.Name != "json" {
			other = usageError{fmt.Errorf("--%s: a run goes on as it began; --resume takes only --json beside it", f.Name)}
		}
	})
	if other != nil {
		return other
	}
	if err := host.Ready(); err != nil {
		return err
	}
	s, sum, err := realrun.Resume(cmd.Context(), dir, func(p realrun.Progress) {
		if p.Stage != "" {
			fmt.Fprintln(cmd.ErrOrStderr(), p.Stage)
		}
	})
	if err != nil {
		return err
	}
	if err := printSummary(cmd, s, sum, json); err != nil {
		return err
	}
	return validity(sum)
}

// validity is errInvalid for a result that must not be relied on.
func validity(sums ...runlog.Summary) error {
	for _, s := range sums {
		diverged := s.BitIdentical != nil && !*s.BitIdentical
		if !s.Complete || diverged || s.Fidelity.Verdict == fidelity.Invalid {
			return errInvalid
		}
	}
	return nil
}
