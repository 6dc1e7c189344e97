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
	var details bool
	var format convert.Format
	cmd := &cobra.Command{
		Use: "calibrate [SCENARIO...]", Short: "Measure the delays that this machine adds, and fit the simulator to them",
		ValidArgsFunction: completeScenario,
		Long: `Plays short experiments on the emulated network. They vary the payload, the number
of workers, and the rates, delays and jitter of links. In some of them workers join,
are sidelined or crash. Then fits the times that the links do not explain: the
lateness of timers, the cost of a message, a hop, a byte, a connection and a state
fetch, with 95 % intervals. This takes about two minutes. Leave the machine idle
meanwhile. Rounds whose emulation was not valid are left out, and invalid runs are
repeated.

With a SCENARIO, its runs under --policy replace the experiments. Costs that
these runs cannot separate are named and stay at their defaults. More runs
(--repeat) can separate them.

At the end prints the name of the file and three lines: the delays that the machine
adds, the error of the simulator on held-out runs (each run in turn, predicted from
the other runs), and the command that uses the calibration. -v prints all tables.

Writes calibration.json, for testbed simulate and compare --calibration. The
result of all experiments is also kept as the latest calibration of this machine,
for --calibration auto. For each SCENARIO the command also writes a copy whose
base_latency, bandwidth_bpus and state_bytes make churn's network match this
machine and the scenario's links.
The copy has the format of the scenario's file, or with --format churn only
churn's fields (see testbed convert --help). These fields are whole numbers; the
rounding error of a round's time is printed, and is a warning above 1 %.

--refit DIR plays nothing. It fits the runs that testbed run, compare or calibrate
has written to DIR. Further directories may follow.`,
	}
	linksFlag(cmd, &flags.links)
	cmd.Flags().StringVar(&o.Dir, "out", "", "directory for the result and the records (default runs/calibrate-…, or DIR of --refit)")
	cmd.Flags().StringSliceVar(&o.Refit, "refit", nil, "play nothing; fit the runs in this directory")
	cmd.Flags().StringSliceVar(&only, "only", nil, "run only these experiments; costs that they do not determine keep their defaults")
	cmd.Flags().StringVar(&o.Policy, "policy", scenarios.Baseline, "policy under which to run SCENARIO")
	cmd.Flags().Var(&format, "format", "format of calibrated scenarios: churn, json or yaml (default: that of the scenario's file)")
	cmd.Flags().IntVar(&o.Repeat, "repeat", 1, "how often to make each run")
	cmd.Flags().IntVar(&o.Retries, "retries", 2, "how often to repeat a run whose emulation was invalid")
	cmd.Flags().BoolVar(&flags.json, "json", false, "print the calibration as JSON")
	cmd.Flags().BoolVarP(&details, "verbose", "v", false, "also print all costs, residuals and runs")
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
		return experiment.WriteCalibration(cmd.OutOrStdout(), c, files, o.Whole, details)
	}
	return cmd
}
