package experiment

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"testbed/experiment/tune"
	"testbed/policy"
	"testbed/report"
	"testbed/report/words"
	"testbed/scenarios"
)

// fewPoints is the number of points of a front that a person wants to read.
const fewPoints = 10

// WriteTuned writes the result of a tuning in words: the front, the policies
// without tuning, and the comparison of the chosen points.
func WriteTuned(out io.Writer, s *scenarios.Scenario, t *Tuned) error {
	policies := "1 policy"
	if n := len(t.Policies); n != 1 {
		policies = fmt.Sprintf("%d policies", n)
	}
	fmt.Fprintf(out, "%s: simulated %s points of %s, each with %s. Pareto front, over %s:\n\n",
		t.Scenario, words.Thousands(int64(t.Points)), policies, words.Count(len(t.Seeds), "seed"), words.Count(len(t.HeldOut), "held-out seed"))
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	priced, price := "work lost", func(p tune.Point) string { return fmt.Sprintf("%.1f %%", 100*p.Lost) }
	if len(t.Front) > 0 && t.Front[0].Loss > 0 {
		priced, price = "validation loss", func(p tune.Point) string { return fmt.Sprintf("%.3f", p.Loss) }
	}
	fmt.Fprintf(w, "policy\twall-clock\t÷ %s\t%s\t\n", t.Policies[0], priced)
	reference := 0.0
	for _, p := range t.Defaults {
		if p.Policy == t.Policies[0] && p.Complete {
			reference = p.WallClock
		}
	}
	row := func(p tune.Point, note string) {
		switch {
		case !p.Complete:
			fmt.Fprintf(w, "%s\tincomplete\t\t\t%s\n", p.Policy, note)
		case reference == 0:
			fmt.Fprintf(w, "%s\t%s\t\t%s\t%s\n", p.Policy, words.Micros(policy.Time(p.WallClock)), price(p), note)
		default:
			fmt.Fprintf(w, "%s\t%s\t%.3f\t%s\t%s\n", p.Policy, words.Micros(policy.Time(p.WallClock)), p.WallClock/reference, price(p), note)
		}
	}
	few, more := tune.Choose(t.Front, fewPoints), 0
	for _, p := range t.Front {
		if !slices.Contains(few, p) && !slices.Contains(t.Chosen, p.Policy) {
			more++
			continue
		}
		note := ""
		if slices.Contains(t.Chosen, p.Policy) {
			note = "chosen"
		}
		row(p, note)
	}
	if more > 0 {
		fmt.Fprintf(w, "… and %s of the front, in %s\t\t\t\t\n", words.Count(more, "more point"), TuningFile)
	}
	fmt.Fprintln(w, "\npolicies with the parameters of the scenario\t\t\t\t")
	for _, p := range t.Defaults {
		row(p, "")
	}
	if err := w.Flush(); err != nil || t.Comparison == nil {
		return err
	}
	fmt.Fprintln(out)
	return report.WriteComparison(out, s, t.Comparison, false)
}
