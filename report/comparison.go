package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"testbed/policy"
	"testbed/runlog"
	"testbed/scenarios"
	"testbed/stats"
)

// Comparison is the result of compare.
type Comparison struct {
	Scenario string `json:"scenario"`
	Sim      Pair   `json:"sim"`
	// Real holds the first pair of runs, Repeats the others.
	Real    Pair   `json:"real"`
	Repeats []Pair `json:"repeats,omitempty"`
	// SimRepeats holds the simulated pairs with the seeds of Repeats; where
	// they are missing, Sim stands for them.
	SimRepeats []Pair  `json:"sim_repeats,omitempty"`
	Speedup    Speedup `json:"speedup"`
	// PredictionError is (simulated − measured) / measured wall-clock; of
	// repeats, the median.
	PredictionError map[string]float64 `json:"prediction_error"`
	Statistics      Statistics         `json:"statistics"`
	Dir             string             `json:"dir"`
}

// Pair holds a run under each policy, by the policy's name.
type Pair map[string]runlog.Summary

// Speedup is baseline's wall-clock divided by straggler's.
type Speedup struct {
	Sim float64 `json:"sim"`
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

// walls returns the measured wall-clocks under a policy.
func (c *Comparison) walls(name string) []policy.Time {
	var walls []policy.Time
	for _, p := range c.pairs() {
		walls = append(walls, p[name].WallClock)
	}
	return walls
}

func (pair Pair) speedup() float64 {
	if pair[scenarios.Straggler].WallClock == 0 {
		return 0
	}
	return float64(pair[scenarios.Baseline].WallClock) / float64(pair[scenarios.Straggler].WallClock)
}

func (c *Comparison) ratios() []float64 {
	var all []float64
	for _, p := range c.pairs() {
		all = append(all, p.speedup())
	}
	return all
}

// Conclude computes what follows from the runs.
func (c *Comparison) Conclude() {
	c.Speedup = Speedup{Sim: c.Sim.speedup(), Real: c.Real.speedup()}
	if len(c.Repeats) > 0 {
		c.Speedup.Real = c.ratios()
	}
	c.PredictionError = map[string]float64{}
	for _, name := range scenarios.PolicyNames {
		var errors []float64
		for i, pair := range c.pairs() {
			if measured := float64(pair[name].WallClock); measured > 0 {
				errors = append(errors, (float64(c.simulated(i)[name].WallClock)-measured)/measured)
			}
		}
		if len(errors) > 0 {
			c.PredictionError[name] = stats.Median(errors)
		}
	}
	c.Statistics = c.statistics()
}

// WriteComparison writes a comparison as text.
func WriteComparison(out io.Writer, s *scenarios.Scenario, c *Comparison) error {
	fmt.Fprintf(out, "%s: %s\n", s.Name, s.Description)
	fmt.Fprintf(out, "%d workers, %d outer steps of %d inner steps, %d parameters, %s links, seed %d; 1 ms of scenario time took %v\n\n",
		len(s.Workers), s.TargetOuterSteps, s.InnerSteps, s.Real.Parameters, c.Real[scenarios.Baseline].Links, s.Seed, s.RealDuration(1000))
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "wall-clock\tsimulated\tmeasured\t\tsimulator's error")
	for _, name := range scenarios.PolicyNames {
		wall := policy.Median(c.walls(name))
		fmt.Fprintf(w, "%s\t%s\t%s\t%.1f s\t%+.1f %%\n", name, micros(c.Sim[name].WallClock), micros(wall), s.RealDuration(wall).Seconds(), 100*c.PredictionError[name])
	}
	ratios := c.ratios()
	measured := fmt.Sprintf("%.2f×", stats.Median(ratios))
	if n := len(ratios); n > 1 {
		measured += fmt.Sprintf(" (%.2f–%.2f in %d)", slices.Min(ratios), slices.Max(ratios), n)
	}
	fmt.Fprintf(w, "speed-up\t%.2f×\t%s\t\t\n", c.Speedup.Sim, measured)
	if err := w.Flush(); err != nil {
		return err
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
