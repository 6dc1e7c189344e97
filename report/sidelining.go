package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"testbed/record"
	"testbed/report/runs"
	"testbed/report/words"
	"testbed/scenarios"
)

// workOf is the account of a run's work. For old records whose summaries do not
// have it, it is computed from the events.
func workOf(s *scenarios.Scenario, run *runs.Run) *record.Work {
	if run.Work != nil {
		return run.Work
	}
	events := slices.Clone(run.Events)
	slices.SortStableFunc(events, func(a, b record.Event) int { return cmp.Compare(a.T, b.T) })
	sum := record.NewSummarizer(s.Setup())
	for i := range events {
		sum.Add(&events[i])
	}
	return sum.Summary().Work
}

// judged summarises the left-out workers, over runs.
func judged(s *scenarios.Scenario, played []runs.Run) record.Work {
	var sum record.Work
	for i := range played {
		w := workOf(s, &played[i])
		sum.LeftOut += w.LeftOut
		sum.FalseSidelined += w.FalseSidelined
		sum.Excused += w.Excused
		sum.Slow += w.Slow
		sum.Missed += w.Missed
	}
	sum.Judge()
	return sum
}

// quality describes precision and recall of sidelining in words.
func quality(w record.Work) string {
	var parts []string
	if w.Precision != nil {
		accused := w.LeftOut - w.Excused
		parts = append(parts, fmt.Sprintf("The scenario had made the worker slow in %d of %s in which a worker was left out only for being late (precision %.2f)",
			accused-w.FalseSidelined, words.Count(accused, "case"), *w.Precision))
	} else {
		parts = append(parts, "No worker was left out only for being late")
	}
	if w.Excused > 0 {
		parts = append(parts, fmt.Sprintf("In %s, a worker was left out that was not slow, but cut off, crashed, joining or on a changed link", words.Count(w.Excused, "case")))
	}
	if w.Recall != nil {
		parts = append(parts, fmt.Sprintf("Slow workers were left out in %d of %s in which they could have been (recall %.2f)", w.Slow-w.Missed, words.Count(w.Slow, "case"), *w.Recall))
	}
	return "Sidelining: " + strings.Join(parts, ". ") + "."
}

// brief is quality in one short line.
func brief(w record.Work) string {
	switch {
	case w.Precision != nil && w.Recall != nil:
		return fmt.Sprintf("Sidelining of slow workers: precision %.2f, recall %.2f.", *w.Precision, *w.Recall)
	case w.Precision != nil:
		return fmt.Sprintf("Sidelining: precision %.2f, and no worker was slow at a deadline.", *w.Precision)
	case w.Recall != nil:
		return fmt.Sprintf("Sidelining: recall %.2f, and no worker was left out only for being late.", *w.Recall)
	}
	return "Sidelining: no worker was slow at a deadline, or left out only for being late."
}
