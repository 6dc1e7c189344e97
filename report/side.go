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

// side is what the page shows of one policy. Where a policy was run several
// times the pictures are those of the run with the median wall-clock.
type side struct {
	Policy    string            `json:"policy"`
	World     string            `json:"world"`
	Timeline  timeline.Timeline `json:"timeline"`
	Rounds    []timeline.Round  `json:"rounds"`
	Simulated []timeline.Round  `json:"simulated"` // the prediction for a real run
	Links     []timeline.Link   `json:"links"`

	Workers    []timeline.Worker `json:"-"`
	Run        runs.Run          `json:"-"` // the one shown
	Runs       []runs.Run        `json:"-"` // all of them
	Prediction *runs.Run         `json:"-"` // of the run shown
	// Error is the simulator's, (simulated − measured) / measured, over the
	// complete runs.
	Error stats.Estimate `json:"-"`
	// LinksError is that of the simulator on the links of the plan.
	LinksError stats.Estimate `json:"-"`
	OnLinks    *runs.Run      `json:"-"` // the prediction that it is about
	Sidelining record.Work    `json:"-"` // over all of them
}

// LeavesOut says that the policy may close a round without a live member.
func (s *side) LeavesOut() bool { return s.Policy != scenarios.Baseline }

// predict lays the simulated runs beside the measured ones with their seeds.
func (s *side) predict(simulated []runs.Run) {
	if s.Prediction = runs.Seeded(simulated, s.Run.Seed, 0); s.Prediction != nil {
		s.Simulated = timeline.Rounds(s.Prediction)
	}
	s.Error = s.against(simulated)
}

// Misses says where the errors of the predictions for the run shown lie. There
// are none for runs of a time when summaries did not split their wall-clock.
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

// miss is where the error of a prediction lies: simulated − measured, as a
// share of the measured wall-clock, of each part of a record.Split in order.
type miss struct {
	Prediction string
	Parts      []string
}

// against is the error of simulated runs beside the measured ones.
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

// wall is what the runs say of the wall-clock, without an interval if one of
// them stayed incomplete.
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

// WallHead says what WallText has of several runs.
func (s *side) WallHead() string {
	switch i := s.wall().Interval; {
	case i != nil:
		return fmt.Sprintf(" (median of %d, %.3g %% interval)", len(s.Runs), 100*i.Level)
	case len(s.Runs) > 1:
		return " (least – median – most)"
	}
	return ""
}

// WallText is the wall-clock of all runs: one, or the median with its interval,
// or least, median and most.
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

// crowd says who was sidelined and evicted, or how many where it is many.
func crowd(sum record.Summary) string { return standingOf(sum, 2*words.MaxListed) }

// standingOf says who was sidelined and evicted, or how many if there are more
// entries than the most.
func standingOf(sum record.Summary, most int) string {
	if len(sum.Sidelined)+len(sum.Rejoined)+len(sum.Evicted) <= most {
		return standing(sum)
	}
	count := func(members []record.Membership) string {
		who := map[policy.ID]bool{}
		for _, m := range members {
			who[m.ID] = true
		}
		return fmt.Sprintf("%s of %s", words.Count(len(members), "time"), words.Count(len(who), "worker"))
	}
	said := "sidelined " + count(sum.Sidelined)
	if len(sum.Rejoined) > 0 {
		said += "; back in time " + count(sum.Rejoined)
	}
	return said + fmt.Sprintf("; evicted %d", len(sum.Evicted))
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
var doingKinds = []timeline.Kind{
	timeline.InnerStep, timeline.Dropped, timeline.Waiting, timeline.ReduceScatter, timeline.AllGather, timeline.AllReduce, timeline.Fetch,
}

// Kinds lists what any worker of the side did.
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

// doubtful lists the rounds of a run whose verdict is not the best one.
func doubtful(run runs.Run) (lines []string) {
	for _, r := range run.Rounds {
		if r.Verdict != fidelity.Valid {
			lines = append(lines, fmt.Sprintf("round %d %s: %s", r.Round, r.Verdict, strings.Join(r.Reasons, "; ")))
		}
	}
	return lines
}

// arrivals lists when workers arrived, of many only the last.
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
		return fmt.Sprintf("%d arrivals, the last %s", n, strings.Join(parts[n-3:], ", "))
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
