package main

import (
	"github.com/spf13/cobra"

	"testbed/internal/errs"
	"testbed/scenarios"
	"testbed/scenarios/convert"
)

func convertCommand() *cobra.Command {
	var to convert.Format
	var out string
	cmd := &cobra.Command{
		Use: "convert SCENARIO --to FORMAT", Short: "Write a scenario as JSON or YAML, or for churn", Args: oneScenario,
		ValidArgsFunction: completeScenario,
		Long: `Writes a scenario to stdout, or to the file --out.

  json, yaml   Every field, also those that have their defaults. The result is the
               same scenario. Comments are not kept.
  churn        JSON with exactly the fields that churn's README names. Fields that
               are left out (policy, real and train) are named on stderr, a line
               each. The section work, and injects that churn lacks, are an
               error: the scenario would differ without them.`,
	}
	cmd.Flags().Var(&to, "to", "format to write: churn, json or yaml")
	cmd.Flags().StringVar(&out, "out", "", "file to write (default: stdout)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if to == "" {
			return errs.Usagef("name the format: --to churn, json or yaml")
		}
		s, err := scenarios.Load(args[0])
		if err != nil {
			return err
		}
		var text []byte
		var lost []string
		if out != "" {
			lost, err = convert.File(s, to, out)
		} else {
			text, lost, err = convert.Text(s, to)
		}
		warn(cmd, s.Name, lost)
		if err != nil {
			return err
		}
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	return cmd
}
