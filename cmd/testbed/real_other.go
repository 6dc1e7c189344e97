//go:build !linux || nohost

package main

import (
	"context"

	"github.com/spf13/cobra"

	"testbed/experiment"
	"testbed/internal/errs"
	"testbed/record"
	"testbed/scenarios"
)

// The tag nohost makes on Linux what other systems get, for tests.

// errNeedsLinux is the error of everything that needs a real network.
var errNeedsLinux error = &errs.UnsupportedError{
	Missing: "a real network is made of network namespaces and needs Linux",
	Fix:     "use a Linux machine, or the virtual machine that vagrant/README.md describes",
}

func startedAgain([]string) (int, bool) { return 0, false }

func ready(...string) error { return errNeedsLinux }

func playReal(context.Context, experiment.Run, string, *realFlags, func(string, *record.Event)) (record.Summary, error) {
	return record.Summary{}, errNeedsLinux
}

func resumeReal(context.Context, string, string, func(string, *record.Event)) (*scenarios.Scenario, record.Summary, error) {
	return nil, record.Summary{}, errNeedsLinux
}

func measureLoad(context.Context, *scenarios.Scenario) (*scenarios.MachineLoad, error) {
	return nil, errNeedsLinux
}

func doctorCommand() *cobra.Command {
	return linuxCommand("doctor", "Check what this machine can do, and what is missing")
}

func hostCommand() *cobra.Command {
	return linuxCommand("host", "Take part in a run over several hosts")
}

func netCommand() *cobra.Command {
	return linuxCommand("net", "Run your own programs on a scenario's network")
}

func launchCommand() *cobra.Command {
	return linuxCommand("launch", "Run a program in every worker's node of a scenario's network")
}

func markCommand() *cobra.Command {
	return linuxCommand("mark", "Record the progress of a program, inside testbed launch or net")
}

func inCommand() *cobra.Command {
	return linuxCommand("in", "Run a program in a node, inside testbed net")
}

func verifyCommand() *cobra.Command {
	return linuxCommand("verify", "Measure a scenario's network against its plan")
}

func benchRingCommand() *cobra.Command {
	return linuxCommand("ring", "Measure the all-reduce on links of your choice")
}

// linuxCommand stands for a verb that does nothing without a real network.
func linuxCommand(name, short string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short + " (needs Linux)", Args: cobra.ArbitraryArgs,
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE:               func(*cobra.Command, []string) error { return errNeedsLinux },
	}
}
