package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"testbed/calibrate"
	"testbed/experiment"
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

Leaves calibration.json, for testbed simulate and compare --calibration, and of
every SCENARIO a copy with base_latency, bandwidth_bpus and state_bytes as
churn's network has to have them on this machine and the scenario's links: in
the format of its own file or, with --format churn, with churn's fields only
(see testbed convert --help). These are whole numbers; what that leaves of a
round's time is printed beside them, and said on stderr above 1 %.

--refit DIR fits the runs of an earlier calibration again.`,
	}
	linksFlag(cmd, &flags.links)
	cmd.Flags().StringVar(&flags.out, "out", "", "directory for the result and the records (default runs/calibrate-…)")
	cmd.Flags().StringVar(&o.Dir, "refit", "", "make no runs; fit those in this directory")
	cmd.Flags().StringSliceVar(&only, "only", nil, "run these experiments only; what they do not tell stays 0")
	cmd.Flags().Var(&format, "format", "format of calibrated scenarios: churn, json or yaml (default: that of the scenario's file)")
	cmd.Flags().IntVar(&o.Repeat, "repeat", 1, "how often to run each experiment")
	cmd.Flags().IntVar(&o.Retries, "retries", 2, "how often to run an experiment again whose emulation was invalid")
	cmd.Flags().BoolVar(&flags.json, "json", false, "print the calibration as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if o.Repeat < 1 || o.Retries < 0 {
			return usageError{errors.New("--repeat must be at least 1 and --retries at least 0")}
		}
		if err := experiment.CheckLinks(flags.links); err != nil {
			return err
		}
		if o.Rewrite, err = experiment.ReadSources(args, format); err != nil {
			return err
		}
		for _, s := range o.Rewrite {
			warn(cmd, s.Scenario.Name, s.Lost)
		}
		if o.Experiments, err = calibrate.Named(only); err != nil {
			return usageError{fmt.Errorf("--only: %w", err)}
		}
		if o.Dir == "" {
			if err := ready(); err != nil {
				return err
			}
			o.Dir, o.Real = flags.dir("calibrate", "machine"), flags.player(cmd, false)
		}
		c, files, err := experiment.Calibrate(cmd.Context(), o)
		if err != nil {
			return err
		}
		for _, p := range c.Scenarios {
			warn(cmd, p.Scenario, p.Warnings())
		}
		if flags.json {
			return printJSON(cmd, c)
		}
		err = c.WriteText(cmd.OutOrStdout())
		fmt.Fprintf(cmd.OutOrStdout(), "\ncalibration: %s\n", files[0])
		for _, file := range files[1:] {
			fmt.Fprintf(cmd.OutOrStdout(), "calibrated scenario: %s\n", file)
		}
		return err
	}
	return cmd
}
