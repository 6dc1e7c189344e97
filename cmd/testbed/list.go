package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"testbed/scenarios"
)

func listCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "The scenarios of the library", Args: noArguments,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		all, err := scenarios.Library()
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(cmd, all)
		}
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
		for _, s := range all {
			fmt.Fprintf(w, "%s\t%d workers\t%s\n", s.Name, len(s.Workers), s.Description)
		}
		return w.Flush()
	}
	return cmd
}
