package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"testbed/internal/errs"
	"testbed/scenarios"
)

// errInvalid says that something was measured, but that its result is not
// valid. The reasons have been printed with the result.
var errInvalid = errors.New("the result is not valid")

// programExit is the exit code of a user's program, which is ours too.
type programExit struct{ Code int }

func (e programExit) Error() string {
	return fmt.Sprintf("the program ended with exit code %d", e.Code)
}

// linksFlag asks for a link backend.
func linksFlag(cmd *cobra.Command, links *string) {
	cmd.Flags().StringVar(links, "links", "auto", "link backend: netem (the kernel), user (a router process), htb (a router process, rates by the kernel), or auto")
}

// oneScenario checks the arguments of commands that take a scenario.
func oneScenario(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return errs.Usagef("name one scenario, for example: %s persistent_straggler", cmd.CommandPath())
	}
	return nil
}

// atMostOneScenario checks the arguments of commands that may take one.
func atMostOneScenario(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return errs.Usagef("%s takes one scenario at most", cmd.CommandPath())
	}
	return nil
}

// noArguments checks the arguments of commands that take none.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return errs.Usagef("%s takes no arguments", cmd.CommandPath())
	}
	return nil
}

// completeScenario completes names of the library.
func completeScenario(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
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

// printJSON prints a result.
func printJSON(cmd *cobra.Command, v any) error {
	enc := json.NewEncoder(cmd.OutOrStdout())
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// warn prints warnings about name on stderr.
func warn(cmd *cobra.Command, name string, lines []string) {
	for _, line := range lines {
		fmt.Fprintf(cmd.ErrOrStderr(), "testbed: %s: %s\n", name, line)
	}
}
