package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"testbed/node/host"
	"testbed/policy"
	"testbed/runlog"
	"testbed/scenarios"
)

// comparison is the result of compare.
type comparison struct {
	Scenario string                    `json:"scenario"`
	Sim      map[string]runlog.Summary `json:"sim"`
	// Real holds the first pair of runs, Repeats the others.
	Real    map[string]runlog.Summary   `json:"real"`
	Repeats []map[string]runlog.Summary `json:"repeats,omitempty"`
	Speedup speedup                     `json:"speedup"`
	// PredictionError is (simulated − measured) / measured wall-clock; the
	// median of the repeats is taken as measured.
	PredictionError map[string]float64 `json:"prediction_error"`
	Dir             string             `json:"dir"`
}

// speedup is baseline's wall-clock divided by straggler's.
type speedup struct {
	Sim float64 `json:"sim"`
	// Real is a number, or a list where the comparison was repeated.
	Real any `json:"real"`
}

func compareCommand() *cobra.Command {
	var flags realFlags
	var repeat int
	cmd := &cobra.Command{
		Use: "compare SCENARIO", Short: "Both policies, simulated and on a real network, side by side", Args: oneScenario,
		ValidArgsFunction: completeScenario,
		Long: `Simulates the scenario under both policies, runs it under both on a real
network, and shows the four results side by side: wall-clock, speed-up, and who
was sidelined and evicted in which round and why. The speed-up is the
baseline's wall-clock divided by the straggler policy's.

Exits with 3 if a real run is not valid (see testbed run --help).`,
	}
	flags.declare(cmd)
	cmd.Flags().IntVar(&repeat, "repeat", 1, "how often to run each policy on the real network")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if repeat < 1 {
			return usageError{fmt.Errorf("--repeat %d must be at least 1", repeat)}
		}
		s, o, err := flags.load(args[0])
		if err != nil {
			return err
		}
		dir := flags.out
		if dir == "" {
			dir = host.DefaultDir(s.Name, "compare")
		}
		if _, err := runlog.CreateDir(dir); err != nil {
			return err
		}
		c := comparison{Scenario: s.Name, Dir: dir, Sim: map[string]runlog.Summary{}}
		for _, name := range scenarios.PolicyNames {
			box, err := runlog.CreateDir(filepath.Join(dir, "sim-"+name))
			if err != nil {
				return err
			}
			sum, err := simulate(s, name, box.Path(runlog.EventsFile))
			if err != nil {
				return err
			}
			sum.Dir = string(box)
			if err := box.WriteJSON(runlog.SummaryFile, sum); err != nil {
				return err
			}
			c.Sim[name] = sum
		}
		var all []runlog.Summary
		for n := range repeat {
			pair := map[string]runlog.Summary{}
			for _, name := range scenarios.PolicyNames {
				o.Policy, o.Dir = name, filepath.Join(dir, "real-"+name)
				if repeat > 1 {
					o.Dir += fmt.Sprintf("-%d", n+1)
				}
				show := newProgress(cmd.ErrOrStderr(), s, name)
				o.Progress = show.step
				sum, err := host.Run(cmd.Context(), o)
				show.end()
				if errors.Is(err, errors.ErrUnsupported) {
					return errors.Join(err, os.RemoveAll(dir)) // nothing has run
				}
				if err != nil {
					fmt.Fprintf(cmd.ErrOrStderr(), "what there is of the record is in %s\n", dir)
					return err
				}
				pair[name] = sum
				all = append(all, sum)
			}
			if n == 0 {
				c.Real = pair
			} else {
				c.Repeats = append(c.Repeats, pair)
			}
		}
		c.conclude()
		if err := runlog.Dir(dir).WriteJSON("comparison.json", c); err != nil {
			return err
		}
		if flags.json {
			err = printJSON(cmd, c)
		} else {
			err = printComparison(cmd, s, c)
		}
		if err != nil {
			return err
		}
		return validity(all...)
	}
	return cmd
}

// pairs returns all pairs of real runs.
func (c *comparison) pairs() []map[string]runlog.Summary {
	return append([]map[string]runlog.Summary{c.Real}, c.Repeats...)
}

// walls returns the measured wall-clocks under a policy.
func (c *comparison) walls(name string) []policy.Time {
	var walls []policy.Time
	for _, p := range c.pairs() {
		walls = append(walls, p[name].WallClock)
	}
	return walls
}

func ratio(pair map[string]runlog.Summary) float64 {
	if pair[scenarios.Straggler].WallClock == 0 {
		return 0
	}
	return float64(pair[scenarios.Baseline].WallClock) / float64(pair[scenarios.Straggler].WallClock)
}

func (c *comparison) ratios() []float64 {
	var all []float64
	for _, p := range c.pairs() {
		all = append(all, ratio(p))
	}
	return all
}

func (c *comparison) conclude() {
	c.Speedup = speedup{Sim: ratio(c.Sim), Real: ratio(c.Real)}
	if len(c.Repeats) > 0 {
		c.Speedup.Real = c.ratios()
	}
	c.PredictionError = map[string]float64{}
	for _, name := range scenarios.PolicyNames {
		if measured := float64(policy.Median(c.walls(name))); measured > 0 {
			c.PredictionError[name] = (float64(c.Sim[name].WallClock) - measured) / measured
		}
	}
}

func printComparison(cmd *cobra.Command, s *scenarios.Scenario, c comparison) error {
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%s: %s\n", s.Name, s.Description)
	fmt.Fprintf(out, "%d workers, %d outer steps of %d inner steps, %d parameters, %s links, seed %d; 1 ms of scenario time took %v\n\n",
		len(s.Workers), s.TargetOuterSteps, s.InnerSteps, s.Real.Parameters, c.Real[scenarios.Baseline].Links, s.Seed, s.RealDuration(1000))
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "wall-clock\tsimulated\tmeasured\t\tsimulator's error")
	for _, name := range scenarios.PolicyNames {
		wall := policy.Median(c.walls(name))
		fmt.Fprintf(w, "%s\t%s\t%s\t%.1f s\t%+.1f %%\n", name, micros(c.Sim[name].WallClock), micros(wall), realSeconds(s, wall), 100*c.PredictionError[name])
	}
	ratios := c.ratios()
	slices.Sort(ratios)
	measured := fmt.Sprintf("%.2f×", ratios[len(ratios)/2])
	if len(ratios) > 1 {
		measured += fmt.Sprintf(" (%.2f–%.2f in %d)", ratios[0], ratios[len(ratios)-1], len(ratios))
	}
	fmt.Fprintf(w, "speed-up\t%.2f×\t%s\t\t\n", c.Speedup.Sim, measured)
	if err := w.Flush(); err != nil {
		return err
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
