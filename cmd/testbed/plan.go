package main

import (
	"github.com/spf13/cobra"

	"testbed/scenarios"
	"testbed/scenarios/planned"
)

func planCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "plan SCENARIO", Short: "What network a run would install", Args: oneScenario,
		ValidArgsFunction: completeScenario,
		Long:              "Prints every node's access link and every path, resolved, and the ring's order. Installs nothing and needs no rights.",
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := scenarios.Load(args[0])
		if err != nil {
			return err
		}
		plan, err := s.Plan()
		if err != nil {
			return err
		}
		if asJSON {
			network, err := planned.New(s, plan)
			if err != nil {
				return err
			}
			return printJSON(cmd, network)
		}
		return planned.Write(cmd.OutOrStdout(), s, plan)
	}
	return cmd
}
