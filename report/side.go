package report

import (
	"fmt"
	"slices"
	"strings"

	"testbed/policy"
	"testbed/runlog"
)

// side is what the page shows of one policy. Where a policy was run several
// times the pictures are those of the run with the median wall-clock.
type side struct {
	Policy    string   `json:"policy"`
	World     string   `json:"world"`
	Timeline  Timeline `json:"timeline"`
	Rounds    []Round  `json:"rounds"`
	Simulated []Round  `json:"simulated"` // the prediction for a real run
	Links     []Link   `json:"links"`

	Workers    []Worker   `json:"-"`
	Run        Run        `json:"-"` // the one shown
	Runs       []Run      `json:"-"` // all of them
	Prediction *Run       `json:"-"`
	Sidelining Sidelining `json:"-"` // over all of them
}

// PredictionError is (simulated − measured) / measured wall-clock.
func (s *side) PredictionError() (share float64, ok bool) {
	measured := float64(s.MedianWall())
	incomplete := func(run Run) bool { return !run.Complete }
	if s.Prediction == nil || measured == 0 || slices.ContainsFunc(s.Runs, incomplete) {
		return 0, false
	}
	return (float64(s.Prediction.WallClock) - measured) / measured, true
}

// ErrorText is the prediction error for a table.
func (s *side) ErrorText() string {
	if off, ok := s.PredictionError(); ok {
		return fmt.Sprintf("%+.1f %%", 100*off)
	}
	return "–"
}

// MedianWall is the median wall-clock of all runs.
func (s *side) MedianWall() policy.Time { return policy.Median(walls(s.Runs)) }

// WallText is the wall-clock of all runs: one, or least, median and most.
func (s *side) WallText() string {
	all := walls(s.Runs)
	middle := policy.Median(all) // sorts
	if len(all) == 1 {
		return micros(middle)
	}
	return fmt.Sprintf("%s – %s – %s", thousands(all[0]), thousands(middle), micros(all[len(all)-1]))
}

// crowd says who was sidelined and evicted, or how many where it is many.
func crowd(sum runlog.Summary) string {
	if len(sum.Sidelined)+len(sum.Rejoined)+len(sum.Evicted) <= 2*maxListed {
		return standing(sum)
	}
	count := func(members []runlog.Membership) string {
		who := map[policy.ID]bool{}
		for _, m := range members {
			who[m.ID] = true
		}
		return fmt.Sprintf("%d times, %d workers", len(members), len(who))
	}
	return fmt.Sprintf("sidelined %s; back in time %s; evicted %d", count(sum.Sidelined), count(sum.Rejoined), len(sum.Evicted))
}

// Stands says who was sidelined and evicted, and whether as predicted.
func (s *side) Stands() string {
	text := crowd(s.Run.Summary)
	switch {
	case s.Prediction == nil:
		return text
	case standing(s.Prediction.Summary) != standing(s.Run.Summary):
		return text + "; simulated: " + crowd(s.Prediction.Summary)
	}
	return text + " (simulated: the same)"
}

// doingKinds are the columns of the table of workers' time.
var doingKinds = []Kind{InnerStep, Dropped, Waiting, ReduceScatter, AllGather, AllReduce, Fetch}

// Kinds lists what any worker of the side did.
func (s *side) Kinds() (kinds []Kind) {
	for _, kind := range doingKinds {
		if slices.ContainsFunc(s.Timeline.Doing, func(span Span) bool { return span.Kind == kind }) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

func findRound(list []Round, n int) *Round {
	for k := range list {
		if list[k].Round == n {
			return &list[k]
		}
	}
	return nil
}

func signedMicros(t policy.Time) string {
	if t < 0 {
		return "−" + micros(-t)
	}
	return "+" + micros(t)
}

// doubtful lists the rounds of a run whose verdict is not the best one.
func doubtful(run Run) (lines []string) {
	for _, r := range run.Rounds {
		if r.Verdict != "valid" {
			lines = append(lines, fmt.Sprintf("round %d %s: %s", r.Round, r.Verdict, strings.Join(r.Reasons, "; ")))
		}
	}
	return lines
}

// arrivals lists when workers arrived, of many only the last.
func arrivals(r Round) string {
	var parts []string
	for _, a := range r.Arrivals {
		text := a.Node + "\u00a0" + thousands(a.Offset)
		if a.Late {
			text += "\u00a0(late)"
		}
		parts = append(parts, text)
	}
	if n := len(parts); n > maxListed {
		return fmt.Sprintf("%d arrivals, the last %s", n, strings.Join(parts[n-3:], ", "))
	}
	return strings.Join(parts, ", ")
}
