// Package adaptive is a membership policy that waits for the workers worth
// waiting for, for as long as each is likely to arrive. Importing the package
// registers the policy.
package adaptive

import (
	"cmp"
	"math"
	"slices"

	"testbed/internal/errs"
	"testbed/policy"
)

func init() {
	policy.Register("adaptive", "wait for the workers worth waiting for, for as long as each is likely to arrive", &Policy{Quorum: 0.5, Z: 3, Window: 8, Gain: 0.05, Prior: 0.3})
}

// Policy waits for each member as long as a healthy member with its history may
// take. It does not wait for members whose contribution costs the others more
// than it is worth. It evicts nobody.
//
// Durations are compared by their logarithms, because step times are positive
// and skewed. A member's typical duration is the median of its last Window
// ones; the spread is 1.4826 times the median absolute deviation from it over
// all members, a consistent estimate of a normal's standard deviation (P.
// Rousseeuw and C. Croux, Alternatives to the Median Absolute Deviation, 1993).
// The policy waits for a member until its typical duration × e^(Z × spread). If
// the quorum came later than its own spread allows for, the waiting time is
// stretched by the same factor: a cause that makes everybody late is nobody's
// fault.
//
// The policy waits for the k members that are expected first. It chooses the k that
// yields the most contributions per unit of time, k ÷ (duration of a round of k):
// see C. Xu et al., Dynamic Backup Workers for Parallel Machine Learning (2020).
// The other members, and members that have missed several rounds in a row, get
// another chance after 2, 4, 8, … rounds.
type Policy struct {
	// The fraction of the members, rounded up, that must have arrived before a round may
	// close without the others.
	Quorum float64 `yaml:"quorum" json:"quorum" tune:"0.3 0.9"`
	// Spreads to wait beyond a member's typical duration. Of healthy members whose
	// logarithms are normal, 0.13 % take longer than 3.
	Z float64 `yaml:"z" json:"z" tune:"1 6"`
	// Durations kept of a member.
	Window int `yaml:"window" json:"window" tune:"2 32 log"`
	// The least increase in contributions per time, as a fraction, for which slow members
	// are left out.
	Gain float64 `yaml:"gain" json:"gain" tune:"0 0.5"`
	// The spread assumed in the first round, without history.
	Prior float64 `yaml:"prior" json:"prior" tune:"0.05 1 log"`

	past     map[policy.ID]*record
	closedAt policy.Time   // of the last round
	between  []policy.Time // times from the close of a round to the beginning of the next
	centre   float64
	spread   float64
	rounds   int // learned from
	least    int // number of durations known of the member with the fewest

	round   int         // round that the fields below belong to
	stretch float64     // the quorum came later than is typical, by this factor
	awaited []policy.ID // in order

	values []float64 // scratch
	order  []expected
}

// record is the history of a member.
type record struct {
	took    []float64 // logarithms of its last durations
	typical float64   // median of them
	misses  int       // in a row
	skipped int       // rounds since the policy last waited for it
	pause   int       // rounds to skip before the next wait
}

// expected is the expected arrival of a member, after the beginning of the
// round.
type expected struct {
	id  policy.ID
	end float64
}

// patience is the number of consecutive misses after which the policy still
// waits for a member. longestPause is the most rounds for which it then does
// not wait.
const (
	patience     = 3
	longestPause = 16
)

// Validate reports a parameter out of range.
func (p *Policy) Validate() error {
	var bad errs.Problems
	bad.If(!(p.Quorum > 0 && p.Quorum <= 1), "quorum", "is %v; it must lie in (0, 1]", p.Quorum)
	bad.If(!(p.Z >= 0 && p.Z <= 100), "z", "is %v; it must lie in [0, 100]", p.Z)
	bad.If(p.Window < 1 || p.Window > 1000, "window", "is %d; it must lie between 1 and 1000", p.Window)
	bad.If(!(p.Gain >= 0 && p.Gain <= 1000), "gain", "is %v; it must lie in [0, 1000]", p.Gain)
	bad.If(!(p.Prior >= 0 && p.Prior <= 10), "prior", "is %v; it must lie in [0, 10]", p.Prior)
	return bad.Err()
}

// typical is the logarithm of a member's typical duration.
func (p *Policy) typical(id policy.ID) float64 {
	if r := p.past[id]; r != nil && len(r.took) > 0 {
		return r.typical
	}
	return p.centre
}

// begin takes note of the quorum's arrival.
func (p *Policy) begin(r *policy.Round) {
	took := float64(max(1, r.Now-r.Start))
	p.round, p.stretch = r.Number, 1
	if p.rounds == 0 {
		p.centre, p.spread = math.Log(took), p.Prior
		return
	}
	p.values = p.values[:0]
	for w := range r.All {
		p.values = append(p.values, p.typical(w.ID))
	}
	slices.Sort(p.values)
	p.stretch = max(1, took/math.Exp(p.values[policy.Share(p.Quorum, r.Members)-1]+p.spread))
}

// await decides which workers are worth waiting for. It does not depend on
// arrivals of the round, so that their order within one instant does not
// matter. Conversions keep compilers from fusing multiplications with
// additions, which would change decisions between processors.
func (p *Policy) await(r *policy.Round) {
	p.order = p.order[:0]
	for w := range r.All {
		if !w.Begun {
			continue // it would be a round late
		}
		begun := w.Began - w.Lag - r.Start // it catches up once, and then contributes again and again
		p.order = append(p.order, expected{w.ID, float64(begun) + float64(p.stretch*math.Exp(p.typical(w.ID)))})
	}
	slices.SortFunc(p.order, func(a, b expected) int { return cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.id, b.id)) })
	overhead := 0.0
	if len(p.between) > 0 {
		p.values = p.values[:0]
		for _, t := range p.between {
			p.values = append(p.values, float64(t))
		}
		overhead = middle(p.values)
	}
	tail := math.Exp(p.spread)
	rate := func(k int) float64 { return float64(k) / (float64(p.order[k-1].end*tail) + overhead) }
	all := len(p.order)
	best := all
	// Members whose difference may be due to chance are treated alike.
	apart := math.Exp(p.Z * p.spread * math.Sqrt(2*math.Pi/2/float64(max(1, min(p.least, p.Window)))))
	for k := policy.Share(p.Quorum, r.Members); k < all; k++ {
		if p.order[k].end > apart*p.order[k-1].end && rate(k) > rate(best) && rate(k) > (1+p.Gain)*rate(all) {
			best = k
		}
	}
	p.awaited = p.awaited[:0]
	for i, e := range p.order {
		m := p.past[e.id]
		if m == nil && i < best || m != nil && (i < best && m.misses < patience || m.skipped >= m.pause) {
			p.awaited = append(p.awaited, e.id)
		}
	}
	slices.Sort(p.awaited)
}

// Deadline is the time after which none of the awaited members is likely to
// come. It is set at the quorum's arrival.
func (p *Policy) Deadline(r *policy.Round) *policy.Deadline {
	if r.Arrived < policy.Share(p.Quorum, r.Members) {
		return nil
	}
	if p.round != r.Number {
		p.begin(r)
	}
	p.await(r)
	at, slowest := r.First+r.MinSlack, p.slowest()
	for w := range r.All {
		if !p.waits(w.ID) {
			continue
		}
		typical := min(p.typical(w.ID), slowest)
		at = max(at, w.Began-w.Lag+policy.Time(math.Ceil(p.stretch*math.Exp(min(typical+float64(p.Z*p.spread), 30))))+1)
	}
	at = max(at, r.Now)
	if r.Deadline != nil && r.Deadline.At == at {
		return nil
	}
	return &policy.Deadline{At: at, Numbers: map[string]float64{"awaited": float64(len(p.awaited)), "typical_us": math.Round(math.Exp(p.centre)),
		"spread": math.Round(p.spread*1000) / 1000, "stretch": math.Round(p.stretch*1000) / 1000, "z": p.Z}}
}

// slowest is the longest typical duration worth waiting for. Slower members get
// their chance as if they had become that fast.
func (p *Policy) slowest() float64 {
	most := p.centre
	for _, id := range p.awaited {
		if m := p.past[id]; m != nil && m.skipped == 0 && m.misses < patience {
			most = max(most, p.typical(id))
		}
	}
	return most
}

// Enough needs all awaited members, or a quorum from the deadline on.
func (p *Policy) Enough(r *policy.Round) (needed int, enough bool) {
	needed = policy.Share(p.Quorum, r.Members)
	if r.Arrived < needed {
		return needed, false
	}
	if r.Overdue {
		return needed, true
	}
	for w := range r.All {
		if !w.Arrived && p.waits(w.ID) {
			return needed, false
		}
	}
	return needed, p.round == r.Number
}

// waits reports whether the round waits for a member.
func (p *Policy) waits(id policy.ID) bool {
	_, found := slices.BinarySearch(p.awaited, id)
	return found
}

// Late evicts nobody.
func (*Policy) Late(*policy.Round, policy.Member) (limit int, evict bool) { return 0, false }

// Closed learns each member's duration, and which members were missing.
func (p *Policy) Closed(r *policy.Round) {
	if p.past == nil {
		p.past = map[policy.ID]*record{}
	} else {
		p.between = append(p.between, max(0, r.Start-p.closedAt))
		p.between = p.between[max(0, len(p.between)-p.Window):]
	}
	p.closedAt = r.Now
	p.rounds++
	for w := range r.All {
		m := p.past[w.ID]
		if m == nil {
			m = &record{pause: 2}
			p.past[w.ID] = m
		}
		switch {
		case w.Arrived:
			if m.misses >= patience {
				m.took = m.took[:0] // the member has changed
			}
			m.took = append(m.took, math.Log(float64(max(1, w.At-w.Began))))
			m.took = m.took[max(0, len(m.took)-p.Window):]
			m.misses, m.skipped, m.pause = 0, 0, 2
		case p.waits(w.ID):
			if m.skipped > 0 {
				m.pause = min(2*m.pause, longestPause)
			}
			m.misses++
			m.skipped = 0
		default:
			m.misses++
			m.skipped++
		}
	}
	p.learn(r)
}

// learn computes the centre and the spread of all durations.
func (p *Policy) learn(r *policy.Round) {
	var typical []float64
	p.least = math.MaxInt
	for w := range r.All {
		if m := p.past[w.ID]; len(m.took) > 0 {
			m.typical = middle(append(p.values[:0], m.took...))
			typical = append(typical, m.typical)
			p.least = min(p.least, len(m.took))
		}
	}
	p.centre = middle(typical)
	p.values = p.values[:0]
	for w := range r.All {
		m := p.past[w.ID]
		around, n := p.centre, float64(len(m.took))
		correction := 1.0
		if n >= 3 { // enough of its own
			around, correction = m.typical, math.Sqrt(n/(n-1))
		} else if p.rounds > 3 {
			continue
		}
		for _, y := range m.took {
			p.values = append(p.values, correction*math.Abs(y-around))
		}
	}
	if n := float64(len(p.values)); n > 0 {
		p.spread = 1.4826 * middle(p.values) * (1 + 1/math.Sqrt(n))
	}
}

// middle returns the median, and sorts its argument.
func middle(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	if n%2 == 1 {
		return values[n/2]
	}
	return (values[n/2-1] + values[n/2]) / 2
}
