// Package learning says what policies cost and gain in loss: the same runs by
// wall-clock, by tokens and by rounds.
package learning

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"testbed/internal/stats"
	"testbed/policy"
	"testbed/record"
	"testbed/report/words"
)

// Result is what the runs of a world have learnt, under two policies or more, or
// under one.
type Result struct {
	// Target is the validation loss that every run has reached.
	Target float64 `json:"target"`
	// Policies are in the order in which they were given; the first is the
	// reference.
	Policies []Policy `json:"policies"`
	// ByPolicy has the same by name.
	ByPolicy map[string]Policy `json:"by_policy"`
}

// Policy is what was learnt under one policy.
type Policy struct {
	Name   string  `json:"name"`
	Curves []Curve `json:"curves"` // one for each seed
	Outcome
}

// Outcome is what several runs of one kind have learnt, held against those of
// another kind, the reference.
type Outcome struct {
	Final stats.Estimate `json:"final"` // validation loss at the end
	// Time is the wall-clock to the target loss, in microseconds, of the runs that
	// reached it; Unreached counts the others.
	Time      stats.Estimate `json:"time_us"`
	Unreached int            `json:"unreached,omitempty"`
	// Sooner is the reference's time over this one's, seed by seed.
	Sooner stats.Estimate `json:"sooner,omitzero"`
	// Seen and Lost are tokens that went into outer steps, and that were thrown
	// away: of the median run.
	Seen int64 `json:"tokens_seen"`
	Lost int64 `json:"tokens_lost"`
	// EqualTokens and EqualRounds are by how much its loss is above the
	// reference's, as a share of that, when both have seen as many tokens, and
	// after as many outer steps; seed by seed.
	EqualTokens stats.Estimate `json:"equal_tokens,omitzero"`
	EqualRounds stats.Estimate `json:"equal_rounds,omitzero"`
}

// Curve is the validation loss of one run.
type Curve struct {
	Seed   uint64  `json:"seed"`
	Points []Point `json:"points"`
	// Seen and Lost are tokens that went into outer steps, and that were thrown
	// away.
	Seen int `json:"-"`
	Lost int `json:"-"`
}

// Point is the state after an outer step.
type Point struct {
	Round     int         `json:"round"`
	WallClock policy.Time `json:"wall_clock_us"`
	Tokens    int         `json:"tokens"`
	Loss      float64     `json:"loss"`
	Train     *float64    `json:"train,omitempty"`
}

// New holds the policies' runs against each other, seed by seed; nil if not all
// of them have learnt something.
func New[Set ~map[string]record.Summary](policies []string, seeds []Set) *Result {
	r := &Result{}
	var all []Curve
	for _, name := range policies {
		p := Policy{Name: name}
		for _, runs := range seeds {
			c := NewCurve(runs[name])
			if len(c.Points) == 0 {
				return nil
			}
			p.Curves = append(p.Curves, c)
		}
		all = append(all, p.Curves...)
		r.Policies = append(r.Policies, p)
	}
	if len(all) == 0 {
		return nil
	}
	r.Target = Target(all)
	for i := range r.Policies {
		p, reference := &r.Policies[i], r.Policies[0].Curves
		if i == 0 { // not held against itself
			reference = nil
		}
		p.Outcome = NewOutcome(p.Curves, reference, r.Target)
	}
	r.ByPolicy = map[string]Policy{}
	for _, p := range r.Policies {
		r.ByPolicy[p.Name] = p
	}
	return r
}

// Target is the validation loss that every run has reached, the worst of their
// best ones, rounded up to a hundredth; 0 without any.
func Target(all []Curve) float64 {
	worst := 0.0
	for _, c := range all {
		if len(c.Points) > 0 {
			worst = max(worst, c.least())
		}
	}
	return math.Ceil(worst*100-1e-9) / 100 // 2.2 × 100 is above 220
}

// median is that of a number of tokens, over the runs.
func median(curves []Curve, of func(Curve) int) int64 {
	var all []float64
	for _, c := range curves {
		if len(c.Points) > 0 {
			all = append(all, float64(of(c)))
		}
	}
	if len(all) == 0 {
		return 0
	}
	return int64(stats.Median(all))
}

// NewCurve spreads the tokens that a run has seen over its rounds by who took
// part in them. It has no points if nothing was learnt.
func NewCurve(sum record.Summary) Curve {
	c := Curve{Seed: sum.Seed}
	if sum.TokensSeen != nil && sum.TokensLost != nil {
		c.Seen, c.Lost = *sum.TokensSeen, *sum.TokensLost
	}
	all, so := 0, 0
	for _, round := range sum.Rounds {
		all += len(round.Participants)
	}
	for _, round := range sum.Rounds {
		so += len(round.Participants)
		if l := round.Loss; l != nil && l.Validation != nil {
			c.Points = append(c.Points, Point{round.Round, round.End, c.Seen * so / all, *l.Validation, l.Train})
		}
	}
	return c
}

// Final is the loss at the end.
func (c Curve) Final() float64 { return c.last().Loss }

func (c Curve) last() Point { return c.Points[len(c.Points)-1] }

func (c Curve) least() float64 {
	return slices.MinFunc(c.Points, func(a, b Point) int { return cmp.Compare(a.Loss, b.Loss) }).Loss
}

// Reached is when the loss was first no more than the target, if ever.
func (c Curve) Reached(target float64) (policy.Time, bool) {
	k := slices.IndexFunc(c.Points, func(p Point) bool { return p.Loss <= target })
	if k < 0 {
		return 0, false
	}
	return c.Points[k].WallClock, true
}

// at is the loss where the points have a value of x, on the line between them.
func (c Curve) at(x float64, of func(Point) float64) float64 {
	k := slices.IndexFunc(c.Points, func(p Point) bool { return of(p) >= x })
	switch {
	case k < 0:
		return c.last().Loss
	case k == 0:
		return c.Points[0].Loss
	}
	a, b := c.Points[k-1], c.Points[k]
	return a.Loss + (b.Loss-a.Loss)*(x-of(a))/(of(b)-of(a))
}

// against is by how much the loss of one curve is above another's, as far as both
// go.
func (c Curve) against(other Curve, of func(Point) float64) float64 {
	x := min(of(c.last()), of(other.last()))
	return c.at(x, of)/other.at(x, of) - 1
}

func tokens(p Point) float64 { return float64(p.Tokens) }
func rounds(p Point) float64 { return float64(p.Round) }

// NewOutcome computes what follows from the curves, and from those of a
// reference, if there is one, pair by pair. A curve without points is of a run
// that does not count.
func NewOutcome(curves, reference []Curve, target float64) (o Outcome) {
	var final, times, sooner, byTokens, byRounds []float64
	for k, c := range curves {
		if len(c.Points) == 0 {
			continue
		}
		final = append(final, c.last().Loss)
		at, reached := c.Reached(target)
		if reached {
			times = append(times, float64(at))
		} else {
			o.Unreached++
		}
		if reference == nil || len(reference[k].Points) == 0 {
			continue
		}
		r := reference[k]
		if before, ok := r.Reached(target); ok && reached && at > 0 {
			sooner = append(sooner, float64(before)/float64(at))
		}
		byRounds = append(byRounds, c.against(r, rounds))
		if c.Seen > 0 && r.Seen > 0 { // else nobody knows how many there were
			byTokens = append(byTokens, c.against(r, tokens))
		}
	}
	o.Final, o.Time = stats.Estimated(final), stats.Estimated(times)
	if reference != nil {
		o.Sooner, o.EqualTokens, o.EqualRounds = stats.Estimated(sooner), stats.Estimated(byTokens), stats.Estimated(byRounds)
	}
	o.Seen = median(curves, func(c Curve) int { return c.Seen })
	o.Lost = median(curves, func(c Curve) int { return c.Lost })
	return o
}

// Seconds is Time in seconds of scenario time.
func (o Outcome) Seconds() float64 { return o.Time.Median / 1e6 }

// Answer says in words what came of it: for each policy but the reference, or for
// that if it is alone.
func (r *Result) Answer() (lines []string) {
	first := r.Policies[0]
	if len(r.Policies) == 1 {
		if first.Time.N == 0 {
			return []string{fmt.Sprintf("%s never reached a validation loss of %.2f.", first.Name, r.Target)}
		}
		return []string{fmt.Sprintf("%s reached a validation loss of %.2f in %s.", first.Name, r.Target, first.When())}
	}
	for _, p := range r.Policies[1:] {
		text := fmt.Sprintf("%s reached a validation loss of %.2f in %s, %s in %s", p.Name, r.Target, p.When(), first.Name, first.When())
		if p.Time.N == 0 || first.Time.N == 0 {
			text = fmt.Sprintf("time to a validation loss of %.2f: %s %s, %s %s", r.Target, p.Name, p.When(), first.Name, first.When())
		}
		text += fmt.Sprintf("; at equal tokens its loss was %s, at equal rounds %s", above(p.EqualTokens), above(p.EqualRounds))
		lines = append(lines, text+".")
	}
	return lines
}

// Same returns after how many of the rounds that both have two runs of a scenario
// held the same model, bit by bit.
func Same(a, b record.Summary) (same, of int) {
	for i := range min(len(a.Rounds), len(b.Rounds)) {
		if a.Rounds[i].Model() == "" || b.Rounds[i].Model() == "" {
			continue
		}
		of++
		if a.Rounds[i].Model() == b.Rounds[i].Model() {
			same++
		}
	}
	return same, of
}

// Of says in words what a run has learnt, and nothing if that is nothing.
func Of(sum record.Summary) string {
	c := NewCurve(sum)
	if len(c.Points) == 0 {
		return ""
	}
	last := c.last()
	first := "the first"
	if n := c.Points[0].Round; n > 1 { // of all regions
		first = fmt.Sprint(n)
	}
	text := fmt.Sprintf("validation loss %.3f after %d outer steps, from %.3f after %s", last.Loss, last.Round, c.Points[0].Loss, first)
	if sum.TokensSeen != nil && sum.TokensLost != nil && *sum.TokensSeen+*sum.TokensLost > 0 {
		text += fmt.Sprintf("; %s tokens seen, %s thrown away", words.Thousands(int64(*sum.TokensSeen)), words.Thousands(int64(*sum.TokensLost)))
	}
	return text
}

// When is Time in words.
func (o Outcome) When() string {
	if o.Time.N == 0 {
		return "never"
	}
	return fmt.Sprintf("%.1f s", o.Seconds())
}

// TokensText says how many tokens went into outer steps, and what share was thrown
// away, where a trainer counts them.
func (o Outcome) TokensText() (seen, lost string) {
	if o.Seen+o.Lost == 0 {
		return "unknown", "unknown"
	}
	return words.Thousands(o.Seen), fmt.Sprintf("%.1f %%", 100*float64(o.Lost)/float64(o.Seen+o.Lost))
}

// above says by how much a loss is higher or lower than another.
func above(e stats.Estimate) string {
	if e.N == 0 {
		return "unknown"
	}
	word := "higher"
	if e.Median < 0 {
		word = "lower"
	}
	text := fmt.Sprintf("%.1f %% %s", 100*math.Abs(e.Median), word)
	if e.Median == 0 {
		text = "the same"
	}
	if i := e.Interval; i != nil {
		text += fmt.Sprintf(" (%+.1f to %+.1f %%, %.3g %% interval)", 100*i.Low, 100*i.High, 100*i.Level)
		if i.Contains(0) {
			text += ", which may be chance"
		}
	}
	return text
}

// Write writes the result as a table and in words. title says in which world it
// was learnt.
func (r *Result) Write(out io.Writer, title string) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(w, "\nlearning, %s\tvalidation loss\tloss %.2f after\ttokens seen\tthrown away\n", title, r.Target)
	for _, p := range r.Policies {
		seen, lost := p.TokensText()
		fmt.Fprintf(w, "%s\t%.3f\t%s\t%s\t%s\n", p.Name, p.Final.Median, p.When(), seen, lost)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, strings.Join(r.Answer(), "\n"))
	return err
}
