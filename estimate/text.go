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

// trim writes a number with up to four significant digits.
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

// nodes writes a number of nodes.
func nodes(n float64) string {
	if n == 1 {
		return "1 node"
	}
	return trim(n) + " nodes"
}

// writeItem writes a text as an item of a list, and breaks it at 80 characters.
func writeItem(w io.Writer, text string) {
	line := "  - "
	for i, word := range strings.Fields(text) {
		if i > 0 && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > 80 {
			fmt.Fprintln(w, line)
			line = "    " + word
			continue
		}
		if i > 0 {
			line += " "
		}
		line += word
	}
	fmt.Fprintln(w, line)
}

// WriteText writes an estimate as an answer: how long, what limits it, what to
// change first, and what to know before believing it.
func WriteText(w io.Writer, e Estimate) error {
	a := e.Answer()
	fmt.Fprintf(w, "%s\n%s\n\nWhat bounds the days: %s\n", a.Headline, a.About, a.Bottleneck)
	if err := writeRows(w, a.Bounds); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nWhat to change first (1 % of an input, with the days that it saves; or another choice, with the days of that run)")
	if err := writeRows(w, a.Changes); err != nil {
		return err
	}
	writeWarnings(w, e.Warnings)
	return nil
}

func writeRows(w io.Writer, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, r := range rows {
		fmt.Fprintf(t, "  %s\t%s\t%s\n", r.What, r.Value, r.Remark)
	}
	return t.Flush()
}

func writeWarnings(w io.Writer, all []Warning) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(w, "\nCaveats of this estimate (in brackets: section of the document)")
	for _, x := range all {
		writeItem(w, x.Text)
	}
}

// WritePresets lists the published runs, with estimated and reported figures.
func WritePresets(w io.Writer, all []Preset) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, p := range all {
		fmt.Fprintf(t, "%s\t%s\n", p.Name, p.Description)
		for _, r := range p.Reported {
			fmt.Fprintf(t, "\t  %s: reported %s %s, estimated %s (%.2f times as much)\n", r.What, trim(r.Value), r.Unit, trim(r.Estimate), r.Ratio)
		}
		fmt.Fprintf(t, "\t  %s\n", p.Source)
	}
	return t.Flush()
}

// WriteReliability writes the costs of failures.
func WriteReliability(w io.Writer, in ReliabilityInputs, out ReliabilityOutputs) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintf(t, "goodput\t%s %%\tof the time is useful, with mode %s\n", trim(100*out.Goodput), in.Mode)
	fmt.Fprintf(t, "failures\t%s a day\tof all GPUs together (%s): one every %s h, %s in the run\n", trim(out.FailuresPerDay), trim(out.GPUs), trim(out.MTBFHours), trim(out.ExpectedFailures))
	if out.CheckpointInterval != nil {
		fmt.Fprintf(t, "checkpoint\tevery %s h\tis the best interval\n", trim(*out.CheckpointInterval))
	}
	fmt.Fprintf(t, "time of a sync\t× %s\tbecause of slow nodes\n", trim(out.TailFactor))
	fmt.Fprintf(t, "learning\t%s %%\tof what synchronous training learns from each token\n", trim(100*out.Efficiency))
	fmt.Fprintf(t, "nodes paid for\t%s\tfor each useful node\n", trim(out.Cost))
	if in.CheckpointMode == "gpu_memory" && !out.GPUMemoryFeasible {
		fmt.Fprintf(t, "memory\ttoo small\tfor %s replicas of a checkpoint: checkpoints are written as with checkpoint_mode sync\n", trim(in.Replicas))
	}
	return t.Flush()
}
