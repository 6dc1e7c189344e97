package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

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

// flagError is the error of a flag without the words of packages strconv and time,
// which repeat its value.
type flagError struct{ error }

var (
	notNumber = regexp.MustCompile(`strconv\.(?:Parse(Int|Uint|Float|Bool)|Atoi): parsing "(?:[^"\\]|\\.)*": (invalid syntax|value out of range)`)
	notTime   = regexp.MustCompile(`time: .*duration "(?:[^"\\]|\\.)*"`)
)

func (e flagError) Error() string {
	text := notTime.ReplaceAllString(e.error.Error(), "it must be a time with a unit, such as 30s")
	return notNumber.ReplaceAllStringFunc(text, func(found string) string {
		switch m := notNumber.FindStringSubmatch(found); {
		case m[2] == "value out of range":
			return "it is out of range"
		case m[1] == "Bool":
			return "it must be true or false"
		case m[1] == "Float":
			return "it must be a number"
		case m[1] == "Uint":
			return "it must be a whole number from 0"
		}
		return "it must be a whole number"
	})
}

func (e flagError) Unwrap() error { return e.error }

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
