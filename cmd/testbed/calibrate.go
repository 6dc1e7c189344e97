package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"testbed/bench"
	"testbed/calibrate"
	"testbed/node/host"
	"testbed/node/host/realrun"
	"testbed/runlog"
	"testbed/scenarios"
)

// calibrationFile is its name in the directory that calibrate leaves.
const calibrationFile = "calibration.json"

func calibrateCommand() *cobra.Command {
	var links, out, refit string
	var repeat, retries int
	var only []string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "calibrate [SCENARIO...]", Short: "Measure what this machine adds to the network, for the simulator",
		ValidArgsFunction: completeScenario,
		Long: `Runs short experiments on the emulated network (payloads, numbers of workers,
rates and delays of links, jitter, joiners, sidelined workers, a crash) and fits
what the links do not explain: the lateness of timers, the cost of a message, a
hop, a byte, a connection, a state fetch; with 95 % intervals. It takes about
two minutes. Let the machine do nothing else meanwhile: rounds in which the
emulation was not valid are left out, and runs that were invalid are made again.

Leaves calibration.json, for testbed simulate and compare --calibration, and of
every SCENARIO a copy with base_latency, bandwidth_bpus and state_bytes as
churn's network has to have them on this machine and the scenario's links.

--refit DIR fits the runs of an earlier calibration again.`,
	}
	linksFlag(cmd, &links)
	cmd.Flags().StringVar(&out, "out", "", "directory for the result and the records (default runs/calibrate-…)")
	cmd.Flags().StringVar(&refit, "refit", "", "make no runs; fit those in this directory")
	cmd.Flags().StringSliceVar(&only, "only", nil, "run these experiments only; what they do not tell stays 0")
	cmd.Flags().IntVar(&repeat, "repeat", 1, "how often to run each experiment")
	cmd.Flags().IntVar(&retries, "retries", 2, "how often to run an experiment again whose emulation was invalid")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the calibration as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if repeat < 1 || retries < 0 {
			return usageError{errors.New("--repeat must be at least 1 and --retries at least 0")}
		}
		if err := checkLinks(links); err != nil {
			return err
		}
		texts, err := sources(args)
		if err != nil {
			return err
		}
		all, err := chosen(only)
		if err != nil {
			return err
		}
		c, dir, err := calibration(cmd, all, links, out, refit, repeat, retries)
		if err != nil {
			return err
		}
		if err := dir.WriteJSON(calibrationFile, c); err != nil {
			return err
		}
		for _, t := range texts {
			text, err := c.Rewrite(t.scenario, t.text)
			if err == nil {
				err = dir.WriteFile(t.scenario.Name+".yaml", text)
			}
			if err != nil {
				return err
			}
		}
		if asJSON {
			return printJSON(cmd, c)
		}
		return writeCalibration(cmd, c, dir, texts)
	}
	return cmd
}

// source is a scenario with its text.
type source struct {
	scenario *scenarios.Scenario
	text     []byte
}

func sources(names []string) (all []source, err error) {
	for _, name := range names {
		found, err := scenarios.Find(name)
		if err != nil {
			return nil, err
		}
		s, err := found.Parse()
		if err != nil {
			return nil, err
		}
		all = append(all, source{s, found.Text})
	}
	return all, nil
}

// chosen are the experiments of these names, or all.
func chosen(names []string) ([]calibrate.Experiment, error) {
	all := calibrate.Experiments()
	if len(names) == 0 {
		return all, nil
	}
	var some []calibrate.Experiment
	for _, name := range names {
		i := slices.IndexFunc(all, func(e calibrate.Experiment) bool { return e.Name == name })
		if i < 0 {
			var there []string
			for _, e := range all {
				there = append(there, e.Name)
			}
			return nil, usageError{fmt.Errorf("--only %s: the experiments are %s", name, strings.Join(there, ", "))}
		}
		some = append(some, all[i])
	}
	return some, nil
}

// calibration makes the runs, or takes those of an earlier one, and fits them.
func calibration(cmd *cobra.Command, all []calibrate.Experiment, links, out, refit string, repeat, retries int) (*calibrate.Calibration, runlog.Dir, error) {
	dir := runlog.Dir(refit)
	if refit == "" {
		if err := host.Ready(); err != nil {
			return nil, "", err
		}
		if out == "" {
			out = realrun.DefaultDir("calibrate", "machine")
		}
		var err error
		if dir, err = runlog.CreateDir(out); err != nil {
			return nil, "", err
		}
		if err := experiments(cmd, all, dir, links, repeat, retries); err != nil {
			if errors.Is(err, errors.ErrUnsupported) {
				return nil, "", errors.Join(err, os.RemoveAll(string(dir)))
			}
			return nil, "", err
		}
	}
	files, err := filepath.Glob(dir.Path("*/" + runlog.SummaryFile))
	if err != nil || len(files) == 0 {
		return nil, "", fmt.Errorf("no run in %s; name a directory that testbed calibrate has left", dir)
	}
	var runs []*calibrate.Run
	for _, f := range files {
		r, err := calibrate.ReadRun(filepath.Dir(f))
		if err != nil {
			return nil, "", err
		}
		runs = append(runs, r)
	}
	c, err := calibrate.Fit(runs)
	if err != nil {
		return nil, "", err
	}
	c.Made, c.Machine, c.Links, c.Versions = time.Now().Format(time.RFC3339), bench.ThisMachine(), runs[0].Summary.Links, versions()
	return c, dir, nil
}

// experiments makes the runs, each into a directory of its own.
func experiments(cmd *cobra.Command, all []calibrate.Experiment, dir runlog.Dir, links string, repeat, retries int) error {
	for n := range repeat {
		for k, e := range all {
			name := e.Name
			if n > 0 {
				name = fmt.Sprintf("%s-%d", name, n+1)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d: %s\n", n*len(all)+k+1, repeat*len(all), name)
			if err := experiment(cmd, e, dir.Path(name), links, retries); err != nil {
				return err
			}
		}
	}
	return nil
}

func experiment(cmd *cobra.Command, e calibrate.Experiment, dir, links string, retries int) error {
	s, err := scenarios.Parse(e.Name+".yaml", e.Source)
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		sum, err := realrun.Play(cmd.Context(), realrun.Options{Scenario: s, File: e.Name + ".yaml", Text: e.Source, Policy: e.Policy, Links: links, Dir: dir, Command: os.Args})
		if err != nil {
			return err
		}
		if validity(sum) == nil || try == retries {
			return nil
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "  again: fidelity %s%s\n", sum.Fidelity.Verdict, firstReason(sum))
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("removing an invalid run: %w", err)
		}
	}
}

func firstReason(sum runlog.Summary) string {
	if len(sum.Fidelity.Reasons) == 0 {
		return ""
	}
	return ", " + sum.Fidelity.Reasons[0]
}

// versions are what else a calibration depends on.
func versions() map[string]string {
	v := map[string]string{}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" || s.Key == "vcs.modified" {
			v[s.Key] = s.Value
		}
	}
	for _, m := range info.Deps {
		if m.Path == "github.com/quic-go/quic-go" {
			v["quic-go"] = m.Version
		}
	}
	return v
}

func writeCalibration(cmd *cobra.Command, c *calibrate.Calibration, dir runlog.Dir, texts []source) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
	line := func(what string, e calibrate.Estimate) {
		if e.Observations > 0 {
			fmt.Fprintf(w, "%s\t%.4g %s\t%.4g – %.4g\t%d\n", what, e.Value, e.Unit, e.Low, e.High, e.Observations)
		}
	}
	fmt.Fprintln(w, "what the machine adds\t\t95 % interval\tobservations")
	k := c.Costs
	line("inner step", k.Step)
	line("control message", k.Message)
	line("reduction", k.Reduce)
	line("  each hop", k.Hop)
	line("  each byte of all", k.ReduceByte)
	line("  if it has to connect", k.Dial)
	line("  efficiency of links", k.Efficiency)
	line("state fetch", k.Fetch)
	line("  each byte", k.FetchByte)
	line("joining", k.Join)
	fmt.Fprintln(w, "measured\t\t\t")
	m := c.Measured
	line("inner step of 100 ms", m.StepTime)
	line("  its standard deviation", m.StepJitter)
	line("coordinator, per round", m.CoordinatorPerRound)
	line("joiner's stall", m.JoinerStall)
	line("detection of a crash", m.Detection)
	line("  simulated", m.DetectionPredicted)
	fmt.Fprintln(w, "churn's network, middle links\t\t\t")
	line("base_latency", c.Churn.BaseLatency)
	line("bandwidth_bpus", c.Churn.BandwidthBps)
	fmt.Fprintln(w, "the analytic model\t\t\t")
	line("factor of volume / bandwidth (2)", c.Document.Volume)
	line("factor of latency (1)", c.Document.Latency)
	for _, s := range c.Document.Straggler {
		line(fmt.Sprintf("straggler coefficient (0.05) at σ %v", s.Sigma), s.Coefficient)
	}
	fmt.Fprintln(w, "residuals\tmedian (uncalibrated)\t90 %\t")
	for _, f := range c.Fits {
		fmt.Fprintf(w, "%s\t%.3g ms (%.3g ms)\t%.3g ms\t%d\n", f.What, f.Median, f.Before, f.P90, f.Observations)
	}
	fmt.Fprintln(w, "runs\tmeasured\tcalibrated, error\tuncalibrated")
	for _, r := range c.Runs {
		fmt.Fprintf(w, "%s\t%.3f s\t%.3f s, %+.1f %%\t%+.1f %%\n", r.Name, r.Measured, r.Fitted, 100*(r.Fitted/r.Measured-1), 100*(r.Links/r.Measured-1))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "\ncalibration: %s\n", dir.Path(calibrationFile))
	for _, t := range texts {
		fmt.Fprintf(cmd.OutOrStdout(), "calibrated scenario: %s\n", dir.Path(t.scenario.Name+".yaml"))
	}
	return nil
}
