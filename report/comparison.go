package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"testbed/policy"
	"testbed/report/words"
	"testbed/runlog"
	"testbed/scenarios"
	"testbed/stats"
)

// Comparison is the result of compare.
type Comparison struct {
	Scenario string `json:"scenario"`
	Sim      Pair   `json:"sim"`
	// SimLinks is simulated on the links of the plan, where Sim has churn's
	// network.
	SimLinks Pair `json:"sim_links,omitempty"`
	// Real holds the first pair of runs, Repeats the others.
	Real    Pair   `json:"real"`
	Repeats []Pair `json:"repeats,omitempty"`
	// SimRepeats holds the simulated pairs with the seeds of Repeats; where
	// they are missing, Sim stands for them.
	SimRepeats []Pair `json:"sim_repeats,omitempty"`
	// SimLinksRepeats are the same on the links of the plan.
	SimLinksRepeats []Pair  `json:"sim_links_repeats,omitempty"`
	Speedup         Speedup `json:"speedup"`
	// PredictionError is (simulated − measured) / measured wall-clock; of
	// repeats, the median.
	PredictionError map[string]float64 `json:"prediction_error"`
	// LinksPredictionError is that of SimLinks.
	LinksPredictionError map[string]float64 `json:"links_prediction_error,omitempty"`
	// Residuals splits, by policy, simulated − measured wall-clock of the pair
	// whose measured one is the median.
	Residuals  map[string]Residual `json:"residuals,omitempty"`
	Statistics Statistics          `json:"statistics"`
	Dir        string              `json:"dir"`
}

// Residual is a prediction's error in parts.
type Residual struct {
	Sim      runlog.Split `json:"sim"`
	SimLinks runlog.Split `json:"sim_links"`
}

// Pair holds a run under each policy, by the policy's name.
type Pair map[string]runlog.Summary

// Speedup is baseline's wall-clock divided by straggler's.
type Speedup struct {
	Sim      float64 `json:"sim"`
	SimLinks float64 `json:"sim_links,omitempty"`
	// Real is a number, or a list where the comparison was repeated.
	Real any `json:"real"`
}

// pairs returns all pairs of real runs.
func (c *Comparison) pairs() []Pair {
	return append([]Pair{c.Real}, c.Repeats...)
}

// simulated returns the simulated pair that belongs to a pair of real runs.
func (c *Comparison) simulated(i int) Pair {
	if i == 0 || i > len(c.SimRepeats) {
		return c.Sim
	}
	return c.SimRepeats[i-1]
}

// median is that of the wall-clocks under a policy.
func median(pairs []Pair, name string) policy.Time {
	var walls []policy.Time
	for _, p := range pairs {
		walls = append(walls, p[name].WallClock)
	}
	return policy.Median(walls)
}

// predictions are the simulated pairs that belong to the real ones.
func (c *Comparison) predictions(of func(i int) Pair) (all []Pair) {
	for i := range c.pairs() {
		all = append(all, of(i))
	}
	return all
}

func (pair Pair) speedup() float64 {
	if pair[scenarios.Straggler].WallClock == 0 {
		return 0
	}
	return float64(pair[scenarios.Baseline].WallClock) / float64(pair[scenarios.Straggler].WallClock)
}

func ratios(pairs []Pair) []float64 {
	var all []float64
	for _, p := range pairs {
		all = append(all, p.speedup())
	}
	return all
}

// Conclude computes what follows from the runs.
func (c *Comparison) Conclude() {
	c.Speedup = Speedup{Sim: c.Sim.speedup(), Real: c.Real.speedup()}
	if len(c.Repeats) > 0 {
		c.Speedup.Real = ratios(c.pairs())
	}
	c.PredictionError = c.errors(c.simulated)
	if c.SimLinks != nil {
		c.Speedup.SimLinks = c.SimLinks.speedup()
		c.LinksPredictionError = c.errors(c.onLinks)
		c.Residuals = map[string]Residual{}
		for _, name := range scenarios.PolicyNames {
			i := c.medianPair(name)
			measured := c.pairs()[i][name].Split
			c.Residuals[name] = Residual{c.simulated(i)[name].Split.Minus(measured), c.onLinks(i)[name].Split.Minus(measured)}
		}
	}
	var pairs []paired
	for i, real := range c.pairs() {
		pairs = append(pairs, paired{real: real, sim: c.simulated(i), links: c.onLinks(i)})
	}
	c.Statistics = statistics(pairs)
}

// onLinks is the simulation on planned links beside a pair of real runs.
func (c *Comparison) onLinks(i int) Pair {
	if i > 0 && i <= len(c.SimLinksRepeats) {
		return c.SimLinksRepeats[i-1]
	}
	return c.SimLinks
}

// medianPair is the pair of real runs with the median wall-clock under a policy,
// of two in the middle the one with the shorter.
func (c *Comparison) medianPair(name string) int {
	pairs := c.pairs()
	order := make([]int, len(pairs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(pairs[a][name].WallClock, pairs[b][name].WallClock) })
	return order[(len(order)-1)/2]
}

// errors are the medians of a prediction's errors, by policy.
func (c *Comparison) errors(predicted func(i int) Pair) map[string]float64 {
	median := map[string]float64{}
	for _, name := range scenarios.PolicyNames {
		var errors []float64
		for i, pair := range c.pairs() {
			if measured := float64(pair[name].WallClock); measured > 0 {
				errors = append(errors, (float64(predicted(i)[name].WallClock)-measured)/measured)
			}
		}
		if len(errors) > 0 {
			median[name] = stats.Median(errors)
		}
	}
	return median
}

// WriteComparison writes a comparison as text.
func WriteComparison(out io.Writer, s *scenarios.Scenario, c *Comparison) error {
	fmt.Fprintf(out, "%s: %s\n", s.Name, s.Description)
	fmt.Fprintf(out, "%d workers, %d outer steps of %d inner steps, %d parameters, %s links, seed %d; 1 ms of scenario time took %v\n\n",
		len(s.Workers), s.TargetOuterSteps, s.InnerSteps, s.Real.Parameters, c.Real[scenarios.Baseline].Links, s.Seed, s.RealDuration(1000))
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprint(w, "wall-clock\tsimulated\tmeasured\t\tsimulator's error")
	if c.SimLinks != nil {
		fmt.Fprint(w, "\ton planned links\terror")
	}
	fmt.Fprintln(w)
	simulated, onLinks := c.predictions(c.simulated), c.predictions(c.onLinks) // each with its seed
	for _, name := range scenarios.PolicyNames {
		wall := median(c.pairs(), name)
		fmt.Fprintf(w, "%s\t%s\t%s\t%.1f s\t%+.1f %%", name, words.Micros(median(simulated, name)), words.Micros(wall), s.RealDuration(wall).Seconds(), 100*c.PredictionError[name])
		if c.SimLinks != nil {
			fmt.Fprintf(w, "\t%s\t%+.1f %%", words.Micros(median(onLinks, name)), 100*c.LinksPredictionError[name])
		}
		fmt.Fprintln(w)
	}
	gains := ratios(c.pairs())
	measured := fmt.Sprintf("%.2f×", stats.Median(gains))
	if n := len(gains); n > 1 {
		measured += fmt.Sprintf(" (%.2f–%.2f in %d)", slices.Min(gains), slices.Max(gains), n)
	}
	fmt.Fprintf(w, "speed-up\t%.2f×\t%s\t\t", stats.Median(ratios(simulated)), measured)
	if c.SimLinks != nil {
		fmt.Fprintf(w, "\t%.2f×\t", stats.Median(ratios(onLinks)))
	}
	fmt.Fprintln(w)
	if err := w.Flush(); err != nil {
		return err
	}
	if c.Residuals != nil {
		if err := c.writeResiduals(out); err != nil {
			return err
		}
	}
	c.Statistics.write(out)
	if sim := c.Sim[scenarios.Baseline]; len(sim.NotSimulated) > 0 {
		fmt.Fprintf(out, "\n%s\n", leftOut(sim))
	}
	for _, name := range scenarios.PolicyNames {
		sim, real := c.Sim[name], c.Real[name]
		fmt.Fprintf(out, "\n%s\n", name)
		fmt.Fprintf(w, "  simulated\t%s\n", standing(sim))
		same := ""
		if standing(sim) == standing(real) {
			same = " (the same)"
		}
		fmt.Fprintf(w, "  measured\t%s%s\n", standing(real), same)
		fmt.Fprintf(w, "  same bytes\t%s\n", yesNo(real.BitIdentical))
		fmt.Fprintf(w, "  fidelity\t%s%s\n", real.Fidelity.Verdict, reasons(real.Fidelity))
		if !real.Complete {
			fmt.Fprintf(w, "  INCOMPLETE\t%d of %d outer steps\n", real.OuterSteps, s.TargetOuterSteps)
		}
		if err := w.Flush(); err != nil {
			return err
		}
		if len(real.Sidelined)+len(real.Evicted) > 0 {
			fmt.Fprintln(out, "  why, as measured:")
			for _, line := range decisions(real) {
				fmt.Fprintln(out, "    "+line)
			}
		}
	}
	fmt.Fprintf(out, "\nrecord: %s\n", c.Dir)
	return nil
}

// writeResiduals writes where the predictions' errors lie, in % of the measured
// wall-clock.
func (c *Comparison) writeResiduals(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "\nwhere the errors lie\tcompute\ttransfer\tcontrol\tstate fetch\tdeadline")
	for _, name := range scenarios.PolicyNames {
		wall := float64(c.pairs()[c.medianPair(name)][name].WallClock)
		if wall == 0 {
			continue
		}
		line := func(what string, s runlog.Split) {
			fmt.Fprintf(w, "%s, %s", name, what)
			for _, part := range []policy.Time{s.Compute, s.Transfer, s.Control, s.StateFetch, s.Deadline} {
				fmt.Fprintf(w, "\t%+.1f %%", 100*float64(part)/wall)
			}
			fmt.Fprintln(w)
		}
		line("simulated", c.Residuals[name].Sim)
		line("on planned links", c.Residuals[name].SimLinks)
	}
	return w.Flush()
}

// standing says in one line who was left out, taken back and removed.
func standing(sum runlog.Summary) string {
	var parts []string
	list := func(what string, members []runlog.Membership) {
		rounds := map[policy.ID][]string{}
		var order []policy.ID
		for _, m := range members {
			if rounds[m.ID] == nil {
				order = append(order, m.ID)
			}
			round := fmt.Sprint(m.Round)
			if m.Reason != "" {
				round += " (" + string(m.Reason) + ")"
			}
			rounds[m.ID] = append(rounds[m.ID], round)
		}
		for _, id := range order {
			noun := "round"
			if len(rounds[id]) > 1 {
				noun = "rounds"
			}
			parts = append(parts, fmt.Sprintf("%s %s in %s %s", scenarios.NodeName(id), what, noun, strings.Join(rounds[id], ", ")))
		}
	}
	list("sidelined", sum.Sidelined)
	list("back in time", sum.Rejoined)
	list("evicted", sum.Evicted)
	if len(parts) == 0 {
		return "nobody sidelined or evicted"
	}
	return strings.Join(parts, "; ")
}
