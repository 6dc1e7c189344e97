package emulated

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

	"testbed/internal/stats"
	"testbed/record"
)

// Write writes the result of an emulation in words.
func (r *Result) Write(w io.Writer) error {
	in := &r.Run.Inputs
	fmt.Fprintf(w, "%v nodes at %s Mbit/s, %s ms of round trip, %s·10⁶ values: 1 s of the emulation stands for %s of the run\n",
		in.NumNodes, digits(in.BandwidthMbps), digits(in.LatencyMs), digits(in.Parameters/1e6), seconds(1/r.Scale))
	for _, n := range r.Notes {
		fmt.Fprintf(w, "  ! %s\n", n)
	}
	if r.World == record.Sim {
		fmt.Fprintf(w, "simulated on the planned links (rounds: %d); nothing was run on the emulated network\n\n", r.Round.N)
	} else {
		var said []string
		for _, v := range r.Verdicts {
			said = append(said, string(v))
		}
		fmt.Fprintf(w, "measured on the emulated network (rounds: %d; fidelity of the runs: %s)\n\n", r.Round.N, strings.Join(said, ", "))
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tround, s\toff by\tcommunication\toff by\t")
	name := map[string]string{record.Sim: Simulated, record.Real: "played"}[r.World]
	fmt.Fprintf(t, "%s\t%s\t\t%s %%\t\t\n", name, between(&r.Round, 1), between(&r.Share, 100))
	for _, p := range r.Predictions {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s %%\t%s\t\n", p.By, digits(p.Round), percent(p.RoundRatio), digits(100*p.Share), percent(p.ShareRatio))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nTest of the assumptions: an assumption held if it lies in the interval of the values of the rounds,\nor if its error changes the time by less than %v %%\n", 100*Near)
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "term\tpage\tmeasured\t%s\tpage off by\tmeasured off by\t\n", name)
	for i := range r.Terms {
		x := &r.Terms[i]
		measured, shown := "–", "not tested here"
		if x.Measured != nil {
			measured = digits(*x.Measured)
		}
		if x.Played != nil {
			shown = between(x.Played, 1)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", x.Name, digits(x.Page), measured, shown, x.verdict(&x.Page, x.PageHeld), x.verdict(x.Measured, x.Held), x.What)
	}
	fmt.Fprintln(t, "learning, memory\t\t\tnot tested here\t\t\tthe testbed trains nothing and holds no model")
	if err := t.Flush(); err != nil {
		return err
	}
	switch {
	case r.Whole != nil:
		fmt.Fprintf(w, "\nThe run itself, %v nodes whose syncs do not overlap computing, needs %s for an outer step with measured terms,\nand %s by the formulas of the variant page. It needs %s if measured terms have the same error in that run as in this emulation.\n",
			r.Of.NumNodes, seconds(r.Whole.Measured), seconds(r.Whole.Page), seconds(r.Whole.Corrected))
	case r.Measurements == nil:
		fmt.Fprintln(w, "\nWith --calibration this output also contains measured terms, and their estimate for the run itself.")
	}
	return nil
}

// verdict says how large an assumption's error is.
func (t *Term) verdict(x *float64, held *bool) string {
	switch {
	case held == nil:
		return ""
	case *held:
		return "held"
	case *x == 0 || math.Abs(t.Played.Median) <= t.Tolerance: // a ratio would be meaningless
		return "off by " + digits(math.Abs(*x-t.Played.Median))
	}
	return percent(*x / t.Played.Median)
}

// between writes a median with its interval.
func between(e *stats.Estimate, times float64) string {
	median := digits(times * e.Median)
	if e.Interval == nil {
		return median
	}
	low, high := digits(times*e.Interval.Low), digits(times*e.Interval.High)
	if low == high { // as simulated rounds are
		return median
	}
	return fmt.Sprintf("%s (%s–%s)", median, low, high)
}

// percent writes the difference of a ratio from 1.
func percent(ratio float64) string {
	text := fmt.Sprintf("%+.1f %%", 100*(ratio-1))
	return strings.Replace(text, "-", "−", 1)
}

func seconds(s float64) string { return digits(s) + " s" }

// digits writes four significant digits, without an exponent if possible.
func digits(x float64) string {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return strconv.FormatFloat(x, 'g', -1, 64)
	}
	places := max(0, 3-int(math.Floor(math.Log10(math.Abs(x)))))
	text := strconv.FormatFloat(x, 'f', places, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return strings.Replace(text, "-", "−", 1)
}
