//go:build !nohost

package main

import (
	"github.com/spf13/cobra"

	"testbed/emulation/programs"
	"testbed/internal/errs"
)

func markCommand() *cobra.Command {
	return &cobra.Command{
		Use: "mark TYPE [NAME=VALUE...]", Short: "Say how far a program has come, inside testbed launch or net",
		Long: `Adds a mark to the record of testbed launch or testbed net, in the node in which
it is called. Values that are JSON are kept as that, others as text. For example:

    testbed mark step round=3 loss=0.25

The mark start also starts the clock on which the scenario's injects and late
workers count, unless it has started. The first one counts.

A program may write marks itself, without this command: testbed launch gives it a
descriptor whose number is in TESTBED_MARKS. Each line is an object of JSON:

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
