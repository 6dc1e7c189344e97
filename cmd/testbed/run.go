package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"testbed/node/host"
	"testbed/runlog"
	"testbed/scenarios"
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
	cmd.Flags().StringVar(links, "links", host.LinksAuto, "who delays packets: netem (the kernel), user (a router process), or auto")
}

func qlogFlag(cmd *cobra.Command, qlog *bool) {
	cmd.Flags().BoolVar(qlog, "qlog", false, "record every QUIC connection in the run directory, for qvis; costs time and space")
}

func checkLinks(links string) error {
	if !slices.Contains([]string{host.LinksAuto, host.LinksNetem, host.LinksUser}, links) {
		return usageError{fmt.Errorf("--links %s: choose auto, netem or user", links)}
	}
	return nil
}

// load reads the scenario and applies the flags to it.
func (f *realFlags) load(name string) (*scenarios.Scenario, host.Options, error) {
	if err := checkLinks(f.links); err != nil {
		return nil, host.Options{}, err
	}
	source, err := scenarios.Find(name)
	if err != nil {
		return nil, host.Options{}, err
	}
	s, err := source.Parse()
	if err != nil {
		return nil, host.Options{}, err
	}
	switch {
	case f.timeScale < 0 || f.timeScale > 1e6:
		return nil, host.Options{}, usageError{fmt.Errorf("--time-scale %v must lie in (0, 1000000]", f.timeScale)}
	case f.timeScale > 0:
		if err := s.Rescale(f.timeScale); err != nil {
			return nil, host.Options{}, err
		}
		// The record keeps what was played.
		if source.Text, err = s.Text(); err != nil {
			return nil, host.Options{}, err
		}
		source.File = s.Name + ".json"
	}
	if err := host.Ready(); err != nil {
		return nil, host.Options{}, err
	}
	return s, host.Options{Scenario: s, File: source.File, Source: source.Text, Links: f.links, Command: os.Args}, nil
}

func runCommand() *cobra.Command {
	var flags realFlags
	var policyName string
	var qlog bool
	cmd := &cobra.Command{
		Use: "run SCENARIO --policy POLICY", Short: "Play a scenario on a real network", Args: oneScenario,
		ValidArgsFunction: completeScenario,
		Long: `Plays a scenario with real worker processes in network namespaces on shaped
links. Needs root or unprivileged user namespaces; testbed doctor tells whether
this machine has them. Nothing is left behind but the run directory. A short
check of the links comes first; testbed verify measures them thoroughly.

Exits with 3 if the run stayed incomplete, if workers ended with different
bytes, or if the emulation was not what it claimed to be (fidelity invalid).`,
	}
	policyFlag(cmd, &policyName)
	flags.declare(cmd)
	qlogFlag(cmd, &qlog)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, o, err := flags.load(args[0])
		if err != nil {
			return err
		}
		if _, err := s.Machine(policyName); err != nil {
			return err
		}
		o.Policy, o.Dir, o.Qlog = policyName, flags.out, qlog
		if o.Dir == "" {
			o.Dir = host.DefaultDir(s.Name, policyName)
		}
		show := newProgress(cmd.ErrOrStderr(), s, policyName)
		o.Progress = show.step
		sum, err := host.Run(cmd.Context(), o)
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

// validity is errInvalid for a result that must not be relied on.
func validity(sums ...runlog.Summary) error {
	for _, s := range sums {
		diverged := s.BitIdentical != nil && !*s.BitIdentical
		if !s.Complete || diverged || s.Fidelity.Verdict == "invalid" {
			return errInvalid
		}
	}
	return nil
}
