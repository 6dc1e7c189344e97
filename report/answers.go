package report

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"testbed/internal/stats"
	"testbed/policy"
	"testbed/record"
	"testbed/report/document"
	"testbed/report/learning"
	"testbed/report/words"
	"testbed/scenarios"
	"testbed/shaping/fidelity"
)

// speedup is the speed-up from pairs of the shown runs.
func (p *page) speedup() stats.Estimate { return p.statistics.Speedup[p.world] }

// interval writes the interval of a speed-up in words.
func interval(i *stats.Interval) string { return words.Times(i.Low) + " to " + words.Times(i.High) }

func (p *page) headline() string {
	switch e := p.speedup(); {
	case len(p.Sides) > 2:
		if best := p.best(); best != nil {
			return p.headlineOfMany(best)
		}
	case e.N > 0:
		return p.headlineOfTwo(e)
	}
	var parts []string
	for _, s := range p.Sides {
		text := fmt.Sprintf("Under %s, %s took %s.", s.Policy, words.Count(s.Run.OuterSteps, "round"), wallText(p.Record.Scenario, &s))
		if !s.Run.Complete {
			text = fmt.Sprintf("Under %s, the run stayed incomplete: it took %d of %d outer steps.", s.Policy, s.Run.OuterSteps, p.Record.Scenario.TargetOuterSteps)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

// headlineOfTwo gives the gain of the second policy over the first.
func (p *page) headlineOfTwo(e stats.Estimate) string {
	base, other := &p.Sides[0], &p.Sides[1]
	reference, name := words.Policy(base.Policy), words.Policy(other.Policy)
	instead := fmt.Sprintf("%s instead of %s for %s", wallText(p.Record.Scenario, other), wallText(p.Record.Scenario, base), words.Count(other.Run.OuterSteps, "round"))
	switch {
	case e.Interval == nil && e.NoDifference():
		return fmt.Sprintf("No difference in %s of runs: %s was exactly as fast as %s.", words.Count(e.N, "pair"), name, reference)
	case e.Interval == nil:
		return fmt.Sprintf("%s was %s as fast as %s: %s.", words.Capital(name), words.Times(e.Median), reference, instead)
	case e.Interval.Contains(1):
		return fmt.Sprintf("No difference shown: over %d pairs of runs %s was %s as fast as %s (%s).",
			e.N, name, words.Times(e.Median), reference, interval(e.Interval))
	case e.Interval.High < 1:
		return fmt.Sprintf("%s is faster: over %d pairs of runs %s was %s as fast (%s), %s.",
			words.Capital(reference), e.N, name, words.Times(e.Median), interval(e.Interval), instead)
	}
	return fmt.Sprintf("Over %d pairs of runs %s was %s as fast as %s (%s): %s.",
		e.N, name, words.Times(e.Median), reference, interval(e.Interval), instead)
}

// best is the policy with the largest speed-up over the reference in the shown
// world, nil if there is none.
func (p *page) best() (best *score) {
	for k, s := range p.scores {
		if s.World == p.world && s.Speedup.N > 0 && (best == nil || s.Speedup.Median > best.Speedup.Median) {
			best = &p.scores[k]
		}
	}
	return best
}

// headlineOfMany names the fastest of several policies.
func (p *page) headlineOfMany(best *score) string {
	reference, e := p.Sides[0].Policy, best.Speedup
	if e.Median <= 1 && !e.NoDifference() {
		return fmt.Sprintf("None of the other %d policies was faster than %s.", len(p.Sides)-1, words.Policy(reference))
	}
	gain := words.Times(e.Median) + " as fast as " + words.Policy(reference)
	if e.Interval == nil && e.NoDifference() {
		return fmt.Sprintf("No difference with %s: no policy was faster than %s.", words.Count(e.N, "seed"), words.Policy(reference))
	}
	if e.Interval == nil {
		return fmt.Sprintf("Of %d policies, %s was the fastest: %s. Its run took %s instead of %s.", len(p.Sides), best.Policy, gain,
			wallText(p.Record.Scenario, p.side(best.Policy)), wallText(p.Record.Scenario, &p.Sides[0]))
	}
	gain += " (" + interval(e.Interval) + ")"
	if e.Interval.Contains(1) {
		return fmt.Sprintf("No difference shown: of %d policies, %s did best. Over %d seeds it was %s.", len(p.Sides), best.Policy, e.N, gain)
	}
	return fmt.Sprintf("Of %d policies, %s was the fastest. Over %d seeds it was %s.", len(p.Sides), best.Policy, e.N, gain)
}

// side returns the part of the page about a policy.
func (p *page) side(name string) *side {
	return &p.Sides[slices.IndexFunc(p.Sides, func(s side) bool { return s.Policy == name })]
}

// wallText is a typical wall-clock in words.
func wallText(s *scenarios.Scenario, of *side) string {
	if of.World == record.Sim {
		return words.Micros(of.Run.WallClock)
	}
	return fmt.Sprintf("%s (scenario time: %s)", seconds(s, of.Run.WallClock), words.Micros(of.Run.WallClock))
}

// slowShare is the ratio to the median inner step above which the report calls
// a worker slow.
const slowShare = 1.5

func (p *page) whoWasSlow() document.Answer {
	a := document.Answer{Question: "Who was slow?", Short: "nobody"}
	if len(p.Sides) == 0 {
		return a
	}
	s := p.Sides[0]
	var means []policy.Time
	for _, w := range s.Workers {
		if w.Steps > 0 {
			means = append(means, w.MeanStep)
		}
	}
	var names []string
	if len(means) == 0 {
		a.Short = "not known"
		a.Text = append(a.Text, "No inner step was completed.")
	} else {
		middle := policy.Median(means)
		for _, w := range s.Workers {
			if share := float64(w.MeanStep) / float64(max(middle, 1)); share >= slowShare {
				names = append(names, w.Node)
				a.Text = append(a.Text, fmt.Sprintf("%s: its inner steps took %s on average under %s, and those of the median worker took %s.", w.Node, words.Micros(w.MeanStep), s.Policy, words.Micros(middle)))
			}
		}
		if len(names) == 0 {
			a.Text = append(a.Text, fmt.Sprintf("Inner steps of the slowest worker took %s on average under %s, and those of the median worker took %s.", words.Micros(slices.Max(means)), s.Policy, words.Micros(middle)))
		}
	}
	var acts []string
	var slowed []string // for a while rather than on average over the run
	for _, m := range s.Timeline.Marks {
		if m.Injected() {
			acts = append(acts, fmt.Sprintf("In the scenario, %s after the start: %s.", words.Micros(m.T), m.Text))
		}
		if m.Type == record.Slow && !slices.Contains(slowed, m.Node) {
			slowed = append(slowed, m.Node)
		}
	}
	switch {
	case len(names) > 0:
		a.Short = words.List(names)
	case len(slowed) > 0:
		a.Short = words.List(slowed) + ", for a while"
	}
	a.Text = append(few(a.Text), few(acts)...)
	return a
}

// few keeps the first of many lines. The tables have all of them.
func few(lines []string) []string {
	const most = 4
	if len(lines) <= most {
		return lines
	}
	return append(slices.Clone(lines[:most]), fmt.Sprintf("… and %d more, in the tables.", len(lines)-most))
}

func (p *page) whatWasDone() document.Answer {
	a := document.Answer{Question: "What did the policy do, and why?", Short: "nothing out of the ordinary"}
	acted, many := 0, len(p.Sides) > 2
	for _, s := range p.Sides {
		text := s.Policy + ": " + crowd(s.Run.Summary) + "."
		if many {
			text = s.Policy + ": " + standingOf(s.Run.Summary, fewStandings) + "."
		}
		if len(s.Run.Sidelined)+len(s.Run.Evicted) > 0 {
			acted++
			var who []string
			for _, m := range append(slices.Clone(s.Run.Sidelined), s.Run.Evicted...) {
				if name := m.ID.Node(); !slices.Contains(who, name) {
					who = append(who, name)
				}
			}
			a.Short = fmt.Sprintf("%s left %s out", s.Policy, words.List(who))
			if len(s.Run.Sidelined) == 0 {
				a.Short = fmt.Sprintf("%s removed %s", s.Policy, words.List(who))
			}
			if first := append(slices.Clone(s.Run.Sidelined), s.Run.Evicted...)[0]; !many { // otherwise the tables have the reasons
				text += fmt.Sprintf(" The reason in round %d: %s.", first.Round, words.Because(first.Why))
			}
		} else if !s.LeavesOut() {
			text += " It waits for every member."
		}
		a.Text = append(a.Text, text)
		for _, line := range unplayed(s.Run.Summary) {
			a.Text = append(a.Text, words.Capital(line)+".")
		}
	}
	if many && acted > 1 {
		a.Short = fmt.Sprintf("%d of %d policies left workers out", acted, len(p.Sides))
	}
	return a
}

func (p *page) whatWasGained() document.Answer {
	a := document.Answer{Question: "What did the policy gain?"}
	switch e := p.speedup(); {
	case len(p.Sides) > 2:
		p.gainsOfMany(&a)
	case e.N > 0:
		p.gainOfTwo(&a, e)
	default:
		a.Short = "one policy only"
		for _, s := range p.Sides {
			a.Text = append(a.Text, fmt.Sprintf("%s: %s.", s.Policy, wallText(p.Record.Scenario, &s)))
		}
		if len(p.Sides) == 1 {
			a.Text = append(a.Text, "testbed compare plays the scenario under several policies, and shows them side by side.")
		}
		if len(p.Sides) == 2 {
			a.Short = "not known"
			a.Text = append(a.Text, "A run has no speed-up if it stayed incomplete, or if the other policy has no complete run with its seed.")
		}
	}
	return a
}

func (p *page) trainingAnswer() document.Answer {
	a := document.Answer{Question: "What was learnt?", Text: p.Learning.Answer()}
	var finals []string
	for _, one := range p.Learning.Policies {
		finals = append(finals, one.FinalText())
	}
	a.Short = "validation loss " + strings.Join(finals, ", ")
	if best := p.Learning.Best(); best != nil && best.Sooner.N > 0 {
		a.Short = fmt.Sprintf("%s: %s as fast to a loss of %s", best.Name, words.Times(best.Sooner.Median), learning.LossText(p.Learning.Target))
		a.Text = append(a.Text, "Final losses: "+strings.Join(finals, ", ")+".")
	}
	return a
}

// gainOfTwo gives the gain of the second policy over the first.
func (p *page) gainOfTwo(a *document.Answer, e stats.Estimate) {
	a.Short = words.Times(e.Median)
	if i := e.Interval; i != nil {
		a.Short += " (" + interval(i) + ")"
	}
	if e.NoDifference() {
		a.Short = "no difference shown: " + a.Short
	}
	base, other := &p.Sides[0], &p.Sides[1]
	subject := "The run"
	if len(base.Runs) > 1 {
		subject = "The median run"
	}
	a.Text = append(a.Text, fmt.Sprintf("%s took %s under %s, and %s under %s.", subject, wallText(p.Record.Scenario, other), other.Policy, wallText(p.Record.Scenario, base), base.Policy))
	switch i := e.Interval; {
	case i != nil:
		a.Text = append(a.Text, fmt.Sprintf("The range is a %.3g %% interval of the median of %d pairs of runs, each with one seed: %s.", 100*i.Level, e.N, p.statistics.Finding[p.world]))
	case e.N > 1:
		a.Text = append(a.Text, fmt.Sprintf("The figure is the median of %d pairs of runs. It has no interval: %s.", e.N, e.Why))
	}
	if p.statistics.LeftOut > 0 {
		a.Text = append(a.Text, fmt.Sprintf("Pairs that do not count, because a run was incomplete: %d.", p.statistics.LeftOut))
	}
	if predicted := p.statistics.Speedup[record.Sim]; p.world == record.Real && predicted.N > 0 {
		text := words.Times(predicted.Median)
		if i := predicted.Interval; i != nil {
			text += " (" + interval(i) + ") with the same seeds"
		}
		a.Text = append(a.Text, fmt.Sprintf("The simulator had predicted %s.", text))
	}
}

// gainsOfMany gives the gain of each policy over the first, and says whether
// the simulator has them in the same order.
func (p *page) gainsOfMany(a *document.Answer) {
	a.Short = "not known"
	if best := p.best(); best != nil {
		a.Short = best.Policy + ": " + best.SpeedupText()
	}
	var each []string
	for _, s := range p.scores {
		if s.World != p.world || s.Policy == p.Sides[0].Policy {
			continue
		}
		text := fmt.Sprintf("%s: %s", s.Policy, s.SpeedupText())
		if s.Finding != "" {
			text += ", " + s.Finding
		}
		each = append(each, text+".")
	}
	a.Text = few(each)
	if p.statistics.LeftOut > 0 {
		a.Text = append(a.Text, fmt.Sprintf("Seeds with an incomplete run, which does not count: %d.", p.statistics.LeftOut))
	}
	for _, line := range p.Ranks() {
		a.Text = append(a.Text, words.Capital(line)+".")
	}
}

func (p *page) trust() document.Answer {
	a := document.Answer{Question: "Can the result be trusted?"}
	if len(p.Sides) == 0 || p.Sides[0].World == record.Sim {
		a.Short = "simulated only"
		return a
	}
	levels := []fidelity.Level{fidelity.Valid, fidelity.Suspect, fidelity.Invalid}
	meaning := []string{
		"yes: the emulation matched its plan",
		"with care: the figures may be off, for the reasons below",
		"no: the figures say more about the machine than about the plan",
	}
	worst, compared := 0, true
	var reasons []string
	for _, s := range p.Sides {
		for _, run := range s.Runs {
			compared = compared && run.BitIdentical != nil
			r := slices.Index(levels, run.Fidelity.Verdict)
			if r < 0 {
				r = 2
			}
			worst = max(worst, r)
			for _, reason := range run.Fidelity.Reasons {
				reasons = append(reasons, filepath.Base(run.Dir)+": "+reason)
			}
			switch {
			case !run.Complete:
				worst, meaning[2] = 2, "no: a run stayed incomplete"
				reasons = append(reasons, fmt.Sprintf("%s: incomplete, %d of %d rounds", filepath.Base(run.Dir), run.OuterSteps, p.Record.Scenario.TargetOuterSteps))
			case run.BitIdentical != nil && !*run.BitIdentical:
				worst, meaning[2] = 2, "no: workers ended with different bytes"
				reasons = append(reasons, filepath.Base(run.Dir)+": workers ended with different bytes")
			}
		}
	}
	a.Level = levels[worst]
	a.Short = meaning[worst]
	if p.Agreement != nil {
		a.Text = append(a.Text, words.Capital(p.Agreement.Verdict)+".")
	}
	a.Text = append(a.Text, reasons...)
	for _, s := range p.Sides {
		for _, run := range s.Runs {
			for _, d := range run.PlannedDrops {
				a.Text = append(a.Text, filepath.Base(run.Dir)+": "+d.String()+".")
			}
		}
	}
	if worst < 2 && compared {
		a.Text = append(a.Text, "Every worker ended every round with the same bytes.")
	}
	var sidelined []string
	for _, s := range p.Sides {
		switch {
		case s.LeavesOut() && len(p.Sides) > 2:
			sidelined = append(sidelined, s.Policy+": "+brief(s.Sidelining))
		case s.LeavesOut():
			sidelined = append(sidelined, brief(s.Sidelining))
		}
	}
	a.Text = append(a.Text, few(sidelined)...)
	if s := p.Sides[0]; s.Prediction != nil && len(s.Prediction.NotSimulated) > 0 {
		a.Text = append(a.Text, words.Capital(leftOut(s.Prediction.Summary))+".")
	}
	var off []string
	for _, s := range p.Sides {
		if s.Error.N > 0 {
			off = append(off, fmt.Sprintf("The simulator’s wall-clock under %s is off by %s.", s.Policy, s.ErrorText()))
		}
	}
	a.Text = append(a.Text, few(off)...)
	return a
}
