package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"testbed/policy"
	"testbed/scenarios"
)

func listCommand() *cobra.Command {
	var asJSON, policies bool
	cmd := &cobra.Command{
		Use: "list", Short: "The scenarios of the library, or the policies", Args: noArguments,
		Long: `Lists the scenarios of the library by the names that other commands take. With
--json each is printed whole, as the file of a scenario.`,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&policies, "policies", false, "list the policies, with their parameters and defaults")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if policies {
			return listPolicies(cmd, asJSON)
		}
		all, err := scenarios.Library()
		if err != nil {
			return err
		}
		if asJSON {
			for i, s := range all { // each is a scenario's file
				all[i] = s.Plain()
			}
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

// listPolicies prints the policies, and under each its parameters as they follow
// its name in --policy.
func listPolicies(cmd *cobra.Command, asJSON bool) error {
	type listed struct {
		Name       string             `json:"name"`
		Summary    string             `json:"summary"`
		Parameters []policy.Parameter `json:"parameters"`
	}
	var all []listed
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
	for _, name := range policy.Names() {
		p, _ := policy.Named(name)
		one := listed{name, policy.Summary(name), policy.Parameters(p)}
		all = append(all, one)
		fmt.Fprintf(w, "%s\t%s\n", name, one.Summary)
		parameters := ""
		for _, param := range one.Parameters {
			parameters += fmt.Sprintf(":%s=%v", param.Name, param.Default)
		}
		if parameters != "" {
			fmt.Fprintf(w, "\t%s\n", parameters)
		}
	}
	if asJSON {
		return printJSON(cmd, all)
	}
	return w.Flush()
}
