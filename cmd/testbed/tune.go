package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"testbed/experiment"
	"testbed/internal/errs"
	"testbed/policy"
	"testbed/record"
)

type tuneFlags struct {
	realFlags
	policies                     []string
	world, calibrated            string
	train                        bool
	points, seeds, heldOut, best int
	repeat                       int
	end                          func() error // of programs that train; may be nil
}

func tuneCommand() *cobra.Command {
	var flags tuneFlags
	cmd := &cobra.Command{
		Use: "tune SCENARIO", Short: "Search policy parameters in the simulator, and play the best for real", Args: oneScenario,
		ValidArgsFunction: completeScenario,
		Long: `Simulates policies with thousands of parameter values on the planned links, on
all processors, and keeps the Pareto front of wall-clock against work lost. The
front is simulated again with held-out seeds. Then the best points, the first
policy of the list, and the chosen policies with the scenario's own parameters
are played on a real network. Kendall's tau compares the simulated order with the
measured one: 1 is the same order, -1 the reverse.

  testbed tune lognormal_16
  testbed tune mixed_gpus --policy baseline,straggler,adaptive --points 5000 --world sim

With --train each point trains as the scenario's section train says, and the front
is that of wall-clock against validation loss. Every point then takes as long as
its training, so --points defaults to 50, --seeds to 3 and --held-out to 5.

testbed list --policies --json names the parameters that are searched, and their
ranges. Other parameters keep the scenario's value, or the value in --policy:
straggler:sideline_limit=100 fixes sideline_limit for every point.

Exits with 3 if a real run is not valid (see testbed run --help).`,
	}
	flags.declare(cmd)
	calibrationFlag(cmd, &flags.calibrated)
	f := cmd.Flags()
	f.StringSliceVar(&flags.policies, "policy", policy.Names(), "policies to search, the reference first")
	f.StringVar(&flags.world, "world", worldNames[0], "where to play the best: sim or both")
	f.BoolVar(&flags.train, "train", false, "train as the scenario's section train says, and judge by loss instead of work lost")
	f.IntVar(&flags.points, "points", 2000, "points to simulate, over all policies")
	f.IntVar(&flags.seeds, "seeds", 5, "seeds to simulate each point with")
	f.IntVar(&flags.heldOut, "held-out", 10, "number of held-out seeds for the best points")
	f.IntVar(&flags.best, "best", 3, "number of points to choose and play")
	f.IntVar(&flags.repeat, "repeat", 3, "number of seeds to play each chosen point with")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := flags.tuning(cmd, args[0])
		if err != nil {
			return err
		}
		show := newSweepProgress(cmd)
		o.Progress = func(done, all int) {
			show.step(done, all)
			if done == all {
				show.end()
			}
		}
		t, failed := experiment.Tune(cmd.Context(), o)
		if flags.end != nil {
			failed = errors.Join(failed, flags.end())
		}
		if failed != nil && !invalid(failed) {
			if t != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "the record of the unfinished search is in %s\n", t.Dir)
			}
			return failed
		}
		if flags.json {
			return errors.Join(printJSON(cmd, t), failed)
		}
		return errors.Join(experiment.WriteTuned(cmd.OutOrStdout(), o.Run.Scenario, t), failed)
	}
	return cmd
}

// tuning returns the tuning to perform.
func (f *tuneFlags) tuning(cmd *cobra.Command, name string) (o experiment.Tuning, err error) {
	if given := cmd.Flags().Changed; f.train {
		if !given("points") {
			f.points = 50
		}
		if !given("seeds") {
			f.seeds = 3
		}
		if !given("held-out") {
			f.heldOut = 5
		}
	}
	for _, n := range []struct {
		flag  string
		value int
	}{{"points", f.points}, {"seeds", f.seeds}, {"held-out", f.heldOut}, {"best", f.best}, {"repeat", f.repeat}} {
		if n.value < 1 || n.value > 1_000_000 {
			return o, errs.Usagef("--%s %d must lie between 1 and 1000000", n.flag, n.value)
		}
	}
	switch {
	case !slices.Contains([]string{record.Sim, worldNames[0]}, f.world):
		return o, errs.Usagef("--world %s: choose sim or both", f.world)
	case f.world == record.Sim && cmd.Flags().Changed("links"):
		return o, errs.Usagef("--links applies to real runs only; remove it, or choose --world both")
	case f.repeat > f.heldOut:
		return o, errs.Usagef("--repeat %d is more than the %d seeds that are held out; raise --held-out", f.repeat, f.heldOut)
	}
	o = experiment.Tuning{Policies: f.policies, Points: f.points, Seeds: f.seeds, HeldOut: f.heldOut, Best: f.best, Repeat: f.repeat}
	if f.world == record.Sim {
		o.Run, err = f.read(name)
	} else {
		o.Run, err = f.load(name)
		o.Real = f.player(cmd, true)
	}
	if err != nil {
		return o, err
	}
	if f.train && !o.Run.Scenario.Train.Real() {
		return o, errs.Usagef("--train: %s has no train section, so there is no loss to search for; add train with a task, charlm for example", o.Run.Scenario.Name)
	}
	if o.Simulate, err = simulator(cmd, experiment.NetworkLinks, f.calibrated); err == nil && f.train {
		o.Simulate, f.end = o.Simulate.TrainedOnce(cmd.Context())
	}
	if err != nil {
		return o, err
	}
	o.Run.Dir, err = f.dir(o.Run.Scenario.Name, "tune")
	return o, err
}
