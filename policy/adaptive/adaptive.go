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
	// The number of spreads to wait beyond a member's typical duration. If durations
	// are log-normal, 0.13 % exceed 3 spreads.
	Z float64 `yaml:"z" json:"z" tune:"1 6"`
	// The number of durations to remember of each member.
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

	round   int     // round that stretch belongs to
	stretch float64 // the quorum came later than is typical, by this factor

	// The fields below do not depend on arrivals. So an arrival, by far the most
	// frequent event, does not make the policy look at all members.
	members []*record   // all members, by ID
	met     int         // Round.Changes when members was made
	view    view        // when begun, awaited and last were made
	begun   []*record   // members that have begun the round, by expected arrival
	fresh   []*record   // scratch
	awaited []*record   // by ID
	last    policy.Time // after it no awaited member is likely to come
	arrived int         // length of the prefix of awaited that has arrived
	checked int         // Round.Changes when arrived was counted from 0

	values []float64 // scratch
}

// view identifies the state of the round that the awaited members depend on.
type view struct {
	round, rounds int
	start         policy.Time
	changes       int
}

// record is the history of a member, and its part in the running round.
type record struct {
	id      policy.ID
	took    []float64 // logarithms of its last durations
	typical float64   // median of them
	misses  int       // in a row
	skipped int       // rounds since the policy last waited for it
	pause   int       // rounds to skip before the next wait

	// In the running round:
	began   policy.Time // its beginning, without its lag
	end     float64     // its expected arrival, after the beginning of the round
	late    policy.Time // after it the member is not likely to come
	kept    int         // Round.Changes when these were last found to hold
	listed  bool        // it is in Policy.begun
	awaited bool
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
	bad.If(!(p.Quorum > 0 && p.Quorum <= 1), "quorum", "is %v: it must lie in (0, 1]", p.Quorum)
	bad.If(!(p.Z >= 0 && p.Z <= 100), "z", "is %v: it must lie in [0, 100]", p.Z)
	bad.If(p.Window < 1 || p.Window > 1000, "window", "is %d: it must lie between 1 and 1000", p.Window)
	bad.If(!(p.Gain >= 0 && p.Gain <= 1000), "gain", "is %v: it must lie in [0, 1000]", p.Gain)
	bad.If(!(p.Prior >= 0 && p.Prior <= 10), "prior", "is %v: it must lie in [0, 10]", p.Prior)
	return bad.Err()
}

// meet looks up the records of the members if the members have changed. A new
// member gets a record.
func (p *Policy) meet(r *policy.Round) {
	if p.met == r.Changes {
		return
	}
	if p.past == nil {
		p.past = map[policy.ID]*record{}
	}
	p.met = r.Changes
	before := p.members
	p.members = make([]*record, 0, r.Members)
	for w := range r.All {
		for len(before) > 0 && before[0].id < w.ID {
			before = before[1:]
		}
		var m *record
		if len(before) > 0 && before[0].id == w.ID {
			m = before[0]
		} else if m = p.past[w.ID]; m == nil {
			m = &record{id: w.ID, pause: 2}
			p.past[w.ID] = m
		}
		p.members = append(p.members, m)
	}
}

// all yields the members with their records.
func (p *Policy) all(r *policy.Round) func(yield func(policy.Member, *record) bool) {
	p.meet(r)
	return func(yield func(policy.Member, *record) bool) {
		i := 0
		for w := range r.All {
			if !yield(w, p.members[i]) {
				return
			}
			i++
		}
	}
}

// typical is the logarithm of a member's typical duration.
func (p *Policy) typical(m *record) float64 {
	if len(m.took) > 0 {
		return m.typical
	}
	return p.centre
}

// begin computes the stretch when the quorum has arrived.
func (p *Policy) begin(r *policy.Round) {
	took := float64(max(1, r.Now-r.Start))
	p.round, p.stretch = r.Number, 1
	if p.rounds == 0 {
		p.centre, p.spread = math.Log(took), p.Prior
		return
	}
	p.meet(r)
	p.values = p.values[:0]
	for _, m := range p.members {
		p.values = append(p.values, p.typical(m))
	}
	slices.Sort(p.values)
	p.stretch = max(1, took/math.Exp(p.values[policy.Share(p.Quorum, r.Members)-1]+p.spread))
}

// allowance is the time for which the policy waits for a member of that typical
// duration, given as a logarithm.
func (p *Policy) allowance(typical float64) policy.Time {
	return policy.Time(math.Ceil(p.stretch*math.Exp(min(typical+float64(p.Z*p.spread), 30)))) + 1
}

// await decides which workers are worth waiting for, and for how long. It does
// not depend on arrivals of the round, so that their order within one instant
// does not matter.
func (p *Policy) await(r *policy.Round) {
	now := view{r.Number, p.rounds, r.Start, r.Changes}
	before := p.view
	if before == now {
		return
	}
	p.view = now
	before.changes = now.changes
	p.expect(r, before == now)
	best, slowest := p.best(r), p.centre
	for i, m := range p.begun {
		m.awaited = i < best && m.misses < patience || m.skipped >= m.pause
		if m.awaited && m.skipped == 0 && m.misses < patience {
			slowest = max(slowest, p.typical(m))
		}
	}
	// Slower members get their chance as if they had become that fast.
	longest := p.allowance(slowest)
	p.awaited, p.arrived, p.last = p.awaited[:0], 0, math.MinInt64
	for _, m := range p.members {
		if !m.awaited {
			continue
		}
		p.awaited = append(p.awaited, m)
		if p.typical(m) <= slowest {
			p.last = max(p.last, m.late)
		} else {
			p.last = max(p.last, m.began+longest)
		}
	}
}

// expect lists the members that have begun the round by their expected arrival.
// In the same round it keeps the order of the members that have not changed, and
// only adds and removes others.
func (p *Policy) expect(r *policy.Round, same bool) {
	p.fresh = p.fresh[:0]
	for w, m := range p.all(r) {
		if !w.Begun {
			continue // it would be a round late
		}
		began := w.Began - w.Lag // it catches up once, and then contributes again and again
		if !same || !m.listed || m.began != began {
			typical := p.typical(m)
			m.began, m.late = began, began+p.allowance(typical)
			// Conversions keep compilers from fusing multiplications with
			// additions, which would change decisions between processors.
			m.end = float64(began-r.Start) + float64(p.stretch*math.Exp(typical))
			p.fresh = append(p.fresh, m)
		} else {
			m.kept = r.Changes
		}
	}
	p.begun = slices.DeleteFunc(p.begun, func(m *record) bool {
		m.listed = same && m.kept == r.Changes
		m.awaited = m.awaited && m.listed
		return !m.listed
	})
	slices.SortFunc(p.fresh, sooner)
	p.begun = merged(p.begun, p.fresh)
	for _, m := range p.fresh {
		m.listed = true
	}
}

// sooner compares members by their expected arrivals.
func sooner(a, b *record) int {
	switch {
	case a.end < b.end:
		return -1
	case a.end > b.end:
		return 1
	}
	return cmp.Compare(a.id, b.id)
}

// merged merges two ordered lists of members into the first.
func merged(to, from []*record) []*record {
	i, j := len(to), len(from)
	to = append(to, from...)
	for k := len(to); j > 0; { // from the end, so that nothing is overwritten
		if k--; i > 0 && sooner(to[i-1], from[j-1]) > 0 {
			i--
			to[k] = to[i]
		} else {
			j--
			to[k] = from[j]
		}
	}
	return to
}

// best returns the number of members, the first ones that are expected, that
// contribute most per time.
func (p *Policy) best(r *policy.Round) int {
	all := len(p.begun)
	share := policy.Share(p.Quorum, r.Members)
	if share >= all {
		return all
	}
	overhead := 0.0
	if len(p.between) > 0 {
		p.values = p.values[:0]
		for _, t := range p.between {
			p.values = append(p.values, float64(t))
		}
		overhead = middle(p.values)
	}
	tail := math.Exp(p.spread)
	rate := func(k int) float64 { return float64(k) / (float64(p.begun[k-1].end*tail) + overhead) }
	// Members whose difference may be due to chance are treated alike.
	apart := math.Exp(p.Z * p.spread * math.Sqrt(2*math.Pi/2/float64(max(1, min(p.least, p.Window)))))
	best, most := all, rate(all)
	enough := (1 + p.Gain) * most
	for k := share; k < all; k++ {
		if p.begun[k].end > apart*p.begun[k-1].end {
			if x := rate(k); x > most && x > enough {
				best, most = k, x
			}
		}
	}
	return best
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
	at := max(r.First+r.MinSlack, p.last, r.Now)
	if r.Deadline != nil && r.Deadline.At == at {
		return nil
	}
	return &policy.Deadline{At: at, Numbers: map[string]float64{"awaited": float64(len(p.awaited)), "typical_us": math.Round(math.Exp(p.centre)),
		"spread": math.Round(p.spread*1000) / 1000, "stretch": math.Round(p.stretch*1000) / 1000, "z": p.Z}}
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
	if p.checked != r.Changes {
		p.arrived, p.checked = 0, r.Changes
	}
	for ; p.arrived < len(p.awaited); p.arrived++ {
		if w, ok := r.Member(p.awaited[p.arrived].id); ok && !w.Arrived {
			return needed, false
		}
	}
	return needed, p.round == r.Number
}

// Late evicts nobody.
func (*Policy) Late(*policy.Round, policy.Member) (limit int, evict bool) { return 0, false }

// Closed learns each member's duration, and which members were missing.
func (p *Policy) Closed(r *policy.Round) {
	if p.rounds > 0 {
		p.between = append(p.between, max(0, r.Start-p.closedAt))
		p.between = p.between[max(0, len(p.between)-p.Window):]
	}
	p.closedAt = r.Now
	p.rounds++
	for w, m := range p.all(r) {
		switch {
		case w.Arrived:
			if m.misses >= patience {
				m.took = m.took[:0] // the member has changed
			}
			m.took = append(m.took, math.Log(float64(max(1, w.At-w.Began))))
			m.took = m.took[max(0, len(m.took)-p.Window):]
			m.typical = middle(append(p.values[:0], m.took...))
			m.misses, m.skipped, m.pause = 0, 0, 2
		case m.awaited:
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
	p.learn()
}

// learn computes the centre and the spread of all durations.
func (p *Policy) learn() {
	p.values = p.values[:0]
	p.least = math.MaxInt
	for _, m := range p.members {
		if len(m.took) > 0 {
			p.values = append(p.values, m.typical)
			p.least = min(p.least, len(m.took))
		}
	}
	p.centre = middle(p.values)
	p.values = p.values[:0]
	for _, m := range p.members {
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
