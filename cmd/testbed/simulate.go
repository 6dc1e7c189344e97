package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"testbed/experiment"
	"testbed/experiment/calibrate"
	"testbed/internal/errs"
	"testbed/policy"
	"testbed/record"
	"testbed/report"
	"testbed/scenarios"
)

func simulateCommand() *cobra.Command {
	var policyName, trace, network, calibrated, replayed, model string
	var set []string
	var asJSON, trained bool
	cmd := &cobra.Command{
		Use: "simulate SCENARIO --policy POLICY", Short: "Play a scenario in the simulator under one policy", ValidArgsFunction: completeScenario,
		Long: `Plays a scenario in the deterministic simulator. The same scenario and seed give
the same trace, byte for byte. Times are in microseconds of scenario time.

The network is churn's (--network churn): a message takes base_latency, a
transfer base_latency + state_bytes / bandwidth_bpus. With --network links the
network is the planned links, as in a real run: a message takes the one-way delay
of its path, and reductions and state fetches take their time at the planned
rates. --calibration adds the costs that were measured on this machine. auto takes
the costs of the latest testbed calibrate without arguments.

--replay DIR replaces the scenario by the record of a real or simulated run. The
durations of inner steps, reductions and state fetches, the joins, crashes,
departures and silences come from that record. The policy decides again, and its
decisions are compared with the recorded ones, with their reasons. The policy of
the run decides as in the record. Another policy, or other parameters (--set
policy.straggler.k=5), shows what it would have done.

With --trace - the trace goes to stdout and the result as text to stderr, as in
churn's own program.

With --train the workers train, bit for bit as in a real run with the same
decisions. The result contains the hashes of the outer states and, if a model is
trained, its losses.

Exits with 3 if the run is incomplete.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if replayed == "" {
				return oneScenario(cmd, args)
			}
			if len(args) > 0 {
				return errs.Usagef("--replay takes the scenario from the record; remove the scenario argument")
			}
			return nil
		},
	}
	policyFlag(cmd, &policyName)
	cmd.Flags().StringVar(&replayed, "replay", "", "run directory whose record to replay")
	setFlag(cmd, &set)
	networkFlag(cmd, &network, "network model: churn or links")
	calibrationFlag(cmd, &calibrated)
	cmd.Flags().StringVar(&trace, "trace", "", "write every event to this file, as JSON lines; - is stdout")
	cmd.Flags().BoolVar(&trained, "train", false, "train as the scenario's section train says")
	cmd.Flags().StringVar(&model, "model", "", "with --train: write the model to this file, for testbed sample")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := leaveStdout(cmd, trace, asJSON); err != nil {
			return err
		}
		if replayed != "" {
			if network != experiment.NetworkChurn || calibrated != "" {
				return errs.Usagef("--replay takes all times from the record; leave --network and --calibration out")
			}
			return replayRecord(cmd, replayed, policyName, set, trace, asJSON)
		}
		s, err := changedScenario(args[0], set)
		if err != nil {
			return err
		}
		if _, err := s.Machine(policyName); err != nil {
			return err
		}
		play, err := simulator(cmd, network, calibrated)
		if err == nil {
			play, err = training(cmd.Context(), play, trained, model)
		}
		if err != nil {
			return err
		}
		warnOfRotation(cmd, s, policyName)
		sum, err := play.Record(s, policyName, trace)
		if err != nil {
			return err
		}
		return errors.Join(printSummary(cmd, s, sum, asJSON), experiment.Usable(sum))
	}
	return cmd
}

// warnOfRotation says whether the policy torchft's join timeout is below a round.
func warnOfRotation(cmd *cobra.Command, s *scenarios.Scenario, policyName string) {
	if j := experiment.CompareJoinTimeout(s, policyName); j != nil && j.Below {
		fmt.Fprintf(cmd.ErrOrStderr(), "testbed: %v\n", j)
	}
}

// training makes a simulator train, if requested.
func training(ctx context.Context, play experiment.Simulator, trained bool, model string) (experiment.Simulator, error) {
	switch {
	case trained:
		return play.Trained(ctx, model), nil
	case model != "":
		return nil, errs.Usagef("--model applies only with --train; add --train")
	}
	return play, nil
}

// changedScenario reads a scenario and applies settings to it.
func changedScenario(name string, set []string) (*scenarios.Scenario, error) {
	changed, err := settings(set)
	if err != nil {
		return nil, err
	}
	s, err := scenarios.Load(name)
	if err != nil {
		return nil, err
	}
	return s.With(changed...)
}

// leaveStdout moves the result to stderr if the trace goes to stdout.
func leaveStdout(cmd *cobra.Command, trace string, asJSON bool) error {
	if trace != experiment.Stdout {
		return nil
	}
	if asJSON {
		return errs.Usagef(`--trace "-" and --json would both write to stdout; name a file for the trace, or leave --json out`)
	}
	cmd.SetOut(cmd.ErrOrStderr())
	return nil
}

// networkName is a network model. It also accepts the names of the simulated
// worlds.
type networkName string

func (n *networkName) String() string { return string(*n) }

// Type is the type of a text flag.
func (n *networkName) Type() string { return "string" }

func (n *networkName) Set(text string) error {
	switch text {
	case record.Sim:
		text = experiment.NetworkChurn
	case record.SimLinks:
		text = experiment.NetworkLinks
	}
	*n = networkName(text)
	return nil
}

// networkFlag asks for a network model of the simulator, churn's by default.
func networkFlag(cmd *cobra.Command, network *string, usage string) {
	*network = experiment.NetworkChurn
	cmd.Flags().Var((*networkName)(network), "network", usage)
}

func policyFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "policy", "", "NAME[:parameter=value]…, such as straggler:k=5 (testbed list --policies names them), or program:PATH, a program of your own")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if *name == "" {
			return errs.Usagef("name the policy, such as --policy %s or --policy %s:k=5; the policies are %s", scenarios.Baseline, scenarios.Straggler, strings.Join(policy.Names(), ", "))
		}
		return nil
	}
	err := cmd.RegisterFlagCompletionFunc("policy", cobra.FixedCompletions(policy.Names(), cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the flag was declared just above
	}
}

func calibrationFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "calibration", "", "the machine's own delays: a calibration.json of testbed calibrate, or auto for this machine's latest")
}

// loadCalibration reads the file, and warns of differences from this machine;
// without a file it returns nil.
func loadCalibration(cmd *cobra.Command, file string) (*calibrate.Calibration, error) {
	if file == "" {
		return nil, nil
	}
	c, foreign, err := experiment.LoadCalibration(file)
	if err != nil {
		return nil, errs.Usagef("--calibration: %w", err)
	}
	warn(cmd, c.File, foreign)
	return c, nil
}

// simulator returns the simulator with the model of that name, and with a
// calibration if its file is given.
func simulator(cmd *cobra.Command, network, calibrated string) (experiment.Simulator, error) {
	if calibrated == experiment.AutoCalibration && network != experiment.NetworkLinks {
		return nil, errs.Usagef("--calibration %s applies only to the planned links; add --network %s", calibrated, experiment.NetworkLinks)
	}
	c, err := loadCalibration(cmd, calibrated)
	if err != nil {
		return nil, err
	}
	return experiment.NewSimulator(network, c)
}

// setFlag declares the flag that changes fields of a scenario.
func setFlag(cmd *cobra.Command, set *[]string) {
	cmd.Flags().StringArrayVar(set, "set", nil, "FIELD=VALUE: set a field of the scenario; may be given several times")
}

// changedRun applies settings to the scenario of a run.
func changedRun(r experiment.Run, set []string) (experiment.Run, error) {
	if len(set) == 0 {
		return r, nil
	}
	changed, err := settings(set)
	if err != nil {
		return r, err
	}
	return r.With(changed...)
}

// settings reads the values of --set, such as inner_steps=4.
func settings(set []string) (all []scenarios.Setting, err error) {
	for _, text := range set {
		field, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, errs.Usagef("--set %s has no value; write for example policy.straggler.k=5", text)
		}
		one, err := scenarios.NewSetting(field, value)
		if err != nil {
			return nil, fmt.Errorf("--set %w", err)
		}
		all = append(all, one)
	}
	return all, nil
}

// replayRecord plays the record of a run with a policy.
func replayRecord(cmd *cobra.Command, dir, policyName string, set []string, trace string, asJSON bool) error {
	for _, text := range set { // recorded values cannot be changed
		if !strings.HasPrefix(text, "policy.") && !strings.HasPrefix(text, "heartbeat_miss_threshold=") {
			return errs.Usagef("--set %s: a replay can change only policy fields and heartbeat_miss_threshold; the record fixes all others", text)
		}
	}
	changed, err := settings(set)
	if err != nil {
		return err
	}
	r, err := experiment.Replay(dir, policyName, changed, trace)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd, r)
	}
	return report.WriteReplay(cmd.OutOrStdout(), r)
}
