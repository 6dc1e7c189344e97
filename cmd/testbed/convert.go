package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"testbed/scenarios"
	"testbed/scenarios/convert"
)

func convertCommand() *cobra.Command {
	var to, out string
	cmd := &cobra.Command{
		Use: "convert SCENARIO --to FORMAT", Short: "Write a scenario as JSON or YAML, or for churn", Args: oneScenario,
		ValidArgsFunction: completeScenario,
		Long: `Writes a scenario to stdout, or to the file --out.

  json, yaml   every field, also those that have their defaults; reads back as
               the same scenario. Comments are not kept.
  churn        JSON with exactly the fields that churn's README names. What is
               left out is said on stderr, a line each: policy, which churn takes
               elsewhere; real and real.injects. Injects that churn does not have
               and the section work are an error, because without them it would
               be another scenario.`,
	}
	cmd.Flags().StringVar(&to, "to", "", "format: churn, json or yaml")
	cmd.Flags().StringVar(&out, "out", "", "file to write (default: stdout)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		format, err := convert.Named(to)
		if err != nil {
			return usageError{fmt.Errorf("--to: %w", err)}
		}
		s, err := scenarios.Load(args[0])
		if err != nil {
			return err
		}
		var text []byte
		var lost []string
		if out != "" {
			lost, err = convert.File(s, format, out)
		} else {
			text, lost, err = convert.Text(s, format)
		}
		warn(cmd, s.Name, lost)
		if err != nil {
			return err
		}
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	if err := cmd.RegisterFlagCompletionFunc("to", cobra.FixedCompletions([]string{string(convert.Churn), string(convert.JSON), string(convert.YAML)}, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag was declared just above
	}
	return cmd
}

// warn says on stderr what one should know of a scenario that was written.
func warn(cmd *cobra.Command, name string, lines []string) {
	for _, line := range lines {
		fmt.Fprintf(cmd.ErrOrStderr(), "testbed: %s: %s\n", name, line)
	}
}
