package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"testbed/calibrate"
	"testbed/report"
	"testbed/runlog"
	"testbed/scenarios"
	"testbed/sim"
	"testbed/sim/replay"
)

func simulateCommand() *cobra.Command {
	var policyName, trace, network, calibrated, replay string
	var set []string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "simulate SCENARIO --policy POLICY", Short: "Play a scenario in the simulator", ValidArgsFunction: completeScenario,
		Long: `Plays a scenario in the deterministic simulator. The same scenario and seed give
the same trace, byte for byte. Times are in microseconds of scenario time.

The network is churn's (--network churn): a message takes base_latency, a
transfer base_latency + state_bytes / bandwidth_bpus. Or it is the links of the
scenario's plan (--network links), as a real run would have them: every message
takes the one-way delay of its path, and reductions and state fetches what they
need at the planned rates. With --calibration, what this machine adds to that
counts too, and churn's network gets the prices that go with it.

With --replay DIR instead of a scenario, the durations come from the record of a
run, real or simulated: how long the inner steps, reductions and state fetches
took, who joined, crashed and left, who was silent. The policy decides anew, and
its decisions are laid beside those of the record, with their reasons. The
policy of the run decides as in the record; another one, or other parameters
(--set policy.straggler.k=5), shows what it would have done.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if replay == "" {
				return oneScenario(cmd, args)
			}
			if len(args) > 0 {
				return usageError{errors.New("--replay takes the scenario from the record; name none")}
			}
			return nil
		},
	}
	policyFlag(cmd, &policyName)
	cmd.Flags().StringVar(&replay, "replay", "", "run directory whose record to replay")
	cmd.Flags().StringArrayVar(&set, "set", nil, "FIELD=VALUE: another value for a field of the scenario; may be given several times")
	cmd.Flags().StringVar(&network, "network", networkChurn, "what messages and transfers take: churn or links")
	calibrationFlag(cmd, &calibrated)
	cmd.Flags().StringVar(&trace, "trace", "", "write every event to this file, as JSON lines")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if replay != "" {
			if network != networkChurn || calibrated != "" {
				return usageError{errors.New("--replay takes all times from the record; leave --network and --calibration out")}
			}
			return replayRecord(cmd, replay, policyName, set, trace, asJSON)
		}
		s, err := scenarios.Load(args[0])
		if err == nil {
			s, err = changed(s, set)
		}
		if err != nil {
			return err
		}
		if _, err := s.Machine(policyName); err != nil {
			return err
		}
		play, err := simulator(network, calibrated)
		if err != nil {
			return err
		}
		sum, err := simulate(play, s, policyName, trace)
		if err != nil {
			return err
		}
		return printSummary(cmd, s, sum, asJSON)
	}
	return cmd
}

func policyFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "policy", "", "baseline or straggler")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if *name == "" {
			return usageError{fmt.Errorf("name the policy: --policy %s or --policy %s", scenarios.Baseline, scenarios.Straggler)}
		}
		return nil
	}
	err := cmd.RegisterFlagCompletionFunc("policy", cobra.FixedCompletions(scenarios.PolicyNames, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the flag was declared just above
	}
}

// The simulator's models of the network.
const (
	networkChurn = "churn"
	networkLinks = "links"
)

// player simulates a scenario with one of the models.
type player func(s *scenarios.Scenario, policyName string, record func(runlog.Event)) (runlog.Summary, error)

func calibrationFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "calibration", "", "what the machine adds, as testbed calibrate has measured it (its calibration.json)")
}

// simulator returns the player with the model of that name, and with a
// calibration if its file is given.
func simulator(network, calibrated string) (player, error) {
	if network != networkChurn && network != networkLinks {
		return nil, usageError{fmt.Errorf("--network %s: choose churn or links", network)}
	}
	c := &calibrate.Calibration{}
	if calibrated != "" {
		var err error
		if c, err = calibrate.Load(calibrated); err != nil {
			return nil, usageError{err}
		}
	}
	return func(s *scenarios.Scenario, policyName string, record func(runlog.Event)) (runlog.Summary, error) {
		switch {
		case network == networkLinks:
			return sim.RunLinks(s, policyName, c.SimCosts(), record)
		case calibrated != "":
			priced, err := c.Price(s)
			if err != nil {
				return runlog.Summary{}, err
			}
			s = priced
		}
		return sim.Run(s, policyName, record)
	}, nil
}

// changed returns the scenario with settings such as inner_steps=4.
func changed(s *scenarios.Scenario, set []string) (*scenarios.Scenario, error) {
	var settings []scenarios.Setting
	for _, text := range set {
		field, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, usageError{fmt.Errorf("--set %s has no value; write for example policy.straggler.k=5", text)}
		}
		one, err := scenarios.NewSetting(field, value)
		if err != nil {
			return nil, err
		}
		settings = append(settings, one)
	}
	return s.With(settings...)
}

// replayRecord runs a policy over the record of a run.
func replayRecord(cmd *cobra.Command, dir, policyName string, set []string, trace string, asJSON bool) error {
	for _, text := range set { // what is recorded cannot be another
		if !strings.HasPrefix(text, "policy.") && !strings.HasPrefix(text, "heartbeat_miss_threshold=") {
			return usageError{fmt.Errorf("--set %s: a replay takes only fields of policy, and heartbeat_miss_threshold; the rest is recorded", text)}
		}
	}
	s, record, err := readRecord(dir)
	if err != nil {
		return err
	}
	if s, err = changed(s, set); err != nil {
		return err
	}
	if _, err := s.Machine(policyName); err != nil {
		return err
	}
	recording, err := replay.NewRecording(s, record)
	if err != nil {
		return err
	}
	var replayed []runlog.Event
	if _, err := recording.Replay(policyName, func(e runlog.Event) { replayed = append(replayed, e) }); err != nil {
		return err
	}
	if trace != "" {
		if err := writeTrace(trace, replayed); err != nil {
			return err
		}
	}
	r := report.NewReplay(dir, record, replayed)
	if asJSON {
		return printJSON(cmd, r)
	}
	return report.WriteReplay(cmd.OutOrStdout(), r)
}

// readRecord reads the scenario and the events of a run directory. The
// simulated runs of a comparison have no scenario of their own.
func readRecord(dir string) (*scenarios.Scenario, []runlog.Event, error) {
	var s *scenarios.Scenario
	var err error
	for _, name := range []string{"scenario.yaml", "scenario.json"} {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); err != nil {
			continue
		}
		if s, err = scenarios.Load(file); err != nil {
			return nil, nil, err
		}
	}
	if s == nil {
		return nil, nil, usageError{fmt.Errorf("--replay %s: it has no scenario.yaml; name the directory of a run", dir)}
	}
	f, err := os.Open(filepath.Join(dir, runlog.EventsFile))
	if err != nil {
		return nil, nil, usageError{fmt.Errorf("--replay %s: %w", dir, err)}
	}
	defer f.Close()
	events, err := runlog.Read(f)
	if err != nil {
		return nil, nil, fmt.Errorf("--replay %s: %w", dir, err)
	}
	if len(events) > 0 && events[0].Run != nil { // the file's own name was lost
		s.Name = events[0].Run.Scenario
	}
	return s, events, nil
}

func writeTrace(name string, events []runlog.Event) error {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("writing the trace: %w", err)
	}
	w := runlog.NewWriter(f)
	for _, e := range events {
		w.Write(e)
	}
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		return fmt.Errorf("writing the trace: %w", err)
	}
	return nil
}

// simulate runs the simulator and writes the trace, if a file for it is named.
func simulate(play player, s *scenarios.Scenario, policyName, trace string) (sum runlog.Summary, err error) {
	var out io.Writer = io.Discard
	if trace != "" {
		f, err := os.Create(trace)
		if err != nil {
			return sum, fmt.Errorf("writing the trace: %w", err)
		}
		defer f.Close()
		out = f
	}
	w := runlog.NewWriter(out)
	record := w.Write
	if trace == "" {
		record = nil
	}
	if sum, err = play(s, policyName, record); err != nil {
		return sum, err
	}
	if err := w.Flush(); err != nil {
		return sum, fmt.Errorf("writing the trace: %w", err)
	}
	return sum, nil
}
