package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"testbed/experiment"
	"testbed/report"
)

func compareCommand() *cobra.Command {
	var flags realFlags
	var repeat int
	var calibrated string
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
	flags.declareQlog(cmd)
	cmd.Flags().IntVar(&repeat, "repeat", 1, "how often to run each policy on the real network")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if repeat < 1 {
			return usageError{fmt.Errorf("--repeat %d must be at least 1", repeat)}
		}
		o := experiment.Comparison{Repeat: repeat, Real: flags.player(cmd, true)}
		if o.Run, err = flags.load(args[0]); err != nil {
			return err
		}
		if o.Churn, err = simulator(experiment.NetworkChurn, calibrated); err != nil {
			return err
		}
		if o.Links, err = simulator(experiment.NetworkLinks, calibrated); err != nil {
			return err
		}
		o.Run.Dir = flags.dir(o.Run.Scenario.Name, "compare")
		c, failed := experiment.Compare(cmd.Context(), o)
		if failed != nil && !invalid(failed) {
			if c != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "what there is of the record is in %s\n", c.Dir)
			}
			return failed
		}
		if flags.json {
			err = printJSON(cmd, c)
		} else {
			err = report.WriteComparison(cmd.OutOrStdout(), o.Run.Scenario, c)
		}
		return errors.Join(err, failed)
	}
	return cmd
}
