package calibrate

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteText writes the calibration as tables.
func (c *Calibration) WriteText(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	line := func(what string, e Estimate) {
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
	line("  each byte, over all workers", k.ReduceByte)
	line("  if connections are set up", k.Dial)
	line("  efficiency of links", k.Efficiency)
	line("state fetch", k.Fetch)
	line("  each byte", k.FetchByte)
	line("joining", k.Join)
	fmt.Fprintln(w, "measured\t\t\t")
	m := c.Measured
	line("inner step", m.StepTime)
	line("  standard deviation", m.StepJitter)
	line("coordinator, per round", m.CoordinatorPerRound)
	line("joiner's stall", m.JoinerStall)
	line("detection of a crash", m.Detection)
	line("  simulated", m.DetectionPredicted)
	fmt.Fprintln(w, "churn's network, on the links of most experiments\t\t\t")
	line("base_latency", c.Churn.BaseLatency)
	line("bandwidth_bpus", c.Churn.BandwidthBps)
	fmt.Fprintln(w, "the analytic model (in brackets: the value that it assumes)\t\t\t")
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
	if len(c.Scenarios) > 0 {
		fmt.Fprintln(w, "calibrated scenarios\tbase_latency\tbandwidth_bpus, state_bytes\terror of rounding")
	}
	for _, p := range c.Scenarios {
		fmt.Fprintf(w, "%s\t%d µs\t%d, %d\t%+.2g %%\n", p.Scenario, p.BaseLatency, p.BandwidthBpus, p.StateBytes, 100*p.Error)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, s := range c.Steps {
		fmt.Fprintf(out, "inner steps of %s: %s\n", s.Scenario, &s)
		for _, of := range s.Classes {
			fmt.Fprintf(out, "  %s: %.4g times as long as the scenario says (%.4g – %.4g), parameter of the class %.4g, Kolmogorov–Smirnov distance %.3g over %d steps\n",
				cmp.Or(of.Name, "workers in no class"), of.Ratio.Value, of.Ratio.Low, of.Ratio.High, of.Parameter, of.KS, of.Ratio.Observations)
		}
	}
	for _, u := range c.Untold {
		if strings.HasPrefix(u.Cost, stepsOf) {
			fmt.Fprintf(out, "%s are not determined, so they stay as the scenario says: %s\n", u.Cost, u.Why)
			continue
		}
		fmt.Fprintf(out, "%s is not determined and keeps its default: %s\n", u.Cost, u.Why)
	}
	for _, l := range c.LeftOut {
		fmt.Fprintf(out, "rounds left out: %d (%s)\n", l.Rounds, l.Why)
	}
	if c.Coded > 0 {
		fmt.Fprintf(out, "reductions with entropy-coded values: %d (fitted with the recorded number of bytes)\n", c.Coded)
	}
	return nil
}
