//go:build !nohost

package main

import (
	"github.com/spf13/cobra"

	"testbed/emulation/programs"
	"testbed/internal/errs"
)

func markCommand() *cobra.Command {
	return &cobra.Command{
		Use: "mark TYPE [NAME=VALUE...]", Short: "Record the progress of a program, inside testbed launch or net",
		Long: `Adds a mark to the record of testbed launch or testbed net. The mark belongs to the
node in which the command is called. A VALUE that is JSON is recorded as JSON, any
other as text. For example:

    testbed mark step round=3 loss=0.25

The mark start also starts the clock of the scenario's injects and late workers. It
has no effect on a clock that has already started.

A program may write marks itself, without this command, to the file descriptor whose
number testbed launch puts into TESTBED_MARKS. Each line is a JSON object:

    {"type": "step", "round": 3, "loss": 0.25}`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errs.Usagef("name the type of the mark, for example: %s start", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			fields, err := programs.ParseFields(args[1:])
			if err != nil {
				return err
			}
			return programs.SendMark(args[0], fields)
		},
	}
}

// clockFlag asks for the rule that starts the clock of the scenario.
func clockFlag(cmd *cobra.Command, rule *string, otherwise programs.Rule) {
	cmd.Flags().StringVar(rule, "clock", string(otherwise), "what starts the scenario's clock: command (the programs' start), traffic (the first byte between workers, or an earlier mark) or mark (testbed mark start)")
}

// clockRule reads the flag.
func clockRule(text string) (programs.Rule, error) {
	for _, r := range programs.Rules {
		if text == string(r) {
			return r, nil
		}
	}
	return "", errs.Usagef("--clock %s: choose command, traffic or mark", text)
}
