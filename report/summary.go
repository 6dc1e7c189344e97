// Package report shows results of runs to people.
package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"testbed/policy"
	"testbed/runlog"
	"testbed/scenarios"
	"testbed/shaping/fidelity"
)

// micros writes scenario time with separated thousands.
func micros(t policy.Time) string { return thousands(t) + " µs" }

func thousands[T ~int64](n T) string {
	digits := fmt.Sprint(int64(n))
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// maxListed is the number of workers up to which each is named.
const maxListed = 8

// Workers lists workers by the names of their nodes, many of them as ranges:
// "w0–w11 w13–w63". The IDs have to be sorted.
func Workers(ids []policy.ID) string {
	if len(ids) == 0 {
		return "–"
	}
	var parts []string
	for i := 0; i < len(ids); i++ {
		first := i
		for len(ids) > maxListed && i+1 < len(ids) && ids[i+1] == ids[i]+1 {
			i++
		}
		name := scenarios.NodeName(ids[first])
		if i > first {
			name += "–" + scenarios.NodeName(ids[i])
		}
		parts = append(parts, name)
	}
	return strings.Join(parts, " ")
}

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
func WriteSummary(out io.Writer, s *scenarios.Scenario, sum runlog.Summary) error {
	real := sum.World == runlog.Real
	wall := micros(sum.WallClock)
	if real {
		wall += fmt.Sprintf(" of scenario time, %.1f s of real time", s.RealDuration(sum.WallClock).Seconds())
	}
	fmt.Fprintf(out, "%s under %s: %s for %d of %d outer steps\n", sum.Scenario, sum.Policy, wall, sum.OuterSteps, s.TargetOuterSteps)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\nround\tstart\tclose\tend\treduce\tbytes sent\tparticipants\tlate\t")
	for _, r := range sum.Rounds {
		sent := "–" // nothing is sent in the simulator
		if r.BytesSent > 0 {
			sent = fmt.Sprint(r.BytesSent)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", r.Round, micros(r.Start), micros(r.Close), micros(r.End), micros(r.Reduce),
			sent, Workers(r.Participants), Workers(r.Late))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	for _, line := range decisions(sum) {
		fmt.Fprintln(out, line)
	}
	fmt.Fprintf(out, "%.0f %% of the membership time was inner steps, %.0f %% waiting for others\n", 100*sum.ComputeFraction, 100*sum.BarrierWaitFraction)
	if sum.JoinerStall > 0 {
		fmt.Fprintf(out, "joiners waited %s for the outer state\n", micros(sum.JoinerStall))
	}
	if !sum.Complete {
		fmt.Fprintln(out, "INCOMPLETE: the run ended before its last outer step")
	}
	if len(sum.NotSimulated) > 0 {
		fmt.Fprintln(out, leftOut(sum))
	}
	if real {
		fmt.Fprintf(out, "same bytes on every worker: %s; fidelity: %s%s\n", yesNo(sum.BitIdentical), sum.Fidelity.Verdict, reasons(sum.Fidelity))
		fmt.Fprintf(out, "record: %s\n", sum.Dir)
	}
	return nil
}

// leftOut says what the simulator has not played.
func leftOut(sum runlog.Summary) string {
	return "the simulator has no links and leaves out: " + strings.Join(sum.NotSimulated, ", ")
}

func reasons(f fidelity.Verdict) string {
	if len(f.Reasons) == 0 {
		return ""
	}
	return " (" + strings.Join(f.Reasons, "; ") + ")"
}

// decisions says who was left out, removed or taken back, and why.
func decisions(sum runlog.Summary) []string {
	var lines []string
	for _, m := range sum.Sidelined {
		lines = append(lines, fmt.Sprintf("round %d: %s sidelined: %s", m.Round, scenarios.NodeName(m.ID), Because(m.Why)))
	}
	for _, m := range sum.Rejoined {
		lines = append(lines, fmt.Sprintf("round %d: %s back in time", m.Round, scenarios.NodeName(m.ID)))
	}
	for _, m := range sum.Evicted {
		lines = append(lines, fmt.Sprintf("round %d: %s evicted (%s): %s", m.Round, scenarios.NodeName(m.ID), m.Reason, Because(m.Why)))
	}
	if len(lines) == 0 {
		lines = append(lines, "nobody was sidelined or evicted")
	}
	for _, o := range sum.Outages {
		line := "no coordinator from " + micros(o.At) + " on"
		if o.Length != nil {
			line += " for " + micros(*o.Length)
		}
		if o.Cause != "" {
			line += ": it died of itself (" + o.Cause + ")"
		}
		lines = append(lines, line)
	}
	for _, steps := range sum.ResumedFrom {
		lines = append(lines, fmt.Sprintf("everything had died; the run went on from outer step %d", steps))
	}
	return lines
}

// Because puts the numbers of a decision in words.
func Because(r *policy.Reason) string {
	if r == nil {
		return "no reason recorded"
	}
	switch r.Rule {
	case policy.RuleLeave:
		return "it left in good order"
	case policy.RuleHeartbeat:
		return fmt.Sprintf("silent for %s, %d heartbeats of %d tolerated", micros(r.Silent), r.Misses, r.Limit)
	case policy.RuleGaveUp:
		return fmt.Sprintf("it said that it gives up, %s after its last heartbeat", micros(r.Silent))
	case policy.RuleConnection:
		return fmt.Sprintf("its end of the control connection is gone, %s after its last heartbeat", micros(r.Silent))
	case policy.RuleFetchFailed:
		return fmt.Sprintf("it failed %d fetches of the outer state in a row", r.Misses)
	case policy.RuleReduceFailed:
		return fmt.Sprintf("it had a part in %d failed reductions of the round", r.Misses)
	case policy.RuleProgress:
		text := fmt.Sprintf("the reduction had stood still for %s", micros(r.Stalled))
		if r.Limit == 0 {
			return text + fmt.Sprintf(", and it had been silent for %s", micros(r.Silent))
		}
		return text + fmt.Sprintf(", the last of %d that failed with it", r.Misses)
	}
	return gathered(r) + fmt.Sprintf("; miss %d, %d tolerated", r.Misses, r.Limit)
}

// gathered says how many had arrived when a round closed, and what its
// deadline came from.
func gathered(r *policy.Reason) string {
	text := fmt.Sprintf("%d of %d had arrived (%d needed)", r.Arrived, r.Members, r.Needed)
	if d := r.Deadline; d != nil {
		text += " at the deadline, " + deadlineText(d)
	}
	return text
}

func deadlineText(d *policy.Deadline) string {
	text := fmt.Sprintf("%s after the first (median %s + %g × MAD %s, at least %s)",
		micros(d.Offset), micros(d.Median), d.K, micros(d.MAD), micros(d.MinSlack))
	if d.Credit > 0 {
		text += fmt.Sprintf(" and %s of credit for catching up", micros(d.Credit))
	}
	return text
}

// closing says why a round closed when it did.
func closing(r *policy.Reason) string {
	switch {
	case r == nil:
		return "no reason recorded"
	case r.Rule == policy.RuleAllArrived && r.Deadline == nil:
		return fmt.Sprintf("all %d had arrived; there was no deadline", r.Members)
	case r.Rule == policy.RuleAllArrived:
		return fmt.Sprintf("all %d had arrived; the deadline was %s", r.Members, deadlineText(r.Deadline))
	case r.Rule == policy.RuleQuorum:
		return "the quorum came after the deadline: " + gathered(r)
	}
	return gathered(r)
}
