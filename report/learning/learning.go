// Package learning compares policies by loss: the same runs by wall-clock, by
// tokens and by rounds.
package learning

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"text/tabwriter"

	"testbed/internal/stats"
	"testbed/policy"
	"testbed/record"
	"testbed/report/words"
)

// Result has the training results of a world's runs, under one policy or more.
type Result struct {
	// The [validation loss](learning.md#time-to-a-loss) to which times are measured.
	Target float64 `json:"target"`
	// Whether `--loss` gave the target. Otherwise it is the reference's final loss.
	Asked bool `json:"target_asked"`
	// The policies in the given order, the reference first.
	Policies []Policy `json:"policies"`
	// The policies by name.
	ByPolicy map[string]Policy `json:"by_policy"`
}

// Policy has the training results of one policy.
type Policy struct {
	Name   string  `json:"name"`   // The policy.
	Curves []Curve `json:"curves"` // The losses of each seed.
	Outcome
}

// Outcome has the training results of several runs of one kind, compared with
// runs of another kind, the reference.
type Outcome struct {
	Final stats.Estimate `json:"final"` // The validation loss at the end.
	// The wall-clock to the target loss, in microseconds, interpolated between two
	// evaluations, of runs that reached the target.
	Time stats.Estimate `json:"time_us"`
	// The number of runs that did not reach the target.
	Unreached int `json:"unreached,omitempty"`
	// The reference's `time_us` divided by this `time_us`, seed by seed.
	Sooner stats.Estimate `json:"sooner,omitzero"`
	// `sooner` with the final loss here as the target, seed by seed. It exists even if
	// no run reaches the target.
	Own stats.Estimate `json:"sooner_own,omitzero"`
	// The tokens in outer steps, of the median run.
	Seen int64 `json:"tokens_seen"`
	// The discarded tokens, of the median run.
	Lost int64 `json:"tokens_lost"`
	// The excess of the loss over the reference's loss, divided by the reference's
	// loss, after equal numbers of tokens.
	EqualTokens stats.Estimate `json:"equal_tokens,omitzero"`
	// This excess after equal numbers of outer steps.
	EqualRounds stats.Estimate `json:"equal_rounds,omitzero"`
}

// Curve is the validation loss of one run.
type Curve struct {
	Seed   uint64  `json:"seed"`   // The seed.
	Points []Point `json:"points"` // The points of the curve, in order.
	// Seen and Lost are tokens that went into outer steps, and that were
	// discarded.
	Seen int `json:"-"`
	Lost int `json:"-"`
}

// Point is the state after an outer step, or in round 0 the initial state.
type Point struct {
	Round     int         `json:"round"`         // The outer step, or 0 at the beginning.
	WallClock policy.Time `json:"wall_clock_us"` // When the outer step was taken.
	Tokens    int         `json:"tokens"`        // The tokens seen so far.
	Loss      float64     `json:"loss"`          // The validation loss.
	// The mean training loss of the round.
	Train *float64 `json:"train,omitempty"`
}

// New compares the policies' runs, seed by seed. It is nil if a policy has no
// training results. The target is the loss for times to a loss, 0 for the
// reference's final one.
func New[Set ~map[string]record.Summary](policies []string, seeds []Set, target float64) *Result {
	r := &Result{Target: target, Asked: target > 0}
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
	if !r.Asked {
		r.Target = Target(r.Policies[0].Curves)
	}
	for i := range r.Policies {
		p, reference := &r.Policies[i], r.Policies[0].Curves
		if i == 0 { // not compared with itself
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

// Target is the final loss of the reference's runs, rounded up to three digits.
// With several runs it is the worst, so that each has reached it. It is 0
// without any.
func Target(reference []Curve) float64 {
	worst := math.Inf(-1)
	for _, c := range reference {
		if len(c.Points) > 0 {
			worst = max(worst, c.Final())
		}
	}
	if math.IsInf(worst, 0) {
		return 0
	}
	return roundUp(worst)
}

// roundUp rounds up to three digits.
func roundUp(x float64) float64 {
	if x == 0 {
		return 0
	}
	digits := 2 - int(math.Floor(math.Log10(math.Abs(x)))) // after the decimal point
	unit := math.Pow(10, math.Abs(float64(digits)))
	if digits < 0 {
		return math.Ceil(x/unit-1e-9) * unit
	}
	return math.Ceil(x*unit-1e-9) / unit // 2.2 × 100 is above 220
}

// LossText writes a loss with three digits, as a target has them.
func LossText(x float64) string {
	if x == 0 {
		return "0"
	}
	return strconv.FormatFloat(x, 'f', max(0, 2-int(math.Floor(math.Log10(math.Abs(x))+1e-12))), 64)
}

// median is the median number of tokens, over the runs.
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

// NewCurve distributes a run's tokens over its rounds, by their participants.
// The curve has no points if nothing was trained.
func NewCurve(sum record.Summary) Curve {
	c := Curve{Seed: sum.Seed}
	if sum.TokensSeen != nil && sum.TokensLost != nil {
		c.Seen, c.Lost = *sum.TokensSeen, *sum.TokensLost
	}
	all, so := 0, 0
	for _, round := range sum.Rounds {
		all += len(round.Participants)
	}
	if sum.InitialLoss != nil {
		c.Points = append(c.Points, Point{Loss: *sum.InitialLoss})
	}
	for _, round := range sum.Rounds {
		so += len(round.Participants)
		if l := round.Loss; l != nil && l.Validation != nil {
			c.Points = append(c.Points, Point{round.Round, round.End, c.Seen * so / all, *l.Validation, l.Train})
		}
	}
	if len(c.Points) == 1 && c.Points[0].Round == 0 {
		c.Points = nil // no outer step is known
	}
	return c
}

// Final is the final loss.
func (c Curve) Final() float64 { return c.last().Loss }

func (c Curve) last() Point { return c.Points[len(c.Points)-1] }

// Reached is the time at which the loss first reached the target, if ever. It
// is interpolated between the evaluations before and after, if there is one
// before.
func (c Curve) Reached(target float64) (policy.Time, bool) {
	k := slices.IndexFunc(c.Points, func(p Point) bool { return p.Loss <= target })
	switch {
	case k < 0:
		return 0, false
	case k == 0:
		return c.Points[0].WallClock, true
	}
	a, b := c.Points[k-1], c.Points[k]
	share := (a.Loss - target) / (a.Loss - b.Loss)
	return a.WallClock + policy.Time(math.Round(share*float64(b.WallClock-a.WallClock))), true
}

// at is the loss at a value x of the points, interpolated between them.
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

// against is the excess of one curve's loss over another's, as far as both go.
func (c Curve) against(other Curve, of func(Point) float64) float64 {
	x := min(of(c.last()), of(other.last()))
	return c.at(x, of)/other.at(x, of) - 1
}

func tokens(p Point) float64 { return float64(p.Tokens) }
func rounds(p Point) float64 { return float64(p.Round) }

// NewOutcome computes the results from the curves and, if there is a reference,
// from its curves, pair by pair. A curve without points belongs to a run that
// does not count.
func NewOutcome(curves, reference []Curve, target float64) (o Outcome) {
	var final, times, sooner, own, byTokens, byRounds []float64
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
		end := c.Final()
		if before, ok := r.Reached(end); ok {
			if at, _ := c.Reached(end); at > 0 {
				own = append(own, float64(before)/float64(at))
			}
		}
		byRounds = append(byRounds, c.against(r, rounds))
		if c.Seen > 0 && r.Seen > 0 { // otherwise their number is unknown
			byTokens = append(byTokens, c.against(r, tokens))
		}
	}
	o.Final, o.Time = stats.Estimated(final), stats.Estimated(times)
	if reference != nil {
		o.Sooner, o.Own, o.EqualTokens, o.EqualRounds = stats.Estimated(sooner), stats.Estimated(own), stats.Estimated(byTokens), stats.Estimated(byRounds)
	}
	o.Seen = median(curves, func(c Curve) int { return c.Seen })
	o.Lost = median(curves, func(c Curve) int { return c.Lost })
	return o
}

// Seconds is Time in seconds of scenario time.
func (o Outcome) Seconds() float64 { return o.Time.Median / 1e6 }

// Headline names the policy that reached the target first.
func (r *Result) Headline() string {
	first := r.Policies[0]
	if len(r.Policies) == 1 {
		if first.Time.N == 0 {
			return fmt.Sprintf("Under %s, the loss never fell to %s. It ended at %s.", first.Name, LossText(r.Target), first.FinalText())
		}
		if r.Asked {
			return fmt.Sprintf("Under %s, the loss fell to %s in %s.%s", first.Name, LossText(r.Target), first.When(), first.never())
		}
		return fmt.Sprintf("Under %s, the final loss was %s. The loss fell to %s in %s.", first.Name, first.FinalText(), LossText(r.Target), first.When())
	}
	best := r.Best()
	text := r.against(*best)
	if len(r.Policies) == 2 {
		return text
	}
	switch e := best.Sooner; {
	case e.N > 0 && e.Median > 1 && !e.NoDifference():
		return fmt.Sprintf("Of %d policies, %s was the fastest. %s", len(r.Policies), best.Name, words.Capital(text))
	case best.Time.N == 0 && first.Time.N == 0:
		least := slices.MinFunc(r.Policies, func(a, b Policy) int { return cmp.Compare(a.Final.Median, b.Final.Median) })
		return fmt.Sprintf("None of %d policies reached %s. The lowest final loss was %s, under %s.", len(r.Policies), r.goal(), least.FinalText(), least.Name)
	}
	return fmt.Sprintf("The best of the other %d policies is %s. %s", len(r.Policies)-1, best.Name, words.Capital(text))
}

// Best is the policy that reached the target first, apart from the reference;
// nil if there are none.
func (r *Result) Best() *Policy {
	if len(r.Policies) == 1 {
		return nil
	}
	best := &r.Policies[1]
	for k := range r.Policies[2:] {
		if p := &r.Policies[2+k]; p.before(best) {
			best = p
		}
	}
	return best
}

// before reports whether a policy did better than another: by its gain on the
// reference if it has one, otherwise by its time.
func (p *Policy) before(other *Policy) bool {
	switch {
	case p.Sooner.N > 0 && other.Sooner.N > 0:
		return p.Sooner.Median > other.Sooner.Median
	case p.Sooner.N > 0 || other.Sooner.N > 0:
		return p.Sooner.N > 0
	case p.Time.N > 0 && other.Time.N > 0:
		return p.Time.Median < other.Time.Median
	}
	return p.Time.N > 0
}

// Median is the curve of medians over the runs, of time, tokens and loss, with
// the least and the most loss, after each outer step that all have.
func Median(curves []Curve) (all []Spread) {
	if len(curves) == 0 {
		return nil
	}
	for _, p := range curves[0].Points {
		var times, losses []float64
		for _, c := range curves {
			if k := slices.IndexFunc(c.Points, func(q Point) bool { return q.Round == p.Round }); k >= 0 {
				times, losses = append(times, float64(c.Points[k].WallClock)), append(losses, c.Points[k].Loss)
			}
		}
		if len(times) == len(curves) {
			all = append(all, Spread{p.Round, policy.Time(math.Round(stats.Median(times))), stats.Median(losses), slices.Min(losses), slices.Max(losses)})
		}
	}
	return all
}

// Spread has the values of several runs after an outer step.
type Spread struct {
	Round     int         `json:"round"`
	WallClock policy.Time `json:"wall_clock_us"`
	Loss      float64     `json:"loss"`
	Least     float64     `json:"least"`
	Most      float64     `json:"most"`
}

// goal names the target.
func (r *Result) goal() string {
	if r.Asked {
		return "a loss of " + LossText(r.Target)
	}
	return fmt.Sprintf("the %s of %s, %s", r.FinalName(), r.Policies[0].Name, LossText(r.Target))
}

// FinalName says which of the reference's losses the target is, if none was
// requested.
func (r *Result) FinalName() string {
	if len(r.Policies[0].Curves) > 1 {
		return "highest final loss"
	}
	return "final loss"
}

// against gives the times at which a policy and the reference reached the
// target.
func (r *Result) against(p Policy) string {
	first := r.Policies[0]
	never := p.never() + first.never()
	switch {
	case p.Time.N == 0 && first.Time.N == 0:
		return fmt.Sprintf("Neither %s nor %s reached %s. Their final losses were %s and %s.", p.Name, first.Name, r.goal(), p.FinalText(), first.FinalText())
	case p.Time.N == 0:
		text := fmt.Sprintf("%s never reached %s. %s reached it in %s.%s The final loss of %s was %s.", p.Name, r.goal(), words.Capital(first.Name), first.When(), first.never(), p.Name, p.FinalText())
		if p.Own.N > 0 {
			text += fmt.Sprintf(" %s reached that loss %s", words.Capital(p.Name), speed(p.Own, first.Name))
		}
		return text
	case first.Time.N == 0:
		return fmt.Sprintf("%s reached %s in %s.%s %s never did. Its final loss was %s.", p.Name, r.goal(), p.When(), p.never(), words.Capital(first.Name), first.FinalText())
	case p.Sooner.N == 0 && p.Time.Median == 0:
		return fmt.Sprintf("Under %s, the loss was already at most %s at the start.", p.Name, LossText(r.Target))
	case p.Sooner.N == 0:
		return fmt.Sprintf("%s reached %s in %s and %s in %s, but no seed reached it under both policies.", p.Name, r.goal(), p.When(), first.Name, first.When())
	case p.Sooner.NoDifference() && p.Sooner.Interval != nil:
		return fmt.Sprintf("No difference was shown in the time to %s: %s took %s, %s %s (%s as fast, %s).%s",
			r.goal(), p.Name, p.When(), first.Name, first.When(), words.Times(p.Sooner.Median), interval(p.Sooner.Interval), never)
	case p.Sooner.Median == 1:
		return fmt.Sprintf("%s and %s reached %s equally fast, in %s.%s", p.Name, first.Name, r.goal(), p.When(), never)
	}
	return fmt.Sprintf("To reach %s, %s took %s and %s %s. So %s was %s.%s", r.goal(), p.Name, p.When(), first.Name, first.When(), p.Name, fast(p.Sooner), never)
}

// never names the number of seeds with which a policy did not reach the target,
// as a further sentence.
func (p *Policy) never() string {
	if p.Unreached == 0 || p.Time.N == 0 {
		return ""
	}
	return fmt.Sprintf(" With %s, %s never reached it.", words.Count(p.Unreached, "seed"), p.Name)
}

// fast is a ratio of times in words, with its interval.
func fast(e stats.Estimate) string {
	text := words.Times(e.Median) + " as fast"
	if i := e.Interval; i != nil {
		text += " (" + interval(i) + ")"
	}
	return text
}

// interval writes the interval of a ratio.
func interval(i *stats.Interval) string {
	return fmt.Sprintf("%.3g %% interval %.2f to %.2f", 100*i.Level, i.Low, i.High)
}

// speed compares the speed with the reference's, to the end of the sentence.
func speed(e stats.Estimate, reference string) string {
	text := fast(e) + " as " + reference
	if e.NoDifference() {
		text += ", which shows no difference"
	}
	return text + "."
}

// Answer describes the result in words: for each policy except the reference,
// or for the reference if it is alone.
func (r *Result) Answer() (lines []string) {
	if len(r.Policies) == 1 {
		return []string{r.Headline()}
	}
	for _, p := range r.Policies[1:] {
		lines = append(lines, fmt.Sprintf("%s At equal tokens, the loss of %s was %s. At equal rounds, it was %s.",
			r.against(p), p.Name, above(p.EqualTokens, r.Policies[0].Name), above(p.EqualRounds, r.Policies[0].Name)))
	}
	return lines
}

// FinalText is the final loss.
func (o Outcome) FinalText() string {
	if o.Final.N == 0 {
		return "unknown"
	}
	return fmt.Sprintf("%.3f", o.Final.Median)
}

// Same returns the number of rounds that both runs have, and the number of
// those after which both held the same model, bit by bit.
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

// Of describes a run's training result in words. It is empty if there is none.
func Of(sum record.Summary) string {
	c := NewCurve(sum)
	if len(c.Points) == 0 {
		return ""
	}
	last := c.last()
	first := "after the first one"
	switch n := c.Points[0].Round; {
	case n == 0:
		first = "at the start"
	case n > 1: // of all regions
		first = "after " + words.Count(n, "outer step")
	}
	text := fmt.Sprintf("validation loss %.3f after %s, from %.3f %s", last.Loss, words.Count(last.Round, "outer step"), c.Points[0].Loss, first)
	if sum.TokensSeen != nil && sum.TokensLost != nil && *sum.TokensSeen+*sum.TokensLost > 0 {
		text += fmt.Sprintf(" (%s tokens seen, %s thrown away)", words.Thousands(int64(*sum.TokensSeen)), words.Thousands(int64(*sum.TokensLost)))
	}
	return text
}

// When is Time in words.
func (o Outcome) When() string {
	if o.Time.N == 0 {
		return "never"
	}
	return Seconds(o.Seconds())
}

// Seconds writes a time with about three digits.
func Seconds(s float64) string {
	digits := 0
	switch {
	case s < 1e-3:
		return strconv.FormatFloat(1e6*s, 'f', 0, 64) + " µs"
	case s < 1:
		return strconv.FormatFloat(1e3*s, 'g', 3, 64) + " ms"
	case s < 10:
		digits = 2
	case s < 100:
		digits = 1
	}
	return strconv.FormatFloat(s, 'f', digits, 64) + " s"
}

// TokensText returns the number of tokens in outer steps, and the share that
// was discarded, if a trainer counts them.
func (o Outcome) TokensText() (seen, lost string) {
	if o.Seen+o.Lost == 0 {
		return "unknown", "unknown"
	}
	return words.Thousands(o.Seen), fmt.Sprintf("%.1f %%", 100*float64(o.Lost)/float64(o.Seen+o.Lost))
}

// above says how much higher or lower a loss is than the reference's.
func above(e stats.Estimate, reference string) string {
	if e.N == 0 {
		return "unknown"
	}
	word := "higher"
	if e.Median < 0 {
		word = "lower"
	}
	text := fmt.Sprintf("%.1f %% %s than under %s", 100*math.Abs(e.Median), word, reference)
	if e.Median == 0 {
		text = "the same as under " + reference
	}
	if i := e.Interval; i != nil {
		text += fmt.Sprintf(" (%.3g %% interval %+.1f %% to %+.1f %%)", 100*i.Level, 100*i.Low, 100*i.High)
		if i.Contains(0) {
			text += ", which may be chance"
		}
	}
	return text
}

// Write writes the result as a table. title names its world.
func (r *Result) Write(out io.Writer, title string) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(w, "\nlearning, %s\tfinal loss\ttime to %s\t", title, LossText(r.Target))
	if len(r.Policies) > 1 {
		fmt.Fprint(w, "as fast as "+r.Policies[0].Name+"\tloss at equal tokens\tat equal rounds\t")
	}
	fmt.Fprintln(w, "tokens seen\tthrown away")
	for k, p := range r.Policies {
		seen, lost := p.TokensText()
		fmt.Fprintf(w, "%s\t%s\t%s\t", p.Name, p.FinalText(), p.When())
		switch {
		case len(r.Policies) == 1:
		case k == 0:
			fmt.Fprint(w, "\t\t\t")
		default:
			fmt.Fprintf(w, "%s\t%s\t%s\t", ratioText(p.Sooner), relative(p.EqualTokens), relative(p.EqualRounds))
		}
		fmt.Fprintf(w, "%s\t%s\n", seen, lost)
	}
	return w.Flush()
}

// ratioText is a ratio of times for a table.
func ratioText(e stats.Estimate) string {
	if e.N == 0 {
		return "–"
	}
	text := fmt.Sprintf("%.2f×", e.Median)
	if i := e.Interval; i != nil {
		text += fmt.Sprintf(" (%.2f–%.2f)", i.Low, i.High)
		if i.Contains(1) {
			text += " ="
		}
	}
	return text
}

// relative is the excess of a loss over another, for a table.
func relative(e stats.Estimate) string {
	if e.N == 0 {
		return "unknown"
	}
	text := fmt.Sprintf("%+.1f %%", 100*e.Median)
	if i := e.Interval; i != nil {
		text += fmt.Sprintf(" (%+.1f to %+.1f)", 100*i.Low, 100*i.High)
		if i.Contains(0) {
			text += " ="
		}
	}
	return text
}

// Legend explains the table's columns.
func (r *Result) Legend() string {
	text := fmt.Sprintf("The loss is measured on data that no worker trains on. Time to %s is scenario time, interpolated linearly between evaluations", LossText(r.Target))
	if !r.Asked {
		text += fmt.Sprintf(". This target is the %s of %s (--loss chooses another)", r.FinalName(), r.Policies[0].Name)
	}
	equal := func(e stats.Estimate, x float64) bool { return e.Interval != nil && e.Interval.Contains(x) }
	if slices.ContainsFunc(r.Policies, func(p Policy) bool {
		return equal(p.Sooner, 1) || equal(p.EqualTokens, 0) || equal(p.EqualRounds, 0)
	}) {
		text += `. "=" means that no difference is shown`
	}
	return text
}
