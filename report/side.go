package report

import (
	"fmt"
	"slices"
	"strings"

	"testbed/internal/stats"
	"testbed/policy"
	"testbed/record"
	"testbed/report/runs"
	"testbed/report/timeline"
	"testbed/report/words"
	"testbed/scenarios"
	"testbed/shaping/fidelity"
)

// side is the part of the page about one policy. If a policy was run several
// times, the pictures are of the run with the median wall-clock.
type side struct {
	Policy    string            `json:"policy"`
	World     string            `json:"world"`
	Timeline  timeline.Timeline `json:"timeline"`
	Rounds    []timeline.Round  `json:"rounds"`
	Simulated []timeline.Round  `json:"simulated"` // the prediction for a real run
	Links     []timeline.Link   `json:"links"`

	Workers    []timeline.Worker `json:"-"`
	Run        runs.Run          `json:"-"` // the shown one
	Runs       []runs.Run        `json:"-"` // all of them
	Prediction *runs.Run         `json:"-"` // of the shown run
	// Error is the simulator's error, (simulated − measured) / measured, over the
	// complete runs.
	Error stats.Estimate `json:"-"`
	// LinksError is the error of the simulator on the links of the plan.
	LinksError stats.Estimate `json:"-"`
	OnLinks    *runs.Run      `json:"-"` // the prediction of LinksError
	Sidelining record.Work    `json:"-"` // over all of them
}

// LeavesOut reports whether the policy may close a round without a live member.
func (s *side) LeavesOut() bool { return s.Policy != scenarios.Baseline }

// predict pairs the simulated runs with the measured ones, by seed.
func (s *side) predict(simulated []runs.Run) {
	if s.Prediction = runs.Seeded(simulated, s.Run.Seed, 0); s.Prediction != nil {
		s.Simulated = timeline.Rounds(s.Prediction)
	}
	s.Error = s.against(simulated)
}

// Misses returns the parts of the predictions' errors for the shown run. There
// are none for old runs whose summaries do not split the wall-clock.
func (s *side) Misses() (rows []miss) {
	for _, p := range []struct {
		name string
		run  *runs.Run
	}{{"simulated", s.Prediction}, {"on planned links", s.OnLinks}} {
		if p.run == nil || s.World != record.Real || s.Run.Split == (record.Split{}) || p.run.Split == (record.Split{}) {
			continue
		}
		d := p.run.Split.Minus(s.Run.Split)
		row := miss{Prediction: p.name}
		for _, part := range []policy.Time{d.Compute, d.Transfer, d.Control, d.StateFetch, d.Deadline} {
			row.Parts = append(row.Parts, fmt.Sprintf("%+.1f %%", 100*float64(part)/float64(s.Run.WallClock)))
		}
		rows = append(rows, row)
	}
	return rows
}

// miss has the parts of a prediction's error: simulated − measured, as a share
// of the measured wall-clock, for each part of a record.Split in order.
type miss struct {
	Prediction string
	Parts      []string
}

// against is the error of simulated runs relative to the measured ones.
func (s *side) against(simulated []runs.Run) stats.Estimate {
	var errors []float64
	for _, run := range s.Runs {
		if sim := runs.Seeded(simulated, run.Seed, 0); sim != nil && sim.Complete && run.Complete && run.WallClock > 0 {
			errors = append(errors, float64(sim.WallClock-run.WallClock)/float64(run.WallClock))
		}
	}
	return stats.Estimated(errors)
}

// ErrorText is the simulator's error for a table.
func (s *side) ErrorText() string {
	if s.Error.N == 0 {
		return "–"
	}
	text := percentText(s.Error)
	if s.LinksError.N > 0 {
		text += "; on planned links " + percentText(s.LinksError)
	}
	return text
}

// percentText is an estimated share with its sign, and its interval.
func percentText(e stats.Estimate) string {
	if e.N == 0 {
		return "–"
	}
	text := fmt.Sprintf("%+.1f %%", 100*e.Median)
	if i := e.Interval; i != nil {
		text += fmt.Sprintf(" (%+.1f %% to %+.1f %%)", 100*i.Low, 100*i.High)
	}
	return text
}

// MedianWall is the median wall-clock of all runs.
func (s *side) MedianWall() policy.Time { return policy.Median(walls(s.Runs)) }

// wall is the estimate of the wall-clock from the runs, without an interval if
// one of them is incomplete.
func (s *side) wall() stats.Estimate {
	var all []float64
	for _, run := range s.Runs {
		if !run.Complete {
			return stats.Estimate{}
		}
		all = append(all, float64(run.WallClock))
	}
	return stats.Estimated(all)
}

// WallHead is the column title of WallText for several runs.
func (s *side) WallHead() string {
	switch i := s.wall().Interval; {
	case i != nil:
		return fmt.Sprintf(" (median of %d, %.3g %% interval)", len(s.Runs), 100*i.Level)
	case len(s.Runs) > 1:
		return " (least – median – most)"
	}
	return ""
}

// WallText is the wall-clock of all runs: one value, or the median with its
// interval, or least, median and most.
func (s *side) WallText() string {
	all := walls(s.Runs)
	middle := policy.Median(all) // sorts
	if len(all) == 1 {
		return words.Micros(middle)
	}
	if i := s.wall().Interval; i != nil {
		return fmt.Sprintf("%s (%s to %s)", words.Micros(middle), words.Thousands(policy.Time(i.Low)), words.Thousands(policy.Time(i.High)))
	}
	return fmt.Sprintf("%s – %s – %s", words.Thousands(all[0]), words.Thousands(middle), words.Micros(all[len(all)-1]))
}

// crowd lists the sidelined and evicted workers, or their number if there are
// many.
func crowd(sum record.Summary) string { return standingOf(sum, 2*words.MaxListed) }

// standingOf lists the sidelined and evicted workers, or their number if there
// are more entries than most.
func standingOf(sum record.Summary, most int) string {
	if len(sum.Sidelined)+len(sum.Rejoined)+len(sum.Evicted) <= most {
		return standing(sum)
	}
	count := func(members []record.Membership) string {
		who := map[policy.ID]bool{}
		for _, m := range members {
			who[m.ID] = true
		}
		return fmt.Sprintf("%s (%s)", words.Count(len(members), "time"), words.Count(len(who), "worker"))
	}
	said := "sidelined " + count(sum.Sidelined)
	if len(sum.Rejoined) > 0 {
		said += "; arrived in time again " + count(sum.Rejoined)
	}
	return said + "; evicted: " + words.Count(len(sum.Evicted), "worker")
}

// Stands lists the sidelined and evicted workers, and says whether they were
// predicted.
func (s *side) Stands() string {
	text := crowd(s.Run.Summary)
	switch {
	case s.Prediction == nil:
		return text
	case standing(s.Prediction.Summary) != standing(s.Run.Summary):
		return text + "; simulated: " + crowd(s.Prediction.Summary)
	}
	return text + " (as simulated)"
}

// doingKinds are the columns of the table of workers' time.
var doingKinds = []timeline.Kind{
	timeline.InnerStep, timeline.Dropped, timeline.Waiting, timeline.ReduceScatter, timeline.AllGather, timeline.AllReduce, timeline.Fetch,
}

// Kinds lists the activities of the side's workers.
func (s *side) Kinds() (kinds []timeline.Kind) {
	for _, kind := range doingKinds {
		if slices.ContainsFunc(s.Timeline.Doing, func(span timeline.Span) bool { return span.Kind == kind }) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

func findRound(list []timeline.Round, n int) *timeline.Round {
	for k := range list {
		if list[k].Round == n {
			return &list[k]
		}
	}
	return nil
}

func signedMicros(t policy.Time) string {
	if t < 0 {
		return "−" + words.Micros(-t)
	}
	return "+" + words.Micros(t)
}

// doubtful lists the rounds of a run whose verdict is not the best.
func doubtful(run runs.Run) (lines []string) {
	for _, r := range run.Rounds {
		if r.Verdict != fidelity.Valid {
			lines = append(lines, fmt.Sprintf("round %d %s: %s", r.Round, r.Verdict, strings.Join(r.Reasons, "; ")))
		}
	}
	return lines
}

// arrivals lists the arrivals of workers; of many only the last.
func arrivals(r timeline.Round) string {
	var parts []string
	for _, a := range r.Arrivals {
		text := a.Node + "\u00a0" + words.Thousands(a.Offset)
		if a.Late {
			text += "\u00a0(late)"
		}
		parts = append(parts, text)
	}
	if n := len(parts); n > words.MaxListed {
		return fmt.Sprintf("%d arrivals, the last of which are %s", n, strings.Join(parts[n-3:], ", "))
	}
	return strings.Join(parts, ", ")
}

func walls(played []runs.Run) []policy.Time {
	var all []policy.Time
	for _, run := range played {
		all = append(all, run.WallClock)
	}
	return all
}
