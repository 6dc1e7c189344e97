package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"testbed/runlog"
	"testbed/scenarios"
	"testbed/sim"
)

func simulateCommand() *cobra.Command {
	var policyName, trace, network string
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
need at the planned rates.`,
	}
	policyFlag(cmd, &policyName)
	cmd.Flags().StringVar(&network, "network", networkChurn, "what messages and transfers take: churn or links")
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
		play, err := simulator(network)
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

// simulator returns the player with the model of that name.
func simulator(network string) (player, error) {
	switch network {
	case networkChurn:
		return sim.Run, nil
	case networkLinks:
		return func(s *scenarios.Scenario, policyName string, record func(runlog.Event)) (runlog.Summary, error) {
			return sim.RunLinks(s, policyName, sim.Costs{}, record)
		}, nil
	}
	return nil, usageError{fmt.Errorf("--network %s: choose churn or links", network)}
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
