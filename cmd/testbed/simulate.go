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
	var policyName, trace string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "simulate SCENARIO --policy POLICY", Short: "Play a scenario in the simulator", Args: oneScenario,
		ValidArgsFunction: completeScenario,
		Long: `Plays a scenario in the deterministic simulator. The same scenario and seed give
the same trace, byte for byte. Times are in microseconds of scenario time.`,
	}
	policyFlag(cmd, &policyName)
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
		sum, err := simulate(s, policyName, trace)
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

// simulate runs the simulator and writes the trace, if a file for it is named.
func simulate(s *scenarios.Scenario, policyName, trace string) (sum runlog.Summary, err error) {
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
	if sum, err = sim.Run(s, policyName, record); err != nil {
		return sum, err
	}
	if err := w.Flush(); err != nil {
		return sum, fmt.Errorf("writing the trace: %w", err)
	}
	return sum, nil
}
