package bench

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"testbed/allreduce/int8"
	"testbed/internal/errs"
)

// WriteText writes the result for a person.
func (r *Ring) WriteText(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(w, name+"\t"+format+"\n", args...) }
	line("all-reduce", "%d workers × %d values (%s), %s, %s", r.Workers, r.Elements, r.Data, r.Algorithm, r.Format().Name())
	if l := r.Links; l.Scenario != "" {
		line("links", "the links of %s, the slowest with %v (%s)", l.Scenario, l.SlowestRate, l.Backend)
	} else {
		line("links", "%v up and down, one-way delay %v ± %v, loss %v (%s)", l.Rate, l.OneWayDelay, l.Jitter, l.Loss, l.Backend)
		if r.Groups > 1 {
			line("groups", "%d groups, one-way delay between groups %v", r.Groups, l.GroupDelay)
		}
	}
	for _, h := range r.Links.Hosts {
		line("host", "%s: %s", h.Name, strings.Join(h.Nodes, " "))
	}
	line("machine", "%s", r.Machine.line())
	line("time", "%.4g s, median of %d, spread %.0f %%", r.SecondsMedian, r.Repeat, 100*r.Spread)
	if r.BoundSeconds != nil {
		line("bound", "%.4g s at 8 bit per value: %.3f × the bound", *r.BoundSeconds, *r.RatioToBound)
	}
	if r.BusyLink != "" {
		line("", "the bound assumes the planned rates. While packets waited, %s sent at %.1f %% of its planned rate, and no link deviated more", r.BusyLink, 100*r.BusyShare)
	}
	if o := r.Ordered; o != nil {
		line("order", "%v: %.3f × as fast as the naive order (%.4g s), predicted %.3f ×", o.Ring, o.MeasuredGain, o.NaiveSecondsMedian, o.PredictedGain)
	}
	line("phases", "start %.4g s, reduce-scatter %.4g s, all-gather %.4g s", r.Phases.StartSeconds, r.Phases.ReduceScatterSeconds, r.Phases.AllGatherSeconds)
	line("bandwidth", "%.3f GB/s of float32, %.3f GB/s of the bus", r.AlgorithmGBs, r.BusGBs)
	line("bytes", "%.2f MB of frames, %.2f MB on the wire, %d connections (sums over all workers)", float64(r.FrameBytes)/1e6, float64(r.BytesOnWire)/1e6, r.ConnectionsUsed)
	if r.Bits <= 8 { // others have no codes
		line("coding", "entropy %s: codes shortened in %.0f %% of the reductions", r.Entropy, 100*r.CodedShare)
	}
	line("processor", "%.3g s of the workers, %.3g s of the router", r.CPUSeconds, r.RouterCPUSeconds)
	if r.MemoryBytes != nil {
		line("memory", "%.1f MB beyond input and output, %.2f × the vector", float64(*r.MemoryBytes)/1e6, r.MemoryRatio)
	}
	line("error", "%.3f %% (relative L2)", 100*r.RelativeError)
	if r.ErrorFeedback {
		line("", "%.3f %% of the mean over all reductions, with error feedback", 100*r.AveragedError)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := r.writeRivals(out); err != nil {
		return err
	}
	for _, n := range r.Notes {
		fmt.Fprintln(out, "note: "+n)
	}
	if !r.BitIdentical {
		fmt.Fprintln(out, "NOT VALID: the ranks ended with different bytes")
	}
	return nil
}

// writeRivals writes the rivals' figures as a table, and then their problems.
func (r *Ring) writeRivals(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	head := "rivals, over TCP\ttime\tspread\tring ÷ rival\tprocessor\terror\tversion\n"
	for _, a := range r.Against {
		if a.Problem != "" {
			continue
		}
		accuracy := "–"
		if a.RelativeError != nil {
			accuracy = fmt.Sprintf("%.3f %%", 100**a.RelativeError)
		}
		fmt.Fprintf(w, "%s%s\t%.4g s\t%.0f %%\t%.3f\t%.3g s\t%s\t%s\n", head, a.Label(), a.SecondsMedian, 100*a.Spread, a.Ratio, a.CPUSeconds, accuracy, a.Version)
		head = ""
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, a := range r.Against {
		switch {
		case a.Problem != "":
			fmt.Fprintf(out, "%s: %s\n", a.Label(), a.Problem)
		case a.BitIdentical != nil && !*a.BitIdentical:
			fmt.Fprintf(out, "%s: the ranks ended with different bytes\n", a.Label())
		}
	}
	return nil
}

// WriteKernels writes the machine, the kernels and then the formats, for a
// person.
func WriteKernels(out io.Writer, m Machine, results []Kernel) error {
	fmt.Fprintln(out, m.line()+"\n")
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "kernel\troute\tsize\tcores\tGB/s\tspread\t× memcpy\t× read\t× one core\t")
	for _, k := range results {
		scaling := ""
		if k.Cores > 1 && k.Scaling > 0 {
			scaling = fmt.Sprintf("%.2f", k.Scaling)
		}
		fmt.Fprintf(w, "%s\t%s\t%v\t%d\t%.2f\t%.0f %%\t%.2f\t%.2f\t%s\t\n",
			k.Kernel, routeCell(k.Route, k.Taken), Size(k.Bytes), k.Cores, k.GBs, 100*k.Spread, k.Ratio, k.ReadRatio, scaling)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := writeChoices(out, results); err != nil {
		return err
	}
	if verdict := autoVerdict(results); verdict != "" {
		fmt.Fprintln(out, "\n"+verdict)
	}
	return writeFormats(out, Formats(results))
}

// WriteAnswer writes a short result for a person: the machine, the kernels of
// route auto beside memcpy, plain Go and the fastest route that was measured,
// and the formats' errors.
func WriteAnswer(out io.Writer, m Machine, results []Kernel) error {
	fmt.Fprintln(out, m.line()+"\n")
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "kernel\tsize\tauto takes\tGB/s\tspread\t× memcpy\t× go\t× fastest\tfastest\t")
	for _, k := range results {
		switch {
		case k.Kernel == "memcpy":
			fmt.Fprintf(w, "memcpy\t%v\t\t%.2f\t%.0f %%\t%.2f\t\t\t\t\n", Size(k.Bytes), k.GBs, 100*k.Spread, k.Ratio)
		case k.Route == int8.Auto:
			plain := slices.IndexFunc(results, func(o Kernel) bool {
				return o.Kernel == k.Kernel && o.Bytes == k.Bytes && o.Cores == k.Cores && o.Route == int8.Routes()[0]
			})
			fmt.Fprintf(w, "%s\t%v\t%s\t%.2f\t%.0f %%\t%.2f\t%.1f\t%.2f\t%s\t\n",
				k.Kernel, Size(k.Bytes), k.Taken, k.GBs, 100*k.Spread, k.Ratio, k.GBs/results[plain].GBs, k.OfBest, k.Best)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out, "\n"+autoVerdict(results))
	for _, f := range Formats(results) {
		fmt.Fprintf(out, "error of %s, %.3f bytes a value:", f.Name, f.BytesPerValue)
		for i, a := range f.Accuracy {
			fmt.Fprintf(out, "%s %.3g %% (%s)", []string{"", ","}[min(i, 1)], 100*a.RelativeError, filepath.Base(string(a.Data)))
		}
		fmt.Fprintln(out)
	}
	return nil
}

// autoVerdict says in how many cases the route that auto takes is the fastest,
// and how much it loses where it loses most. It is empty if auto was not
// measured beside other routes.
func autoVerdict(results []Kernel) string {
	cases, right := 0, 0
	worst := Kernel{OfBest: math.Inf(1)}
	for _, k := range results {
		if k.Best == "" {
			continue
		}
		if cases++; k.OfBest >= 1 {
			right++
		}
		if k.OfBest < worst.OfBest {
			worst = k
		}
	}
	switch {
	case cases == 0:
		return ""
	case right == cases && cases == 1:
		return "auto takes the fastest route in the only case."
	case right == cases:
		return fmt.Sprintf("auto takes the fastest route in all %d cases.", cases)
	}
	return fmt.Sprintf("auto takes the fastest route in %d of %s. It loses most in %s at %v: %s is %.0f %% faster than %s.",
		right, errs.Count(cases, "case"), worst.Kernel, Size(worst.Bytes), worst.Best, 100*(1/worst.OfBest-1), worst.Taken)
}

// writeChoices explains the choices of route auto, once for each kernel and
// size with more than one form.
func writeChoices(out io.Writer, results []Kernel) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	head := "\nthe choices of route auto, measured at its first use\nkernel\tsize\troute\tmeasured\tms\t\n"
	for i, k := range results {
		same := func(other Kernel) bool {
			return other.Choice != nil && other.Kernel == k.Kernel && other.Bytes == k.Bytes
		}
		if k.Choice == nil || len(k.Choice.Rates) == 0 || slices.ContainsFunc(results[:i], same) {
			continue
		}
		fmt.Fprintf(w, "%s%s\t%v\t%s\t%s\t%.1f\t\n", head, k.Kernel, Size(k.Bytes), k.Choice.Route, k.Choice.Why(), float64(k.Choice.MeasuringUS)/1e3)
		head = ""
	}
	return w.Flush()
}

// routeCell is a route and, for auto, the route that it took.
func routeCell(route, taken string) string {
	if taken == "" {
		return route
	}
	return route + ": " + taken
}

// writeFormats writes the costs and the errors of each format.
func writeFormats(out io.Writer, rows []Format) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\nGB/s at %v, cores: %d; relative error (bias), %%\n", Size(rows[0].Bytes), rows[0].Cores)
	fmt.Fprint(w, "format\troute\tbytes/value\tquantise\tdequantise+add\tring step\t")
	for _, a := range rows[0].Accuracy {
		fmt.Fprintf(w, "%s\t", filepath.Base(string(a.Data)))
	}
	fmt.Fprintln(w)
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%.3f\t%.2f\t%.2f\t%.2f\t", r.Name, routeCell(r.Route, r.Taken), r.BytesPerValue, r.Quantise, r.DequantiseAdd, r.RingStep)
		for _, a := range r.Accuracy {
			fmt.Fprintf(w, "%.3g (%+.2f)\t", 100*a.RelativeError, 100*a.Bias)
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}
