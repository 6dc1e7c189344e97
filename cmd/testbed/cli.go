package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"testbed/internal/errs"
	"testbed/scenarios"
)

// ErrInvalid says that something was measured, but that its result is not valid.
// What is wrong has been printed with the result.
var ErrInvalid = errors.New("the result is not valid")

// ProgramExit is the exit code of a program of the user's, which is ours too.
type ProgramExit struct{ Code int }

func (e ProgramExit) Error() string {
	return fmt.Sprintf("the program ended with exit code %d", e.Code)
}

// LinksFlag asks for a link backend.
func LinksFlag(cmd *cobra.Command, links *string) {
	cmd.Flags().StringVar(links, "links", "auto", "who carries packets: netem (the kernel), user (a router process), htb (it, but the kernel keeps rates), or auto")
}

// OneScenario is the check of commands that take a scenario.
func OneScenario(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return errs.Usagef("name one scenario, for example: %s persistent_straggler", cmd.CommandPath())
	}
	return nil
}

// AtMostOneScenario is that of commands that may take one.
func AtMostOneScenario(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return errs.Usagef("%s takes one scenario at most", cmd.CommandPath())
	}
	return nil
}

// NoArguments is that of commands that take none.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return errs.Usagef("%s takes no arguments", cmd.CommandPath())
	}
	return nil
}

// CompleteScenario completes names of the library.
func CompleteScenario(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	all, err := scenarios.Library()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Name+"\t"+s.Description)
	}
	return names, cobra.ShellCompDirectiveDefault
}

// PrintJSON prints a result.
func PrintJSON(cmd *cobra.Command, v any) error {
	enc := json.NewEncoder(cmd.OutOrStdout())
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// Warn says on stderr what is to be known of what has this name.
func Warn(cmd *cobra.Command, name string, lines []string) {
	for _, line := range lines {
		fmt.Fprintf(cmd.ErrOrStderr(), "testbed: %s: %s\n", name, line)
	}
}
