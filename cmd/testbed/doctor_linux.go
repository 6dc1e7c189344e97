//go:build !nohost

package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"testbed/allreduce/bench"
	"testbed/allreduce/int8"
	"testbed/emulation"
	"testbed/internal/errs"
)

// doctorCheck is a check with additional fields for JSON.
type doctorCheck struct {
	emulation.Check
	// Choices are the choices of the operation, in a check of kernels.
	Choices []int8.Choice `json:"choices,omitempty"`
}

// kernelChecks report for each operation which form of the int8 kernels is
// used, and the measurements of all forms. The words are about codes of 8 bits.
func kernelChecks() (checks []doctorCheck) {
	for _, c := range int8.Choices() {
		name := "kernel " + c.Operation
		if len(checks) == 0 || checks[len(checks)-1].Name != name {
			checks = append(checks, doctorCheck{Check: emulation.Check{Name: name, OK: true}})
		}
		last := &checks[len(checks)-1]
		if last.Choices = append(last.Choices, c); c.Bits != 8 || c.FromBytes > 0 && len(c.Rates) == 0 {
			continue
		}
		if c.FromBytes > 0 {
			last.Detail += fmt.Sprintf("; from %v ", bench.Size(c.FromBytes))
		}
		last.Detail += fmt.Sprintf("%s (%s)", c.Route, c.Why())
	}
	return checks
}

func doctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check what this machine can do, and what is missing", Args: noArguments,
		Long: `Tries everything that real runs need, and says what is missing and how to get
it. Measures which int8 kernels are fastest on this processor; the choice changes
speed alone, never results. Exits with 4 if no real run is possible here.`,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		found, err := emulation.Doctor()
		if err != nil {
			return err
		}
		var checks []doctorCheck
		for _, c := range found {
			checks = append(checks, doctorCheck{Check: c})
		}
		checks = append(checks, kernelChecks()...)
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
				if c.Fix != "" {
					fmt.Fprintf(w, "\t\tfix: %s\n", c.Fix)
				}
			}
			if err := w.Flush(); err != nil {
				return err
			}
		}
		for _, c := range checks {
			if c.Needed && !c.OK {
				return &errs.UnsupportedError{Missing: c.Name + ": " + c.Detail, Fix: c.Fix}
			}
		}
		return nil
	}
	return cmd
}
