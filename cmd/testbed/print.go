package main

import (
	"github.com/spf13/cobra"

	"testbed/cmd/testbed/cli"
	"testbed/report"
	"testbed/runlog"
	"testbed/scenarios"
)

func printSummary(cmd *cobra.Command, s *scenarios.Scenario, sum runlog.Summary, asJSON bool) error {
	if asJSON {
		return cli.PrintJSON(cmd, sum)
	}
	return report.WriteSummary(cmd.OutOrStdout(), s, sum)
}
