package estimate

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// trim writes a number with up to four digits that matter.
func trim(x float64) string {
	switch a := math.Abs(x); {
	case a >= 1000 && a < 1e15:
		s := strconv.FormatFloat(math.Round(x), 'f', 0, 64)
		for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	case a >= 1000 || a > 0 && a < 1e-3:
		return strconv.FormatFloat(x, 'g', 3, 64)
	}
	return strconv.FormatFloat(x, 'g', 4, 64)
}

// wrapped indents a text and breaks it at 80 characters.
func wrapped(w io.Writer, first, rest, text string) {
	line := first
	for i, word := range strings.Fields(text) {
		if i > 0 && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > 80 {
			fmt.Fprintln(w, line)
			line = rest + word
			continue
		}
		if i > 0 {
			line += " "
		}
		line += word
	}
	fmt.Fprintln(w, line)
}

// WriteText writes an estimate as an answer: how long, what bounds it, what to
// change first, and what to know before it is believed.
func WriteText(w io.Writer, e Estimate) error {
	r := e.Results
	verdict := "within"
	if !r.feasible() {
		verdict = "beyond"
	}
	years := ""
	if r.Days > 2*365 {
		years = " (" + trim(r.Days/365) + " years)"
	}
	fmt.Fprintf(w, "%s days%s, %s the %s that a run may take\n", trim(r.Days), years, verdict, trim(r.MaxDays))
	fmt.Fprintf(w, "%s · %s nodes · %s·10⁹ parameters · %s·10¹² tokens · as the %s computes it\n\n", r.Mode, trim(e.Inputs.NumNodes), trim(e.Inputs.Parameters/1e9), trim(e.Inputs.Tokens/1e12), e.Variant)
	if err := writeBounds(w, e); err != nil {
		return err
	}
	if err := writeChanges(w, e); err != nil {
		return err
	}
	writeWarnings(w, e.Warnings)
	return nil
}

func writeWarnings(w io.Writer, all []Warning) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(w, "\nTo know before it is believed (in brackets: section of the document)")
	for _, x := range all {
		wrapped(w, "  - ", "    ", x.Text)
	}
}

func writeBounds(w io.Writer, e Estimate) error {
	r, in := e.Results, e.Inputs
	sync := r.GlobalCommSec + r.LatencySec
	fmt.Fprintf(w, "What bounds it: %s\n", strings.ToLower(r.Bottleneck))
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	switch {
	case r.IsSharded && !r.PPGroupMode:
		fmt.Fprintf(t, "  computing, a step\t%s s\t%s stages one after the other\n", trim(r.ComputeBlockSec), trim(r.PPStages))
		fmt.Fprintf(t, "  handing on, a step\t%s s\ttransfer %s s, latency %s s\n", trim(sync), trim(r.GlobalCommSec), trim(r.LatencySec))
	default:
		what := "computing between syncs"
		if r.PPGroupMode {
			what = "steps between syncs, handoffs included"
		}
		fmt.Fprintf(t, "  %s\t%s s\t%s inner steps of the model %s s\n", what, trim(r.ComputeBlockSec), trim(in.InnerSteps), trim(r.ComputeStepSec))
		if r.RegionalCommSec > 0 {
			fmt.Fprintf(t, "  a regional sync\t%s s\t%s for each global one\n", trim(r.RegionalCommSec), trim(in.RegionalSteps))
		}
		how := "computing waits for it"
		if in.StreamingEnabled {
			how = "while computing goes on"
		}
		fmt.Fprintf(t, "  a sync\t%s s\t%s\n", trim(sync), how)
		if rate := hidingRate(e); r.Bottleneck == "Network" && rate > 0 {
			fmt.Fprintf(t, "  rate for a sync as short\t%s Mbit/s\tinstead of %s\n", trim(rate), trim(in.BandwidthMbps))
		}
	}
	fmt.Fprintf(t, "  learning\t%s %%\tof synchronous training's, for each token: %s days without that\n", trim(r.Efficiency), trim(r.RawDays))
	fmt.Fprintf(t, "  use of the nodes\t%s %%\tMFU over the whole run\n", trim(r.GlobalMFU))
	return t.Flush()
}

// hidingRate is the rate, in Mbit/s, at which a sync takes as long as what is
// done between two of them; 0 if its latency alone takes longer, or if that
// depends on the rate as well.
func hidingRate(e Estimate) float64 {
	q := quantify(&e.Inputs, published(e.Variant))
	if q.sharded() && !e.Inputs.UseHierarchy {
		return 0
	}
	left := q.block/q.fGlobal - e.Inputs.LatencyMs/1000
	if left <= 0 {
		return 0
	}
	return 2 * q.volumeBits / left / 1e6
}

// shownChanges is how many slopes and how many choices are shown, leastShown
// the weakest slope, in percent for a percent.
const (
	shownChanges = 6
	leastShown   = 1e-3
)

func writeChanges(w io.Writer, e Estimate) error {
	fmt.Fprintln(w, "\nWhat to change first (days for 1 % of an input)")
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for i, d := range e.Derivatives {
		if i == shownChanges || d.Task || math.Abs(d.Elasticity) < leastShown {
			break
		}
		direction := "more"
		if d.Elasticity > 0 {
			direction = "less"
		}
		fmt.Fprintf(t, "  1 %% %s %s\t−%s days\t−%s %%\n", direction, d.Input, trim(math.Abs(d.Elasticity)*e.Results.Days/100), trim(math.Abs(d.Elasticity)))
	}
	for i, a := range Alternatives(e.Inputs, e.Variant) {
		if i == shownChanges {
			break
		}
		fmt.Fprintf(t, "  %s: %s\t%s days\t%s\n", a.Field, a.Value, trim(a.Days), a.Mode)
	}
	return t.Flush()
}

// WritePresets lists the published runs and what is estimated beside what was
// reported.
func WritePresets(w io.Writer, all []Preset) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, p := range all {
		fmt.Fprintf(t, "%s\t%s\n", p.Name, p.Description)
		for _, r := range p.Reported {
			fmt.Fprintf(t, "\t  %s: reported %s %s, estimated %s (× %.2f)\n", r.What, trim(r.Value), r.Unit, trim(r.Estimate), r.Ratio)
		}
		fmt.Fprintf(t, "\t  %s\n", p.Source)
	}
	return t.Flush()
}

// WriteReliability writes what failures cost.
func WriteReliability(w io.Writer, in ReliabilityInputs, out ReliabilityOutputs) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintf(t, "goodput\t%s %%\tof the time counts, with mode %s\n", trim(100*out.Goodput), in.Mode)
	fmt.Fprintf(t, "failures\t%s a day\tof %s GPUs; one every %s h, %s in the run\n", trim(out.FailuresPerDay), trim(out.GPUs), trim(out.MTBFHours), trim(out.ExpectedFailures))
	if out.CheckpointInterval != nil {
		fmt.Fprintf(t, "checkpoint\tevery %s h\tat best\n", trim(*out.CheckpointInterval))
	}
	fmt.Fprintf(t, "a sync takes\t%s times\tas long, for slow nodes\n", trim(out.TailFactor))
	fmt.Fprintf(t, "learning\t%s %%\n", trim(100*out.Efficiency))
	fmt.Fprintf(t, "nodes paid\t%s\tfor each that counts\n", trim(out.Cost))
	if in.CheckpointMode == "gpu_memory" && !out.GPUMemoryFeasible {
		fmt.Fprintf(t, "memory\ttoo small\tfor %s replicas of a checkpoint: it is written like a synchronous one\n", trim(in.Replicas))
	}
	return t.Flush()
}
