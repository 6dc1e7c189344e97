package policy

import (
	"cmp"
	"slices"

	"testbed/internal/errs"
)

func init() {
	Register("sample", "wait for a fraction of the members, drawn anew each round", &Sample{Fraction: 0.5})
}

// Sample waits in each round for a fraction of the members, drawn anew, as
// federated averaging samples its clients (B. McMahan et al.,
// Communication-Efficient Learning of Deep Networks from Decentralized Data,
// 2017, https://arxiv.org/abs/1602.05629, where the fraction is C). There only
// the drawn clients compute. Here every member computes, and members that
// arrive in time without having been drawn take part, too. The policy evicts
// nobody.
type Sample struct {
	// The fraction of the members, rounded up, that a round waits for.
	Fraction float64 `yaml:"fraction" json:"fraction" tune:"0.2 1"`

	drawn []ID // scratch
}

// Validate reports a parameter out of range.
func (p *Sample) Validate() error {
	if !(p.Fraction > 0 && p.Fraction <= 1) {
		return errs.Fieldf("fraction", "is %v: it must lie in (0, 1]", p.Fraction)
	}
	return nil
}

// Deadline returns nil: this policy sets none.
func (*Sample) Deadline(*Round) *Deadline { return nil }

// Enough needs all drawn members. Each member has a lot for the round, and the
// lowest lots are drawn. So the draw depends as little as possible on the other
// members and on when they joined.
func (p *Sample) Enough(r *Round) (needed int, enough bool) {
	p.drawn = p.drawn[:0]
	for w := range r.All {
		p.drawn = append(p.drawn, w.ID)
	}
	lot := func(id ID) uint64 { return mix(mix(r.Seed^uint64(r.Number)) ^ uint64(id)) }
	slices.SortFunc(p.drawn, func(a, b ID) int {
		return cmp.Or(cmp.Compare(lot(a), lot(b)), cmp.Compare(a, b))
	})
	needed = Share(p.Fraction, len(p.drawn))
	for w := range r.All {
		if !w.Arrived && slices.Contains(p.drawn[:needed], w.ID) {
			return needed, false
		}
	}
	return needed, true
}

// mix is one step of SplitMix64 (G. Steele et al., Fast Splittable Pseudorandom
// Number Generators, 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Late evicts nobody.
func (*Sample) Late(*Round, Member) (limit int, evict bool) { return 0, false }

// Closed does nothing.
func (*Sample) Closed(*Round) {}
