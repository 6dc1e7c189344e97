package main

import (
	"github.com/spf13/cobra"

	"testbed/scenarios/schema"
)

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "The JSON schema of scenario files", Args: noArguments,
		Long: `Prints the JSON schema (draft 2020-12) of scenario files, with what each field
means, its unit and its default. An editor that knows it completes fields and
checks them; of YAML files too, which say in their first line where it is:

  # yaml-language-server: $schema=scenario.schema.json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(schema.JSON)
			return err
		},
	}
}
