package library

import (
	"github.com/spf13/cobra"

	"testbed/cmd/testbed/cli"
	"testbed/scenarios"
	"testbed/scenarios/planned"
)

func planCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "plan SCENARIO", Short: "What network a run would install", Args: cli.OneScenario,
		ValidArgsFunction: cli.CompleteScenario,
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
			return cli.PrintJSON(cmd, network)
		}
		return planned.Write(cmd.OutOrStdout(), s, plan)
	}
	return cmd
}
