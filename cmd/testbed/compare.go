package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"testbed/experiment"
	"testbed/experiment/calibrate"
	"testbed/internal/errs"
	"testbed/record"
	"testbed/report"
	"testbed/scenarios"
	"testbed/stacks"
)

type compareFlags struct {
	realFlags
	policies   []string
	stacks     []string
	world      string
	set        []string
	repeat     int
	train      bool
	loss       float64
	details    bool
	calibrated string
	fitted     *calibrate.Calibration
}

// worldNames are the worlds to compare in, the default first.
var worldNames = []string{"both", record.Sim, record.Real}

func compareCommand() *cobra.Command {
	var flags compareFlags
	cmd := &cobra.Command{
		Use: "compare SCENARIO", Short: "Compare policies, simulated and on a real network", Args: oneScenario,
		ValidArgsFunction: completeScenario,
		Long: `Simulates the scenario under each policy, plays it on a real network under each,
and prints the answer: which policy was faster, by how much, and whether to trust
it. Where a model is trained, the loss comes first. Tables follow: wall-clocks,
speed-ups, and which workers were sidelined or evicted; -v prints more. There are
two simulations: one on churn's network, one on the planned links (see testbed
simulate --help). The first policy is the reference: a speed-up is its wall-clock
divided by another policy's.

  testbed compare persistent_straggler --policy baseline,straggler:k=1,straggler:k=5
  testbed compare persistent_straggler --world sim --repeat 20

A policy may have parameters, NAME:param=value:param=value, and may be given
several times with different ones. --world sim plays nothing on a real network.
It needs neither a sandbox nor Linux.

With --repeat N every policy is simulated and played with N seeds: the
scenario's seed, the next one, and so on. From three seeds on, speed-ups and the
simulator's errors have bootstrap intervals. A speed-up whose interval contains 1
shows no difference. With three policies or more in both worlds, Kendall's tau
compares the simulated order of the policies with the measured one: 1 is the
same order, -1 the reverse.

Where a model is trained, a policy's time ends when the validation loss reaches a
target: --loss, or the final loss of the first policy. Between two evaluations the
loss is interpolated linearly.

Work lost is the fraction of inner steps that entered no outer step. A policy is on
the Pareto front if no other policy is as fast and loses as little work.

With --links user,htb each real run is played on both backends in turn, and a
table shows whether the backends agree: in wall-clock, in which workers were
left out, and in bytes. The simulator is compared with the first backend.

--stack adds training systems of other people (testbed stacks). They are measured
beside the policies, and nothing is simulated:

  testbed compare persistent_straggler --policy baseline,straggler --stack gloo

Exits with 3 if a real run is not valid (see testbed run --help), or if the link
backends do not agree.`,
	}
	flags.declare(cmd)
	calibrationFlag(cmd, &flags.calibrated)
	flags.declareQlog(cmd)
	cmd.Flags().StringSliceVar(&flags.policies, "policy", scenarios.PolicyNames, "policies to compare, the reference first")
	cmd.Flags().StringSliceVar(&flags.stacks, "stack", nil, "also compare these stacks, which testbed run --stack plays; implies --world real")
	cmd.Flags().StringVar(&flags.world, "world", worldNames[0], "where to play: sim, real or both")
	setFlag(cmd, &flags.set)
	cmd.Flags().IntVar(&flags.repeat, "repeat", 1, "number of seeds to play each policy with")
	cmd.Flags().BoolVar(&flags.train, "train", false, "train in the simulator, too, as the scenario's section train says")
	lossFlag(cmd, &flags.loss, "the final loss of the first policy")
	cmd.Flags().BoolVarP(&flags.details, "verbose", "v", false, "also print utilization, parts of the predictions' errors, and reasons for decisions")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := flags.comparison(cmd, args[0])
		if err != nil {
			return err
		}
		c, failed := experiment.Compare(cmd.Context(), o)
		if failed != nil && !invalid(failed) {
			if c != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "the record of the unfinished comparison is in %s\n", c.Dir)
			}
			return failed
		}
		if flags.fitted != nil {
			warn(cmd, flags.fitted.File, experiment.OtherLinks(flags.fitted, c))
		}
		if flags.json {
			err = printJSON(cmd, c)
		} else {
			err = report.WriteComparison(cmd.OutOrStdout(), o.Run.Scenario, c, flags.details)
		}
		return errors.Join(err, failed)
	}
	return cmd
}

// comparison returns the comparison to play.
func (f *compareFlags) comparison(cmd *cobra.Command, name string) (o experiment.Comparison, err error) {
	switch {
	case f.repeat < 1:
		return o, errs.Usagef("--repeat %d must be at least 1", f.repeat)
	case !slices.Contains(worldNames, f.world):
		return o, errs.Usagef("--world %s: choose sim, real or both", f.world)
	case f.world == record.Sim && (cmd.Flags().Changed("links") || f.qlog):
		return o, errs.Usagef("--links and --qlog apply to real runs only; remove them, or choose --world both")
	case !validLoss(f.loss):
		return o, wrongLoss(f.loss)
	case f.world == record.Real && f.calibrated != "":
		return o, errs.Usagef("--calibration applies to the simulator only; remove it, or choose --world both")
	case len(f.stacks) > 0 && cmd.Flags().Changed("world") && f.world != record.Real:
		return o, errs.Usagef("--world %s: the simulator cannot play stacks; choose --world real, or leave --stack out", f.world)
	}
	policies := slices.Clone(f.policies)
	for _, name := range f.stacks {
		f.world = record.Real
		stack, err := stacks.Choose(name)
		if err != nil {
			return o, err
		}
		if _, err := stack.Check(cmd.Context()); err != nil {
			return o, err
		}
		policies = append(policies, stacks.Label(name))
	}
	o = experiment.Comparison{Target: f.loss, Policies: policies, Repeat: f.repeat, Backends: strings.Split(f.links, ","), Ready: ready}
	if err := experiment.CheckLinks(o.Backends...); err != nil {
		return o, err
	}
	f.links = o.Backends[0]
	if f.world == record.Sim {
		o.Run, err = f.read(name)
	} else {
		o.Run, err = f.load(name)
		o.Real = f.player(cmd, true)
	}
	if err == nil {
		o.Run, err = changedRun(o.Run, f.set)
	}
	if err == nil && f.world != record.Real {
		if f.fitted, err = loadCalibration(cmd, f.calibrated); err != nil {
			return o, err
		}
		churns := f.fitted
		if f.calibrated == experiment.AutoCalibration {
			churns = nil // it has no links
		}
		if o.Churn, err = experiment.NewSimulator(experiment.NetworkChurn, churns); err == nil {
			o.Links, err = experiment.NewSimulator(experiment.NetworkLinks, f.fitted)
		}
		if f.train && err == nil {
			o.Churn, o.Links = o.Churn.Trained(cmd.Context(), ""), o.Links.Trained(cmd.Context(), "")
		}
	}
	if err != nil {
		return o, err
	}
	o.Run.Dir, err = f.dir(o.Run.Scenario.Name, "compare")
	return o, err
}
