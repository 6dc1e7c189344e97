package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"testbed/estimate"
	"testbed/estimate/emulated"
	"testbed/experiment"
	"testbed/experiment/calibrate"
	"testbed/internal/errs"
	"testbed/record"
	"testbed/scenarios"
)

// emulateFlags are the flags of estimate --emulate.
type emulateFlags struct {
	realFlags
	wanted bool
	world  string
	repeat int
	seed   uint64
}

func (f *emulateFlags) declare(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.wanted, "emulate", false, "play the run at small scale, and compare the estimates with the measured time")
	linksFlag(cmd, &f.links)
	flags.StringVar(&f.world, "world", worldNames[0], "where to emulate: both (simulated, and on a real network) or sim")
	flags.IntVar(&f.repeat, "repeat", 1, "number of seeds to emulate the run with")
	flags.Uint64Var(&f.seed, "seed", 1, "the first seed of --repeat")
	flags.StringVar(&f.out, "out", "", "directory for the record of an emulation (default runs/emulated-…)")
}

// check reports whether the flags are compatible.
func (f *emulateFlags) check(cmd *cobra.Command) error {
	if !f.wanted {
		for _, name := range []string{"links", "world", "repeat", "seed", "out"} {
			if cmd.Flags().Changed(name) {
				return errs.Usagef("--%s applies only with --emulate; add --emulate", name)
			}
		}
		return nil
	}
	switch {
	case f.repeat < 1:
		return errs.Usagef("--repeat %d must be at least 1", f.repeat)
	case !slices.Contains([]string{record.Sim, worldNames[0]}, f.world):
		return errs.Usagef("--world %s: choose sim or both", f.world)
	case f.world == record.Sim && cmd.Flags().Changed("links"):
		return errs.Usagef("--links applies to real runs only; remove it, or choose --world both")
	}
	return experiment.CheckLinks(f.links)
}

// run emulates a run and prints the result. If the machine has no real network,
// the run is simulated.
func (f *emulateFlags) run(cmd *cobra.Command, r estimate.Run, c *calibrate.Calibration, asJSON bool) error {
	o := experiment.Emulation{Run: r, Calibration: c, Seed: f.seed, Repeat: f.repeat}
	if f.world != record.Sim {
		switch err := ready(); {
		case err == nil:
			o.Real = f.player(cmd, true)
		case errors.Is(err, errors.ErrUnsupported) && !cmd.Flags().Changed("world"):
			fmt.Fprintf(cmd.ErrOrStderr(), "the emulated run is only simulated, because this machine cannot play real runs: %v\n", err)
		default:
			return err
		}
	}
	var err error
	if o.Dir, err = f.dir(emulated.Name, "estimate"); err != nil {
		return err
	}
	result, failed := experiment.Emulate(cmd.Context(), o)
	if wrong, ok := errors.AsType[*errs.FieldError](failed); ok {
		return fmt.Errorf("--emulate: %w", &scenarios.Error{Field: wrong.Field, Problem: wrong.Problem})
	}
	if result == nil {
		return failed
	}
	if asJSON {
		return errors.Join(printJSON(cmd, result), failed)
	}
	err = result.Write(cmd.OutOrStdout())
	fmt.Fprintf(cmd.OutOrStdout(), "\nscenario and records: %s\n", result.Dir)
	return errors.Join(err, failed)
}
