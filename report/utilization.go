package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"testbed/internal/stats"
	"testbed/record"
)

// utilizations are the different figures of a run called utilization, with
// explanations. A measured run does not have all of them.
var utilizations = []struct {
	suffix, legend string
	of             func(record.Summary) *float64
}{
	{"", "utilization: the share of the membership time that was inner steps. In brackets: the gain over the first policy",
		func(sum record.Summary) *float64 { return &sum.ComputeFraction }},
	{", churn-like", "churn-like: a reconstruction of the utilization that churn publishes, which may not be its definition",
		func(sum record.Summary) *float64 { return sum.ChurnLikeUtilization }},
}

// writeUtilization writes a column for each world with the utilization under
// every policy, and its gain over the reference.
func (c *Comparison) writeUtilization(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprint(w, "\nutilization")
	var played [][]Set
	for _, world := range worlds {
		if sets := c.sets(world); sets != nil {
			played = append(played, sets)
			fmt.Fprint(w, "\t", worldText(world))
		}
	}
	fmt.Fprintln(w)
	var legend []string
	for _, u := range utilizations {
		shown := false
		for _, name := range c.Policies {
			row, given := name+u.suffix, false
			for _, sets := range played {
				text, ok := gainText(sets, c.Policies[0], name, u.of)
				row, given = row+"\t"+text, given || ok
			}
			if given {
				fmt.Fprintln(w, row)
				shown = true
			}
		}
		if shown {
			legend = append(legend, u.legend)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(legend) > 0 {
		fmt.Fprintln(out, "\n"+strings.Join(legend, "\n"))
	}
	return nil
}

// gainText is the median of a figure over a world's complete runs, and the
// median of its difference from the reference's figure with the same seed. ok
// is false if no run has the figure.
func gainText(sets []Set, reference, name string, of func(record.Summary) *float64) (text string, ok bool) {
	var values, gains []float64
	for _, set := range sets {
		value, before := of(set[name]), of(set[reference])
		if value == nil || !set[name].Complete {
			continue
		}
		values = append(values, *value)
		if before != nil && set[reference].Complete {
			gains = append(gains, *value-*before)
		}
	}
	if len(values) == 0 {
		return "–", false
	}
	text = fmt.Sprintf("%.3f", stats.Median(values))
	if name != reference && len(gains) > 0 {
		text += fmt.Sprintf(" (%+.3f)", stats.Median(gains))
	}
	return text, true
}
