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

	"testbed/policy"
	"testbed/report/words"
	"testbed/runlog"
	"testbed/stats"
)

// Result is what the runs of a world have learnt, under two policies or more, or
// under one.
type Result struct {
	// Target is the validation loss that every run has reached, in nats a token.
	Target float64 `json:"target"`
	// Policies are in the order in which they were given; the first is the
	// reference.
	Policies []Policy `json:"policies"`
}

// Policy is what was learnt under one policy.
type Policy struct {
	Name   string         `json:"name"`
	Curves []Curve        `json:"curves"` // one for each seed
	Final  stats.Estimate `json:"final"`  // validation loss at the end
	// Time is the wall-clock to Target, in microseconds.
	Time stats.Estimate `json:"time_us"`
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
func New[Set ~map[string]runlog.Summary](policies []string, seeds []Set) *Result {
	r := &Result{Target: math.Inf(-1)}
	for _, name := range policies {
		p := Policy{Name: name}
		for _, runs := range seeds {
			c := newCurve(runs[name])
			if len(c.Points) == 0 {
				return nil
			}
			r.Target = max(r.Target, c.least())
			p.Curves = append(p.Curves, c)
		}
		r.Policies = append(r.Policies, p)
	}
	if len(r.Policies) == 0 || len(seeds) == 0 {
		return nil
	}
	r.Target = math.Ceil(r.Target*100-1e-9) / 100 // 2.2 × 100 is above 220
	for i := range r.Policies {
		p := &r.Policies[i]
		p.conclude(&r.Policies[0], r.Target)
		p.Seen = median(seeds, func(runs Set) *int { return runs[p.Name].TokensSeen })
		p.Lost = median(seeds, func(runs Set) *int { return runs[p.Name].TokensLost })
	}
	return r
}

// median is that of a number that runs may have.
func median[Set any](seeds []Set, of func(Set) *int) int64 {
	var all []float64
	for _, runs := range seeds {
		if n := of(runs); n != nil {
			all = append(all, float64(*n))
		}
	}
	if len(all) == 0 {
		return 0
	}
	return int64(stats.Median(all))
}

// newCurve spreads the tokens that a run has seen over its rounds by who took
// part in them.
func newCurve(sum runlog.Summary) Curve {
	c := Curve{Seed: sum.Seed}
	all, seen, so := 0, 0, 0
	if sum.TokensSeen != nil {
		seen = *sum.TokensSeen
	}
	for _, round := range sum.Rounds {
		all += len(round.Participants)
	}
	for _, round := range sum.Rounds {
		so += len(round.Participants)
		if l := round.Loss; l != nil && l.Validation != nil {
			c.Points = append(c.Points, Point{round.Round, round.End, seen * so / all, *l.Validation, l.Train})
		}
	}
	return c
}

func (c Curve) last() Point { return c.Points[len(c.Points)-1] }

func (c Curve) least() float64 {
	return slices.MinFunc(c.Points, func(a, b Point) int { return cmp.Compare(a.Loss, b.Loss) }).Loss
}

// reached is when the loss was first no more than the target.
func (c Curve) reached(target float64) policy.Time {
	k := slices.IndexFunc(c.Points, func(p Point) bool { return p.Loss <= target })
	return c.Points[k].WallClock
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

// conclude computes what follows from the curves. The reference is not held
// against itself.
func (p *Policy) conclude(reference *Policy, target float64) {
	var final, times, sooner, byTokens, byRounds []float64
	for k, c := range p.Curves {
		r := reference.Curves[k]
		final = append(final, c.last().Loss)
		times = append(times, float64(c.reached(target)))
		sooner = append(sooner, float64(r.reached(target))/float64(c.reached(target)))
		byTokens, byRounds = append(byTokens, c.against(r, tokens)), append(byRounds, c.against(r, rounds))
	}
	p.Final, p.Time = stats.Estimated(final), stats.Estimated(times)
	if p != reference {
		p.Sooner, p.EqualTokens, p.EqualRounds = stats.Estimated(sooner), stats.Estimated(byTokens), stats.Estimated(byRounds)
	}
}

// Seconds is Time in seconds of scenario time.
func (p Policy) Seconds() float64 { return p.Time.Median / 1e6 }

// Answer says in words what came of it: for each policy but the reference, or for
// that if it is alone.
func (r *Result) Answer() (lines []string) {
	first := r.Policies[0]
	if len(r.Policies) == 1 {
		return []string{fmt.Sprintf("%s reached a validation loss of %.2f in %s.", first.Name, r.Target, seconds(first.Seconds()))}
	}
	for _, p := range r.Policies[1:] {
		text := fmt.Sprintf("%s reached a validation loss of %.2f in %s, %s in %s", p.Name, r.Target, seconds(p.Seconds()), first.Name, seconds(first.Seconds()))
		text += fmt.Sprintf("; at equal tokens its loss was %s, at equal rounds %s", above(p.EqualTokens), above(p.EqualRounds))
		lines = append(lines, text+".")
	}
	return lines
}

// Same returns after how many of the rounds that both have two runs of a scenario
// held the same model, bit by bit.
func Same(a, b runlog.Summary) (same, of int) {
	for i := range min(len(a.Rounds), len(b.Rounds)) {
		if a.Rounds[i].ModelHash == "" || b.Rounds[i].ModelHash == "" {
			continue
		}
		of++
		if a.Rounds[i].ModelHash == b.Rounds[i].ModelHash {
			same++
		}
	}
	return same, of
}

// Of says in words what a run has learnt, and nothing if that is nothing.
func Of(sum runlog.Summary) string {
	c := newCurve(sum)
	if len(c.Points) == 0 {
		return ""
	}
	last := c.last()
	text := fmt.Sprintf("validation loss %.3f nats a token after %d outer steps, from %.3f after the first", last.Loss, last.Round, c.Points[0].Loss)
	if sum.TokensSeen != nil && sum.TokensLost != nil {
		text += fmt.Sprintf("; %s tokens seen, %s thrown away", words.Thousands(int64(*sum.TokensSeen)), words.Thousands(int64(*sum.TokensLost)))
	}
	return text
}

func seconds(s float64) string { return fmt.Sprintf("%.1f s", s) }

// above says by how much a loss is higher or lower than another.
func above(e stats.Estimate) string {
	word := "higher"
	if e.Median < 0 {
		word = "lower"
	}
	text := fmt.Sprintf("%.1f %% %s", 100*math.Abs(e.Median), word)
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
		share := 0.0
		if p.Seen+p.Lost > 0 {
			share = float64(p.Lost) / float64(p.Seen+p.Lost)
		}
		fmt.Fprintf(w, "%s\t%.3f\t%s\t%s\t%.1f %%\n", p.Name, p.Final.Median, seconds(p.Seconds()), words.Thousands(p.Seen), 100*share)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, strings.Join(r.Answer(), "\n"))
	return err
}
