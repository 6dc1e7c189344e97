package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"testbed/internal/errs"
	"testbed/stacks"
)

// stackState is a stack with its state on this machine.
type stackState struct {
	Name        string `json:"name"`        // The stack.
	Description string `json:"description"` // What it is.
	Ours        bool   `json:"ours"`        // Its loop is our own, around a library of somebody else.
	// The version of its software; absent if it cannot run here.
	Version string `json:"version,omitempty"`
	Missing string `json:"missing,omitempty"` // Why it cannot run here.
	Remedy  string `json:"remedy,omitempty"`  // How to change that.
	Inexact string `json:"inexact,omitempty"` // Why workers' states differ in the last bits.
	// What it cannot do, with reasons, by inject.
	Cannot  map[string]string        `json:"cannot"`
	Options map[string]stacks.Option `json:"options"` // Its options.
	// The values of options of NAME:tuned.
	Tuned   map[string]stacks.Tuned `json:"tuned,omitempty"`
	Untuned string                  `json:"untuned,omitempty"` // Why there are none.
}

func stacksCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "stacks", Short: "List training systems that --stack can play, and what they need", Args: noArguments,
		Long: `Lists the stacks: training systems of other people that testbed run --stack and
testbed compare --stack play as a whole, in place of a policy. A stack brings its
own membership and its own all-reduce. For each stack the list shows its version,
or what is missing on this machine and how to install it, its options, and the
injects that it cannot play.

Time-outs decide much of what stacks do. --stack NAME:tuned takes the tuned values
instead of the defaults. They follow one rule for all stacks: a dead worker is
noticed within 5 s, and nobody waits for a slow worker for more than 1.5 rounds.

A name with a slash is the folder of a stack of your own.`,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var all []stackState
		for _, name := range stacks.Names() {
			state, err := stateOf(cmd.Context(), name)
			if err != nil {
				return err
			}
			all = append(all, state)
		}
		if asJSON {
			return printJSON(cmd, all)
		}
		for _, s := range all {
			version := s.Version
			if s.Missing != "" {
				version = "missing: " + s.Missing
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "%s   %s\n", s.Name, version)
			w := tabwriter.NewWriter(out, 4, 0, 3, ' ', 0)
			fmt.Fprintf(w, "\tdescription\t%s\n", s.Description)
			if s.Remedy != "" {
				fmt.Fprintf(w, "\tto install\t%s\n", s.Remedy)
			}
			for _, name := range sortedKeys(s.Options) {
				fmt.Fprintf(w, "\t%s=%g\t%s\n", name, s.Options[name].Default, s.Options[name].Description)
			}
			for _, name := range sortedKeys(s.Tuned) {
				fmt.Fprintf(w, "\ttuned %s\t%s\n", name, s.Tuned[name])
			}
			if s.Untuned != "" {
				fmt.Fprintf(w, "\tnot tuned\t%s\n", s.Untuned)
			}
			for _, op := range sortedKeys(s.Cannot) {
				fmt.Fprintf(w, "\tcannot play %s\t%s\n", op, s.Cannot[op])
			}
			if err := w.Flush(); err != nil {
				return err
			}
		}
		return nil
	}
	cmd.AddCommand(installCommand())
	return cmd
}

func installCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "install STACK", Short: "Install the software of a stack",
		Long: `Makes a virtual environment of Python in ~/.cache/testbed/stacks, and installs
the stack's packages from PyPI, with pinned versions and hashes. An existing
environment of the stack is replaced. If the stack cannot be installed here, the
command names what is missing and exits with 4.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errs.Usagef("name one stack; testbed stacks lists them")
			}
			return nil
		},
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := stacks.Find(args[0])
		if err != nil {
			return err
		}
		if err := s.Set(cmd.Context(), cmd.ErrOrStderr()); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "the stack %s is installed in %s\n", s.Name, s.Venv())
		return nil
	}
	return cmd
}

// stateOf returns the state of a stack on this machine.
func stateOf(ctx context.Context, name string) (stackState, error) {
	s, err := stacks.Find(name)
	if err != nil {
		return stackState{}, err
	}
	state := stackState{Name: name, Description: s.Description, Ours: s.Ours, Inexact: s.Inexact, Cannot: map[string]string{}, Options: s.Options, Tuned: s.Tuned, Untuned: s.Untuned}
	for op, why := range s.Cannot {
		state.Cannot[string(op)] = why
	}
	ready, err := s.Check(ctx)
	if missing, is := errors.AsType[*errs.UnsupportedError](err); is {
		state.Missing, state.Remedy = missing.Missing, missing.Fix
		return state, nil
	}
	state.Version = ready.Version
	return state, err
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
