package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"testbed/node/host/realrun"
	"testbed/report"
	"testbed/runlog"
	"testbed/scenarios"
)

func compareCommand() *cobra.Command {
	var flags realFlags
	var repeat int
	var calibrated string
	var qlog bool
	cmd := &cobra.Command{
		Use: "compare SCENARIO", Short: "Both policies, simulated and on a real network, side by side", Args: oneScenario,
		ValidArgsFunction: completeScenario,
		Long: `Simulates the scenario under both policies, runs it under both on a real
network, and shows the results side by side (the simulations with churn's
network and on the planned links, see testbed simulate --help): wall-clock, speed-up, and who
was sidelined and evicted in which round and why. The speed-up is the
baseline's wall-clock divided by the straggler policy's.

With --repeat, both policies are simulated and run with the scenario's seed, the
next one, and so on. From three pairs on, a bootstrap interval says how far the
speed-up and the simulator's error can be trusted; if that of the speed-up holds
1, no difference has been shown.

Exits with 3 if a real run is not valid (see testbed run --help).`,
	}
	flags.declare(cmd)
	calibrationFlag(cmd, &calibrated)
	qlogFlag(cmd, &qlog)
	cmd.Flags().IntVar(&repeat, "repeat", 1, "how often to run each policy on the real network")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if repeat < 1 {
			return usageError{fmt.Errorf("--repeat %d must be at least 1", repeat)}
		}
		s, o, err := flags.load(args[0])
		if err != nil {
			return err
		}
		players := map[string]player{}
		for _, network := range []string{networkChurn, networkLinks} {
			if players[network], err = simulator(network, calibrated); err != nil {
				return err
			}
		}
		o.Qlog = qlog
		dir := flags.out
		if dir == "" {
			dir = realrun.DefaultDir(s.Name, "compare")
		}
		root, err := runlog.CreateDir(dir)
		if err != nil {
			return err
		}
		c := &report.Comparison{Scenario: s.Name, Dir: string(root)}
		first := map[string]*report.Pair{networkChurn: &c.Sim, networkLinks: &c.SimLinks}
		for name, play := range players {
			if *first[name], err = simulateBoth(o, name, play, root, ""); err != nil {
				return err
			}
		}
		var all []runlog.Summary
		for n := range repeat {
			suffix := ""
			if repeat > 1 {
				suffix = fmt.Sprintf("-%d", n+1)
			}
			if n > 0 {
				if err := reseed(&o, s, s.Seed+uint64(n)); err != nil {
					return err
				}
				others := map[string]*[]report.Pair{networkChurn: &c.SimRepeats, networkLinks: &c.SimLinksRepeats}
				for name, play := range players {
					pair, err := simulateBoth(o, name, play, root, suffix)
					if err != nil {
						return err
					}
					*others[name] = append(*others[name], pair)
				}
			}
			pair, err := runBoth(cmd, o, root, suffix)
			if errors.Is(err, errors.ErrUnsupported) {
				return errors.Join(err, os.RemoveAll(string(root))) // nothing has run
			}
			if err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "what there is of the record is in %s\n", root)
				return err
			}
			all = append(all, pair[scenarios.Baseline], pair[scenarios.Straggler])
			if n == 0 {
				c.Real = pair
			} else {
				c.Repeats = append(c.Repeats, pair)
			}
		}
		c.Conclude()
		if err := root.WriteJSON("comparison.json", c); err != nil {
			return err
		}
		if flags.json {
			err = printJSON(cmd, c)
		} else {
			err = report.WriteComparison(cmd.OutOrStdout(), s, c)
		}
		if err != nil {
			return err
		}
		return validity(all...)
	}
	return cmd
}

// reseed has the next runs play the scenario with another seed.
func reseed(o *realrun.Options, s *scenarios.Scenario, seed uint64) error {
	changed := *s
	changed.Seed = seed
	text, err := changed.Text()
	o.Scenario, o.File, o.Text = &changed, s.Name+".json", text
	return err
}

// simulateBoth simulates the scenario under both policies with a model of the
// network, each into a run directory of its own.
func simulateBoth(o realrun.Options, network string, play player, root runlog.Dir, suffix string) (report.Pair, error) {
	prefix := "sim-"
	if network != networkChurn {
		prefix += network + "-"
	}
	pair := report.Pair{}
	for _, name := range scenarios.PolicyNames {
		dir, err := runlog.CreateDir(root.Path(prefix + name + suffix))
		if err != nil {
			return nil, err
		}
		sum, err := simulate(play, o.Scenario, name, dir.Path(runlog.EventsFile))
		if err != nil {
			return nil, err
		}
		sum.Dir = string(dir)
		if err := errors.Join(dir.WriteScenario(o.File, o.Text, o.Scenario.Traces), dir.WriteJSON(runlog.SummaryFile, sum)); err != nil {
			return nil, err
		}
		pair[name] = sum
	}
	return pair, nil
}

// runBoth runs the scenario for real under both policies.
func runBoth(cmd *cobra.Command, o realrun.Options, root runlog.Dir, suffix string) (report.Pair, error) {
	pair := report.Pair{}
	for _, name := range scenarios.PolicyNames {
		o.Policy, o.Dir = name, root.Path("real-"+name+suffix)
		show := newProgress(cmd.ErrOrStderr(), o.Scenario, name)
		o.Progress = show.step
		sum, err := realrun.Play(cmd.Context(), o)
		show.end()
		if err != nil {
			return nil, err
		}
		pair[name] = sum
	}
	return pair, nil
}
