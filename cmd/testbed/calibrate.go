package main

import (
	"github.com/spf13/cobra"

	"testbed/experiment"
	"testbed/scenarios"
	"testbed/scenarios/convert"
)

func calibrateCommand() *cobra.Command {
	var flags realFlags
	var o experiment.Calibration
	var only []string
	var format convert.Format
	cmd := &cobra.Command{
		Use: "calibrate [SCENARIO...]", Short: "Measure what this machine adds to the network, for the simulator",
		ValidArgsFunction: completeScenario,
		Long: `Runs short experiments on the emulated network (payloads, numbers of workers,
rates and delays of links, jitter, joiners, sidelined workers, a crash) and fits
what the links do not explain: the lateness of timers, the cost of a message, a
hop, a byte, a connection, a state fetch; with 95 % intervals. It takes about
two minutes. Let the machine do nothing else meanwhile: rounds in which the
emulation was not valid are left out, and runs that were invalid are made again.

With a SCENARIO, that is run instead, under --policy. What its runs cannot tell
apart is said and left at the default; --repeat tells more.

Leaves calibration.json, for testbed simulate and compare --calibration, and of
every SCENARIO a copy with base_latency, bandwidth_bpus and state_bytes as
churn's network has to have them on this machine and the scenario's links: in
the format of its own file or, with --format churn, with churn's fields only
(see testbed convert --help). These are whole numbers; what that leaves of a
round's time is printed beside them, and said on stderr above 1 %.

--refit DIR makes no runs and fits those in DIR, of whatever scenario, as
testbed run, compare and calibrate leave them. Further directories may follow.`,
	}
	linksFlag(cmd, &flags.links)
	cmd.Flags().StringVar(&o.Dir, "out", "", "directory for the result and the records (default runs/calibrate-…, or DIR of --refit)")
	cmd.Flags().StringSliceVar(&o.Refit, "refit", nil, "make no runs; fit those in this directory")
	cmd.Flags().StringSliceVar(&only, "only", nil, "run these experiments only; what they do not tell stays 0")
	cmd.Flags().StringVar(&o.Policy, "policy", scenarios.Baseline, "policy under which to run SCENARIO")
	cmd.Flags().Var(&format, "format", "format of calibrated scenarios: churn, json or yaml (default: that of the scenario's file)")
	cmd.Flags().IntVar(&o.Repeat, "repeat", 1, "how often to make each run")
	cmd.Flags().IntVar(&o.Retries, "retries", 2, "how often to make a run again whose emulation was invalid")
	cmd.Flags().BoolVar(&flags.json, "json", false, "print the calibration as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := experiment.CheckLinks(flags.links); err != nil {
			return err
		}
		if err := o.Plan(args, only, format); err != nil {
			return err
		}
		for _, s := range o.Rewrite {
			warn(cmd, s.Scenario.Name, s.Lost)
		}
		if len(o.Refit) == 0 {
			if err := ready(); err != nil {
				return err
			}
			o.Real = flags.player(cmd, false)
		}
		c, files, err := experiment.Calibrate(cmd.Context(), o)
		if err != nil {
			return err
		}
		warn(cmd, files[0], c.Warnings())
		for _, p := range c.Scenarios {
			warn(cmd, p.Scenario, p.Warnings())
		}
		if flags.json {
			return printJSON(cmd, c)
		}
		return experiment.WriteCalibration(cmd.OutOrStdout(), c, files)
	}
	return cmd
}
