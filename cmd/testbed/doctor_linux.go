//go:build !nohost

package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"testbed/emulation"
	"testbed/internal/errs"
)

func doctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "What this machine can do, and what is missing", Args: noArguments,
		Long: `Tries for real what runs on a real network need, and says what is missing and
how to mend it. Exits with 4 if no real run is possible here.`,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		checks, err := emulation.Doctor()
		if err != nil {
			return err
		}
		if asJSON {
			if err := printJSON(cmd, checks); err != nil {
				return err
			}
		} else {
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
			for _, c := range checks {
				mark := "ok"
				switch {
				case !c.OK && c.Needed:
					mark = "MISSING"
				case !c.OK:
					mark = "absent"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\n", mark, c.Name, c.Detail)
				if c.Mend != "" {
					fmt.Fprintf(w, "\t\tmend: %s\n", c.Mend)
				}
			}
			if err := w.Flush(); err != nil {
				return err
			}
		}
		for _, c := range checks {
			if c.Needed && !c.OK {
				return &errs.UnsupportedError{Missing: c.Name + ": " + c.Detail, Fix: c.Mend}
			}
		}
		return nil
	}
	return cmd
}
