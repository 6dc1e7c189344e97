package main

import (
	"github.com/spf13/cobra"

	"testbed/scenarios/schema"
)

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON schema of scenario files", Args: noArguments,
		Long: `Prints the JSON schema (draft 2020-12) of scenario files, with the meaning, unit
and default of each field. Editors use it to complete and check fields. A YAML
file names its schema in the first line:

  # yaml-language-server: $schema=scenario.schema.json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(schema.JSON)
			return err
		},
	}
}
