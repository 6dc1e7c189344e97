// Package report shows results of runs to people.
package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"testbed/policy"
	"testbed/policy/timescale"
	"testbed/record"
	"testbed/report/learning"
	"testbed/report/timeline"
	"testbed/report/words"
	"testbed/scenarios"
	"testbed/shaping/fidelity"
)

func yesNo(b *bool) string {
	switch {
	case b == nil:
		return "–"
	case *b:
		return "yes"
	}
	return "NO"
}

// WriteSummary writes the result of a run as text.
func WriteSummary(out io.Writer, s *scenarios.Scenario, sum record.Summary) error {
	real := sum.World == record.Real
	wall := words.Micros(sum.WallClock)
	if real {
		wall += fmt.Sprintf(" of scenario time, %.1f s of real time", s.RealDuration(sum.WallClock).Seconds())
		if sum.Dilation > 1 {
			wall += fmt.Sprintf(" (dilated: %.1f s by the clock)", timescale.OnClock(s.RealDuration(sum.WallClock), sum.Dilation).Seconds())
		}
	}
	fmt.Fprintf(out, "%s under %s: %s for %d of %d outer steps\n", sum.Scenario, sum.Policy, wall, sum.OuterSteps, s.TargetOuterSteps)
	if learnt := learning.Of(sum); learnt != "" {
		fmt.Fprintln(out, learnt)
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\nround\tstart\tclose\tend\treduce\tbytes sent\tparticipants\tlate\t")
	for _, r := range sum.Rounds {
		sent := "–" // the simulator sends nothing
		if r.BytesSent > 0 {
			sent = fmt.Sprint(r.BytesSent)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", r.Round, words.Micros(r.Start), words.Micros(r.Close), words.Micros(r.End), words.Micros(r.Reduce),
			sent, timeline.Participants(r), words.Workers(r.Late))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	for _, line := range decisions(sum) {
		fmt.Fprintln(out, line)
	}
	fmt.Fprintf(out, "%.0f %% of the membership time was inner steps, and %.0f %% was waiting for other workers\n", 100*sum.ComputeFraction, 100*sum.BarrierWaitFraction)
	if line := regional(sum.Rounds); line != "" {
		fmt.Fprintln(out, line)
	}
	for _, line := range slices.Concat(workLines(sum.Work), stackLines(sum.Stack)) {
		fmt.Fprintln(out, line)
	}
	if gradients := learning.OfGradients(sum); gradients != "" {
		fmt.Fprintln(out, gradients)
	}
	if sum.JoinerStall > 0 {
		fmt.Fprintf(out, "joiners waited %s for the outer state\n", words.Micros(sum.JoinerStall))
	}
	if line := uploaded(sum.Uploads); line != "" {
		fmt.Fprintln(out, line)
	}
	if len(sum.Diverged) > 0 {
		fmt.Fprintf(out, "SPLIT BRAIN: outer step %d was taken twice\n", sum.Diverged[0].Round)
	} else if !sum.Complete {
		fmt.Fprintln(out, "INCOMPLETE: the run ended before its last outer step")
	}
	if len(sum.NotSimulated) > 0 {
		fmt.Fprintln(out, leftOut(sum))
	}
	scenarios.WriteIgnored(out, "fields of the scenario that this run ignores", sum.Ignored, false)
	if line := calibrated(sum.Calibration); line != "" {
		fmt.Fprintln(out, line)
	}
	if real {
		fmt.Fprintf(out, "same bytes on every worker: %s; fidelity: %s%s\n", yesNo(sum.BitIdentical), sum.Fidelity.Verdict, reasons(sum.Fidelity))
		for _, d := range sum.PlannedDrops {
			fmt.Fprintln(out, d)
		}
		fmt.Fprintf(out, "record: %s\n", sum.Dir)
	}
	return nil
}

// calibrated names the calibration of a simulated run; c may be nil.
func calibrated(c *record.Calibration) string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("the simulator adds the machine's costs from %s, made %s", c.File, c.Made)
}

// workLines describes what became of inner steps, and the quality of
// sidelining, if known.
func workLines(w *record.Work) (lines []string) {
	if w == nil {
		return nil
	}
	if w.StepsLost > 0 {
		were, result := "were", "their results are"
		if w.StepsLost == 1 {
			were, result = "was", "its result is"
		}
		lines = append(lines, fmt.Sprintf("%d of %s %s lost: %s in no outer step", w.StepsLost, words.Count(w.StepsDone, "inner step"), were, result))
	}
	if w.Precision != nil || w.Recall != nil {
		lines = append(lines, brief(*w))
	}
	if w.FalseEvicted > 0 {
		lines = append(lines, fmt.Sprintf("healthy workers evicted: %d", w.FalseEvicted))
	}
	if len(w.Classes) > 0 {
		parts := make([]string, len(w.Classes))
		for i, c := range w.Classes {
			parts[i] = fmt.Sprintf("%s %.0f %%", c.Name, 100*c.Share)
		}
		lines = append(lines, "share of rounds with a worker's contribution, by class of worker: "+strings.Join(parts, ", "))
	}
	return lines
}

// stackLines describes what a stack did, beyond its rounds; s may be nil.
func stackLines(s *record.Stack) (lines []string) {
	if s == nil {
		return nil
	}
	options := []string{}
	for _, name := range slices.Sorted(maps.Keys(s.Options)) {
		options = append(options, fmt.Sprintf("%s=%g", name, s.Options[name]))
	}
	lines = append(lines, fmt.Sprintf("stack %s (%s), options: %s", s.Name, s.Version, cmp.Or(strings.Join(options, " "), "none")))
	if s.FailedReductions > 0 {
		lines = append(lines, fmt.Sprintf("reductions that workers reported as failed: %d", s.FailedReductions))
	}
	for _, text := range s.LeftOut {
		lines = append(lines, "left out, because the stack cannot do it: "+text)
	}
	for _, text := range s.Missed {
		lines = append(lines, "did not happen: "+text)
	}
	for _, text := range s.Failures {
		lines = append(lines, "a program of the stack failed: "+text)
	}
	for _, text := range s.Disputes {
		lines = append(lines, "contradiction: "+text)
	}
	return lines
}

// regional compares rounds of regions, or ranks, with global ones. It is empty
// if there were none.
func regional(rounds []record.Round) string {
	var apart, together []policy.Time
	what := ""
	for _, r := range rounds {
		if of := r.Apart(); of != "" {
			apart, what = append(apart, r.Reduce), of
		} else {
			together = append(together, r.Reduce)
		}
	}
	if len(apart) == 0 {
		return ""
	}
	line := fmt.Sprintf("in %d of %d rounds, each %s reduced separately. The median duration of these reductions was %s", len(apart), len(rounds), what, words.Micros(policy.Median(apart)))
	if len(together) > 0 {
		line += fmt.Sprintf(". The median duration of reductions by all workers was %s", words.Micros(policy.Median(together)))
	}
	return line
}

// uploaded describes the uploads of outer states. It is empty if there were
// none.
func uploaded(all []record.Upload) string {
	if len(all) == 0 {
		return ""
	}
	took := make([]policy.Time, len(all))
	for k, u := range all {
		took[k] = u.End - u.Start
	}
	return fmt.Sprintf("uploads of outer states to the store: %d, with a median duration of %s", len(all), words.Micros(policy.Median(took)))
}

// leftOut names the injects that the simulator has not played.
func leftOut(sum record.Summary) string {
	return "churn's network has no links, so the simulator leaves out: " + strings.Join(sum.NotSimulated, ", ")
}

func reasons(f fidelity.Verdict) string {
	if len(f.Reasons) == 0 {
		return ""
	}
	return " (" + strings.Join(f.Reasons, "; ") + ")"
}

// unplayed lists the parts of the scenario that the run never reached.
func unplayed(sum record.Summary) (lines []string) {
	if len(sum.NeverJoined) > 0 {
		lines = append(lines, "never joined: "+words.Workers(sum.NeverJoined))
	}
	if len(sum.ContributedNothing) > 0 {
		lines = append(lines, "contributed nothing but zeros, because their trainers handed over unchanged parameters: "+words.Workers(sum.ContributedNothing))
	}
	if len(sum.NeverHappened) > 0 {
		lines = append(lines, "never happened: "+first(sum.NeverHappened))
	}
	return lines
}

// first lists the first of many things.
func first(all []string) string {
	const most = 4
	if n := len(all); n > most+1 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), n-most)
	}
	return strings.Join(all, ", ")
}

// decisions lists the workers that were left out, removed or taken back, with
// reasons.
func decisions(sum record.Summary) []string {
	var lines []string
	for _, m := range sum.Sidelined {
		lines = append(lines, fmt.Sprintf("round %d: %s was sidelined: %s", m.Round, m.ID.Node(), words.Because(m.Why)))
	}
	for _, m := range sum.Rejoined {
		lines = append(lines, fmt.Sprintf("round %d: %s arrived in time again", m.Round, m.ID.Node()))
	}
	for _, m := range sum.Evicted {
		lines = append(lines, fmt.Sprintf("round %d: %s was evicted (%s): %s", m.Round, m.ID.Node(), m.Reason, words.Because(m.Why)))
	}
	for _, r := range sum.Returned {
		line := fmt.Sprintf("round %d: %s became a member again, %s after its eviction", r.Round, r.ID.Node(), words.Micros(r.Out))
		if r.Incarnation > 0 {
			line += fmt.Sprintf(", as incarnation %d", r.Incarnation)
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		lines = append(lines, "no worker was sidelined or evicted")
	}
	lines = append(unplayed(sum), lines...)
	for _, o := range sum.Outages {
		line := "there was no coordinator from " + words.Micros(o.At) + " on"
		if o.Length != nil {
			line += ", for " + words.Micros(*o.Length)
		}
		if o.Cause != "" {
			line += ": the coordinator died unexpectedly (" + o.Cause + ")"
		}
		lines = append(lines, line)
	}
	for _, steps := range sum.ResumedFrom {
		lines = append(lines, fmt.Sprintf("all processes had died, and the run was resumed from outer step %d", steps))
	}
	return lines
}
