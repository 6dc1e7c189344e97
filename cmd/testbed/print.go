package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"testbed/report"
	"testbed/runlog"
	"testbed/scenarios"
)

func printJSON(cmd *cobra.Command, v any) error {
	enc := json.NewEncoder(cmd.OutOrStdout())
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func printSummary(cmd *cobra.Command, s *scenarios.Scenario, sum runlog.Summary, asJSON bool) error {
	if asJSON {
		return printJSON(cmd, sum)
	}
	return report.WriteSummary(cmd.OutOrStdout(), s, sum)
}
