package report

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"testbed/internal/stats"
	"testbed/policy"
	"testbed/record"
	"testbed/report/learning"
	"testbed/report/words"
	"testbed/scenarios"
)

// WriteComparison writes a comparison as text: the answer, then tables. With
// details it also writes the parts of prediction errors, utilization, and the
// reasons of decisions.
func WriteComparison(out io.Writer, s *scenarios.Scenario, c *Comparison, details bool) error {
	fmt.Fprintf(out, "%s: %s\n", s.Name, s.Description)
	parameters := fmt.Sprintf("%d parameters", s.Real.Parameters)
	if s.Unasked() {
		parameters = "a program's own parameters"
	}
	fmt.Fprintf(out, "%s, %s of %s, %s, ", words.Count(len(s.Workers), "worker"), words.Count(s.TargetOuterSteps, "outer step"), words.Count(s.InnerSteps, "inner step"), parameters)
	if c.Real == nil {
		fmt.Fprintf(out, "seed %d, simulated only\n\n", s.Seed)
	} else {
		links := c.Real[c.Policies[0]].Links + " links"
		if len(c.Links) > 1 {
			links += fmt.Sprintf(" (the results on %s links are at the end)", strings.Join(c.Links[1:], ", "))
		}
		fmt.Fprintf(out, "%s, seed %d. 1 ms of scenario time took %v of real time\n\n", links, s.Seed, s.RealDuration(1000))
	}
	fmt.Fprintln(out, strings.Join(c.answer(s), "\n"))
	if err := c.writeLearning(out); err != nil {
		return err
	}
	fmt.Fprintln(out)
	write := c.writeMany
	if len(c.Policies) == 2 && c.Sim != nil && c.Real != nil {
		write = c.writePair
	}
	if err := write(out, s, details); err != nil {
		return err
	}
	if err := c.writeAgreement(out); err != nil {
		return err
	}
	more := ""
	if !details {
		more = " (-v prints details, testbed report writes a page)"
	}
	fmt.Fprintf(out, "\nrecord: %s%s\n", c.Dir, more)
	return nil
}

// writePair writes two policies in both worlds.
func (c *Comparison) writePair(out io.Writer, s *scenarios.Scenario, details bool) error {
	reference, other := c.Policies[0], c.Policies[1]
	simulated, onLinks, real := c.sets(record.Sim), c.sets(record.SimLinks), c.sets(record.Real) // each with its seed
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprint(w, "wall-clock\tsimulated\tmeasured\t\tsimulator's error")
	if c.SimLinks != nil {
		fmt.Fprint(w, "\ton planned links\terror")
	}
	fmt.Fprintln(w)
	for _, name := range c.Policies {
		wall := median(real, name)
		fmt.Fprintf(w, "%s\t%s\t%s\t%.1f s\t%+.1f %%", name, words.Micros(median(simulated, name)), words.Micros(wall), s.RealDuration(wall).Seconds(), 100*c.PredictionError[name])
		if c.SimLinks != nil {
			fmt.Fprintf(w, "\t%s\t%+.1f %%", words.Micros(median(onLinks, name)), 100*c.LinksPredictionError[name])
		}
		fmt.Fprintln(w)
	}
	gains := ratios(real, reference, other)
	measured := fmt.Sprintf("%.2f×", stats.Median(gains))
	if n := len(gains); n > 1 {
		measured += fmt.Sprintf(" (%.2f–%.2f in %d)", slices.Min(gains), slices.Max(gains), n)
	}
	fmt.Fprintf(w, "speed-up\t%.2f×\t%s\t\t", stats.Median(ratios(simulated, reference, other)), measured)
	if c.SimLinks != nil {
		fmt.Fprintf(w, "\t%.2f×\t", stats.Median(ratios(onLinks, reference, other)))
	}
	fmt.Fprintln(w)
	if err := w.Flush(); err != nil {
		return err
	}
	c.Statistics.write(out, c.Policies)
	if err := c.writeDetails(out, details); err != nil {
		return err
	}
	c.writeLeftOut(out)
	for _, name := range c.Policies {
		sim, real := c.Sim[name], c.Real[name]
		fmt.Fprintf(out, "\n%s\n", name)
		fmt.Fprintf(w, "  simulated\t%s\n", standing(sim))
		same := ""
		if standing(sim) == standing(real) {
			same = " (as simulated)"
		}
		fmt.Fprintf(w, "  measured\t%s%s\n", standing(real), same)
		writeVerdict(w, s, real)
		writeNeverHappened(w, sim, real)
		if err := w.Flush(); err != nil {
			return err
		}
		if details && len(real.Sidelined)+len(real.Evicted) > 0 {
			fmt.Fprintln(out, "  why, as measured:")
			for _, line := range decisions(real) {
				fmt.Fprintln(out, "    "+line)
			}
		}
	}
	return nil
}

// writeDetails writes utilization, and the parts of prediction errors, if
// requested.
func (c *Comparison) writeDetails(out io.Writer, asked bool) error {
	if !asked {
		return nil
	}
	return errors.Join(c.writeResiduals(out), c.writeUtilization(out))
}

// fewStandings is the number of left-out workers listed when policies are shown
// side by side.
const fewStandings = 4

// writeMany writes any number of policies: the fastest, and its cost. A report
// has the reasons of all decisions.
func (c *Comparison) writeMany(out io.Writer, s *scenarios.Scenario, details bool) error {
	if err := c.writeScores(out, s); err != nil {
		return err
	}
	if err := c.writeDetails(out, details); err != nil {
		return err
	}
	c.writeLeftOut(out)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, name := range c.Policies {
		fmt.Fprintf(out, "\n%s\n", name)
		for _, world := range worlds {
			if sets := c.sets(world); sets != nil {
				fmt.Fprintf(w, "  %s\t%s\n", worldText(world), standingOf(sets[0][name], fewStandings))
			}
		}
		if c.Real != nil {
			writeVerdict(w, s, c.Real[name])
		}
		writeNeverHappened(w, c.Sim[name], c.SimLinks[name], c.Real[name])
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// writeScores writes a column for each world with wall-clocks and speed-ups,
// the work lost, and the agreement of the simulated order with the measured
// one.
func (c *Comparison) writeScores(out io.Writer, s *scenarios.Scenario) error {
	all := scores(c.Policies, c.matched())
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	row := func(head string, cell func(score) string) {
		fmt.Fprint(w, head)
		for _, world := range worlds {
			for _, sc := range all {
				if sc.World == world && (cell == nil || sc.Policy == head) {
					if cell == nil {
						fmt.Fprint(w, "\t", worldText(world))
						break
					}
					fmt.Fprint(w, "\t", cell(sc))
				}
			}
		}
		fmt.Fprintln(w)
	}
	table := func(title string, policies []string, cell func(score) string) {
		row(title, nil)
		for _, name := range policies {
			row(name, cell)
		}
	}
	table("wall-clock", c.Policies, func(sc score) string {
		text := sc.WallText()
		if sc.World == record.Real && sc.Wall.N > 0 {
			text += fmt.Sprintf(", %.1f s", s.RealDuration(policy.Time(sc.Wall.Median)).Seconds())
		}
		return text
	})
	if len(c.Policies) > 1 {
		fmt.Fprintln(w)
		table("speed-up", c.Policies[1:], func(sc score) string {
			if sc.Speedup.NoDifference() {
				return sc.SpeedupText() + " ="
			}
			return sc.SpeedupText()
		})
	}
	if slices.ContainsFunc(all, func(sc score) bool { return sc.Lost != nil }) {
		fmt.Fprintln(w)
		table("work lost", c.Policies, func(sc score) string {
			if sc.Front {
				return sc.LostText() + " *"
			}
			return sc.LostText()
		})
	}
	if c.PredictionError != nil {
		fmt.Fprintln(w, "\nsimulator's error\tsimulated\ton planned links")
		for _, name := range c.Policies {
			fmt.Fprintf(w, "%s\t%s\t%s\n", name, c.errorText(c.PredictionError, c.Statistics.PredictionError, name), c.errorText(c.LinksPredictionError, c.Statistics.LinksPredictionError, name))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	c.writeLegend(out, all)
	return nil
}

// writeLegend explains the marks of the scores.
func (c *Comparison) writeLegend(out io.Writer, all []score) {
	var lines []string
	if len(c.Policies) > 1 {
		text := fmt.Sprintf("speed-up: the wall-clock of %s divided by the policy's, seed by seed", c.Policies[0])
		if e, fewer := mostSeeds(all); e.Interval != nil {
			text += fmt.Sprintf(". In brackets: a %.3g %% interval of the median of %d seeds", 100*e.Interval.Level, e.N)
			if fewer {
				text += " (fewer if a run stayed incomplete)"
			}
		}
		if slices.ContainsFunc(all, func(sc score) bool { return sc.Speedup.NoDifference() }) {
			text += `. "=" means that no difference is shown`
		}
		lines = append(lines, text)
		lines = append(lines, unchanged(all)...)
	}
	if slices.ContainsFunc(all, func(sc score) bool { return sc.Front }) {
		lines = append(lines, "work lost: the share of all possible contributions that entered no outer step. \"*\" marks the Pareto front: no other policy is as fast and loses as little")
	}
	lines = append(lines, rankText(c.RankCorrelation)...)
	if n := c.Statistics.LeftOut; n > 0 {
		lines = append(lines, fmt.Sprintf("seeds that do not count, because a run stayed incomplete: %d", n))
	}
	if len(lines) > 0 {
		fmt.Fprintln(out, "\n"+strings.Join(lines, "\n"))
	}
}

// mostSeeds returns the speed-up with an interval from the most seeds, and
// reports whether others have fewer.
func mostSeeds(all []score) (most stats.Estimate, fewer bool) {
	least := 0
	for _, sc := range all {
		e := sc.Speedup
		if e.Interval == nil {
			continue
		}
		if e.N > most.N {
			most = e
		}
		if least == 0 || e.N < least {
			least = e.N
		}
	}
	return most, least < most.N
}

// unchanged names the policies under which the seeds change nothing, a line for
// each world.
func unchanged(all []score) (lines []string) {
	for _, world := range worlds {
		var names []string
		for _, sc := range all {
			if sc.World == world && sc.Wall.Same {
				names = append(names, sc.Policy)
			}
		}
		if len(names) > 0 {
			lines = append(lines, fmt.Sprintf("%s: %s under %s, where all runs took the same time, so there is no interval", worldText(world), stats.Unchanged, strings.Join(names, ", ")))
		}
	}
	return lines
}

// errorText is a prediction's error under a policy.
func (c *Comparison) errorText(one map[string]float64, repeated map[string]stats.Estimate, name string) string {
	if e := repeated[name]; e.Interval != nil {
		return percentText(e)
	}
	if e, ok := one[name]; ok {
		return fmt.Sprintf("%+.1f %%", 100*e)
	}
	return "–"
}

// writeAgreement writes the link backends side by side, if there are several,
// and the left-out workers if decisions differ.
func (c *Comparison) writeAgreement(out io.Writer) error {
	if c.Agreement == nil {
		return nil
	}
	if err := c.Agreement.WriteText(out); err != nil {
		return err
	}
	runs := c.measured()
	for _, row := range c.Agreement.Rows {
		if row.Comparison == nil {
			continue
		}
		for _, seed := range row.Comparison.OtherDecisions {
			for _, run := range runs {
				if run.Policy == row.Policy && run.Seed == seed && (run.Links == row.Links || run.Links == c.Links[0]) {
					fmt.Fprintf(out, "  %s with seed %d on %s: %s\n", row.Policy, seed, run.Links, crowd(run))
				}
			}
		}
	}
	return nil
}

// writeLeftOut names the injects that the simulator has not played, if any, the
// calibration, and the fields that were ignored.
func (c *Comparison) writeLeftOut(out io.Writer) {
	if sim := c.Sim[c.Policies[0]]; len(sim.NotSimulated) > 0 {
		fmt.Fprintf(out, "\n%s\n", leftOut(sim))
	}
	if line := calibrated(c.SimLinks[c.Policies[0]].Calibration); line != "" {
		fmt.Fprintf(out, "\nplanned links: %s\n", line)
	}
	var ignored strings.Builder
	for k, of := range []Set{c.Sim, c.SimLinks, c.Real} {
		scenarios.WriteIgnored(&ignored, "fields ignored, "+worldText(worlds[k]), of[c.Policies[0]].Ignored, false)
	}
	if ignored.Len() > 0 {
		fmt.Fprint(out, "\n", ignored.String())
	}
}

// writeVerdict says whether a real run may be used.
func writeVerdict(w io.Writer, s *scenarios.Scenario, real record.Summary) {
	fmt.Fprintf(w, "  same bytes\t%s\n", yesNo(real.BitIdentical))
	fmt.Fprintf(w, "  fidelity\t%s%s\n", real.Fidelity.Verdict, reasons(real.Fidelity))
	if !real.Complete {
		fmt.Fprintf(w, "  INCOMPLETE\t%d of %d outer steps\n", real.OuterSteps, s.TargetOuterSteps)
	}
}

// writeNeverHappened lists the happenings that the first run with missing ones
// never reached.
func writeNeverHappened(w io.Writer, of ...record.Summary) {
	for _, sum := range of {
		if len(sum.NeverHappened) > 0 {
			fmt.Fprintf(w, "  never happened\t%s (%s)\n", first(sum.NeverHappened), worldText(sum.World))
			return
		}
	}
}

// writeResiduals writes the parts of the predictions' errors, in % of the
// measured wall-clock.
func (c *Comparison) writeResiduals(out io.Writer) error {
	if c.Residuals == nil {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "\nsimulator's error by part\tcompute\ttransfer\tcontrol\tstate fetch\tdeadline")
	for _, name := range c.Policies {
		wall := float64(c.sets(record.Real)[c.medianRun(name)][name].WallClock)
		if wall == 0 {
			continue
		}
		line := func(what string, s record.Split) {
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

// standing lists in one line the workers that were left out, taken back and
// removed.
func standing(sum record.Summary) string {
	var parts []string
	list := func(what string, members []record.Membership) {
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
			parts = append(parts, fmt.Sprintf("%s %s in %s %s", id.Node(), what, noun, strings.Join(rounds[id], ", ")))
		}
	}
	if len(sum.NeverJoined) > 0 {
		parts = append(parts, words.Named(sum.NeverJoined)+" never joined")
	}
	list("sidelined", sum.Sidelined)
	list("arrived in time again", sum.Rejoined)
	list("evicted", sum.Evicted)
	if len(parts) == 0 {
		return "no worker was sidelined or evicted"
	}
	return strings.Join(parts, "; ")
}

// writeLearning writes the training results of each world, and whether
// simulated and real workers have the same model.
func (c *Comparison) writeLearning(out io.Writer) error {
	legend := ""
	for _, world := range worlds {
		if learnt := c.Learning[world]; learnt != nil {
			if err := learnt.Write(out, worldText(world)); err != nil {
				return err
			}
			legend = learnt.Legend()
		}
	}
	if legend != "" {
		fmt.Fprintln(out, "\n"+legend)
	}
	for _, world := range []string{record.Sim, record.SimLinks} {
		for _, name := range c.Policies {
			sets := c.sets(world)
			if sets == nil || c.Real == nil {
				continue
			}
			if same, of := learning.Same(sets[0][name], c.Real[name]); of > 0 {
				fmt.Fprintf(out, "%s, %s: the model equals the real run's model, bit by bit, after %d of %d rounds\n", name, worldText(world), same, of)
			}
		}
	}
	return nil
}
