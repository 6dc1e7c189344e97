package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"testbed/calibrate"
	"testbed/runlog"
	"testbed/scenarios"
	"testbed/sim"
)

func simulateCommand() *cobra.Command {
	var policyName, trace, network, calibrated string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "simulate SCENARIO --policy POLICY", Short: "Play a scenario in the simulator", Args: oneScenario,
		ValidArgsFunction: completeScenario,
		Long: `Plays a scenario in the deterministic simulator. The same scenario and seed give
the same trace, byte for byte. Times are in microseconds of scenario time.

The network is churn's (--network churn): a message takes base_latency, a
transfer base_latency + state_bytes / bandwidth_bpus. Or it is the links of the
scenario's plan (--network links), as a real run would have them: every message
takes the one-way delay of its path, and reductions and state fetches what they
need at the planned rates. With --calibration, what this machine adds to that
counts too, and churn's network gets the prices that go with it.`,
	}
	policyFlag(cmd, &policyName)
	cmd.Flags().StringVar(&network, "network", networkChurn, "what messages and transfers take: churn or links")
	calibrationFlag(cmd, &calibrated)
	cmd.Flags().StringVar(&trace, "trace", "", "write every event to this file, as JSON lines")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := scenarios.Load(args[0])
		if err != nil {
			return err
		}
		if _, err := s.Machine(policyName); err != nil {
			return err
		}
		play, err := simulator(network, calibrated)
		if err != nil {
			return err
		}
		sum, err := simulate(play, s, policyName, trace)
		if err != nil {
			return err
		}
		return printSummary(cmd, s, sum, asJSON)
	}
	return cmd
}

func policyFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "policy", "", "baseline or straggler")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if *name == "" {
			return usageError{fmt.Errorf("name the policy: --policy %s or --policy %s", scenarios.Baseline, scenarios.Straggler)}
		}
		return nil
	}
	err := cmd.RegisterFlagCompletionFunc("policy", cobra.FixedCompletions(scenarios.PolicyNames, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the flag was declared just above
	}
}

// The simulator's models of the network.
const (
	networkChurn = "churn"
	networkLinks = "links"
)

// player simulates a scenario with one of the models.
type player func(s *scenarios.Scenario, policyName string, record func(runlog.Event)) (runlog.Summary, error)

func calibrationFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "calibration", "", "what the machine adds, as testbed calibrate has measured it (its calibration.json)")
}

// simulator returns the player with the model of that name, and with a
// calibration if its file is given.
func simulator(network, calibrated string) (player, error) {
	if network != networkChurn && network != networkLinks {
		return nil, usageError{fmt.Errorf("--network %s: choose churn or links", network)}
	}
	c := &calibrate.Calibration{}
	if calibrated != "" {
		var err error
		if c, err = calibrate.Load(calibrated); err != nil {
			return nil, usageError{err}
		}
	}
	return func(s *scenarios.Scenario, policyName string, record func(runlog.Event)) (runlog.Summary, error) {
		switch {
		case network == networkLinks:
			return sim.RunLinks(s, policyName, c.SimCosts(), record)
		case calibrated != "":
			priced, err := c.Price(s)
			if err != nil {
				return runlog.Summary{}, err
			}
			s = priced
		}
		return sim.Run(s, policyName, record)
	}, nil
}

// simulate runs the simulator and writes the trace, if a file for it is named.
func simulate(play player, s *scenarios.Scenario, policyName, trace string) (sum runlog.Summary, err error) {
	var out io.Writer = io.Discard
	if trace != "" {
		f, err := os.Create(trace)
		if err != nil {
			return sum, fmt.Errorf("writing the trace: %w", err)
		}
		defer f.Close()
		out = f
	}
	w := runlog.NewWriter(out)
	record := w.Write
	if trace == "" {
		record = nil
	}
	if sum, err = play(s, policyName, record); err != nil {
		return sum, err
	}
	if err := w.Flush(); err != nil {
		return sum, fmt.Errorf("writing the trace: %w", err)
	}
	return sum, nil
}
