package policy_test

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
	"testbed/policy"
	"testbed/policy/adaptive"
)

// TestAdaptiveDecidesAsItsModel plays random runs under the policy adaptive, and gives
// what happened to a machine that has its model: every action has to be the same.
func TestAdaptiveDecidesAsItsModel(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		cfg := drawConfig(t)
		cfg.TargetOuterSteps = rapid.IntRange(1, 30).Draw(t, "target")
		parameters := adaptive.Policy{
			Quorum: rapid.SampledFrom([]float64{1e-12, 0.3, 0.5, 0.75, 1}).Draw(t, "quorum"),
			Z:      rapid.SampledFrom([]float64{0, 1, 3}).Draw(t, "z"),
			Window: rapid.IntRange(1, 8).Draw(t, "window"),
			Gain:   rapid.SampledFrom([]float64{0, 0.05, 0.5}).Draw(t, "gain"),
			Prior:  rapid.SampledFrom([]float64{0, 0.3}).Draw(t, "prior"),
		}
		cfg.Policy = &parameters
		w := newWorld(t, cfg)
		for range rapid.IntRange(1, 10).Draw(t, "workers") {
			w.join(true)
		}
		for range rapid.IntRange(0, 12).Draw(t, "stretches") {
			for range rapid.IntRange(0, 4).Draw(t, "events") {
				w.random(t)
			}
			w.labour(t, rapid.IntRange(0, 40).Draw(t, "deeds"))
		}
		w.conclude()
		cfg.Policy = &adaptiveModel{Policy: parameters}
		w.replayUnder(cfg)
	})
}

// labour has the living do so many things that are asked of them. Workers differ in how
// long they take for a round.
func (w *world) labour(t *rapid.T, deeds int) {
	due := map[policy.ID]policy.Time{}
	for range deeds {
		if w.finished != nil || len(w.members) == 0 {
			return
		}
		next := policy.ID(-1)
		for _, id := range sorted(w.task) {
			if !w.alive[id] {
				continue
			}
			if _, set := due[id]; !set {
				took := rapid.IntRange(10, 14).Draw(t, "took")
				if id%3 == 2 {
					took *= rapid.IntRange(1, 4).Draw(t, "times")
				}
				due[id] = w.now + policy.Time(took)
			}
			if next < 0 || due[id] < due[next] {
				next = id
			}
		}
		fetching := slices.DeleteFunc(sorted(w.fetching), func(id policy.ID) bool { return !w.alive[id] || !w.alive[w.fetching[id]] })
		switch r := w.reduce; {
		case len(fetching) > 0 && rapid.Bool().Draw(t, "fetched"):
			w.send(policy.StateFetched{ID: fetching[0], OuterSteps: w.steps})
		case r != nil:
			for _, id := range r.Participants {
				if w.alive[id] && w.reduce == r {
					w.send(policy.Reduced{ID: id, Round: r.Round, Epoch: r.Epoch})
				}
			}
			if w.reduce == r { // of one that died
				w.advance(w.wake, func() bool { return true })
			}
		case next >= 0:
			w.advance(due[next], func() bool { return true })
			if _, still := w.task[next]; still && w.alive[next] {
				w.arrive(next)
			}
			delete(due, next)
		default:
			w.advance(w.wake, func() bool { return true })
		}
	}
}

// adaptiveModel is the policy adaptive as it was first written: slow and obvious. It looks
// at all members at every question, and keeps nothing but its history.
type adaptiveModel struct {
	adaptive.Policy // its parameters

	past     map[policy.ID]*memberRecord
	closedAt policy.Time   // of the last round
	between  []policy.Time // from the close of a round to the beginning of the next
	centre   float64
	spread   float64
	rounds   int // learned from
	least    int // durations known of any member

	round   int         // for which the rest holds
	stretch float64     // the quorum came later than is typical, by this factor
	awaited []policy.ID // in order

	values []float64 // scratch
	order  []expectedMember
}

// memberRecord is what is known of a member.
type memberRecord struct {
	took    []float64 // logarithms of its last durations
	typical float64   // median of them
	misses  int       // in a row
	skipped int       // rounds since it was last waited for
	pause   int       // rounds to skip before that
}

// expectedMember is when a member may come, after the beginning of the round.
type expectedMember struct {
	id  policy.ID
	end float64
}

// The limits of adaptive.
const (
	patience     = 3
	longestPause = 16
)

// typical is the logarithm of what a member typically takes.
func (p *adaptiveModel) typical(id policy.ID) float64 {
	if r := p.past[id]; r != nil && len(r.took) > 0 {
		return r.typical
	}
	return p.centre
}

// begin takes note of the quorum's arrival.
func (p *adaptiveModel) begin(r *policy.Round) {
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

// await decides which workers are worth waiting for. It does not depend on who has arrived,
// so that the order of the arrivals of one instant does not matter. Conversions
// keep compilers from fusing multiplications with additions, which would make
// other decisions on other processors.
func (p *adaptiveModel) await(r *policy.Round) {
	p.order = p.order[:0]
	for w := range r.All {
		if !w.Begun {
			continue // it would be a round late
		}
		begun := w.Began - w.Lag - r.Start // it is to catch up once, and then contributes again and again
		p.order = append(p.order, expectedMember{w.ID, float64(begun) + float64(p.stretch*math.Exp(p.typical(w.ID)))})
	}
	slices.SortFunc(p.order, func(a, b expectedMember) int { return cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.id, b.id)) })
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
	// Members that do not differ by more than chance are not told apart.
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

// Deadline is when the last of those that are waited for is no longer likely to
// come. It is set when the quorum has come.
func (p *adaptiveModel) Deadline(r *policy.Round) *policy.Deadline {
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

// slowest is the most that a member typically takes for which it pays to wait:
// others get their chance as if they were no slower by now.
func (p *adaptiveModel) slowest() float64 {
	most := p.centre
	for _, id := range p.awaited {
		if m := p.past[id]; m != nil && m.skipped == 0 && m.misses < patience {
			most = max(most, p.typical(id))
		}
	}
	return most
}

// Enough is everybody who is waited for, or a quorum from the deadline on.
func (p *adaptiveModel) Enough(r *policy.Round) (needed int, enough bool) {
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

// waits says whether the round waits for a member.
func (p *adaptiveModel) waits(id policy.ID) bool {
	_, found := slices.BinarySearch(p.awaited, id)
	return found
}

// Late evicts nobody.
func (*adaptiveModel) Late(*policy.Round, policy.Member) (limit int, evict bool) { return 0, false }

// Closed learns what each member took, and who was not there.
func (p *adaptiveModel) Closed(r *policy.Round) {
	if p.past == nil {
		p.past = map[policy.ID]*memberRecord{}
	} else {
		p.between = append(p.between, max(0, r.Start-p.closedAt))
		p.between = p.between[max(0, len(p.between)-p.Window):]
	}
	p.closedAt = r.Now
	p.rounds++
	for w := range r.All {
		m := p.past[w.ID]
		if m == nil {
			m = &memberRecord{pause: 2}
			p.past[w.ID] = m
		}
		switch {
		case w.Arrived:
			if m.misses >= patience {
				m.took = m.took[:0] // it is not what it was
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

// learn takes the centre and the spread of all durations.
func (p *adaptiveModel) learn(r *policy.Round) {
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
