package task

import (
	"cmp"
	"fmt"

	"testbed/internal/errs"
	"testbed/train"
)

// Outer is the outer optimiser, and the part of the parameters that a round
// exchanges.
type Outer struct {
	// The learning rate of outer steps.
	Rate *float64 `yaml:"rate" json:"rate,omitempty"`
	// The Nesterov momentum of outer steps, below 1. DiLoCo's rate 0.7 and momentum 0.9
	// pay only after a hundred rounds. For short runs, use 0.7 and 0.5.
	Momentum *float64 `yaml:"momentum" json:"momentum,omitempty"`
	// The number of parts into which the blocks of layers are dealt. Each round
	// exchanges one part, in turn.
	Fragments int `yaml:"fragments" json:"fragments,omitempty"`
	// When a fragment's outer step arrives, a worker keeps this share of the fragment's
	// local parameters.
	Mix float64 `yaml:"mix" json:"mix,omitempty"`
	// The number of inner steps of the next round that workers take during a reduction,
	// at most `inner_steps`.
	Overlap int `yaml:"overlap" json:"overlap,omitempty"`
	// With `eager`, a worker that receives an outer step a round late also adds the
	// expected effect of its own next contribution.
	Correction string `yaml:"correction" json:"correction,omitempty"`
}

// Eager makes a worker that goes on before the outer step arrives add its own
// share of the mean already.
const Eager = "eager"

// OuterOptimiser returns the outer optimiser. It accepts a nil section.
func (s *Spec) OuterOptimiser() train.Outer {
	o := train.DiLoCo
	if s == nil {
		return o
	}
	if s.Outer.Rate != nil {
		o.Rate = float32(*s.Outer.Rate)
	}
	if s.Outer.Momentum != nil {
		o.Momentum = float32(*s.Outer.Momentum)
	}
	return o
}

// Exchange returns the exchange of rounds with so many inner steps and
// parameters. It accepts a nil section. The section must be valid.
func (s *Spec) Exchange(innerSteps, parameters int) *train.Exchange {
	fragments, err := s.fragments(s.Shard(parameters))
	if err != nil {
		panic(fmt.Sprintf("learning: train.outer.fragments %v", err)) // ValidateRounds has checked it
	}
	e := &train.Exchange{Fragments: fragments}
	if s != nil {
		e.Mix, e.Overlap = float32(s.Outer.Mix), s.Outer.Overlap
		e.Late, e.Eager = e.Overlap > 0 && e.Overlap == innerSteps, s.Outer.Correction == Eager
	}
	return e
}

func (s *Spec) fragments(parameters int) (train.Fragments, error) {
	layers := []train.Layer{{Len: parameters}}
	if s == nil {
		return train.Deal(layers, 1)
	}
	if s.Task == CharLM {
		layers = s.config().Parts()
	}
	return train.Deal(layers, cmp.Or(s.Outer.Fragments, 1))
}

func (o *Outer) validate(bad func(field, format string, args ...any) error) error {
	if o.Rate != nil && *o.Rate == 0 {
		return bad("outer.rate", "is 0, so training would change nothing: give a rate above 0, for example 0.7")
	}
	for _, f := range []struct {
		field  string
		value  *float64
		within func(v float64) bool
		bounds string
	}{
		{"outer.rate", o.Rate, func(v float64) bool { return v > 0 && v <= 10 }, "(0, 10]"},
		{"outer.momentum", o.Momentum, func(v float64) bool { return v >= 0 && v < 1 }, "[0, 1)"},
		{"outer.mix", &o.Mix, func(v float64) bool { return v >= 0 && v <= 1 }, "[0, 1]"},
	} {
		if f.value != nil && !f.within(*f.value) {
			return bad(f.field, "is %v: it must lie in %s", *f.value, f.bounds)
		}
	}
	if o.Correction != "" && o.Correction != Eager {
		return bad("outer.correction", "is %q: it must be %q, or absent", o.Correction, Eager)
	}
	return nil
}

// ValidateRounds checks fields that depend on more than the section: the inner
// steps of a round, the parameters of the stand-in, and the weight of late
// contributions. Errors are as in Validate.
func (s *Spec) ValidateRounds(innerSteps, parameters int, stalenessWeight float64) error {
	bad := errs.Fieldf
	o := &s.Outer
	if s.Foreign() && o.Fragments > 1 && parameters <= 0 {
		return bad("outer.fragments", "is %d, but only the program knows how many parameters there are to divide: give real.parameters", o.Fragments)
	}
	if _, err := s.fragments(s.Shard(parameters)); err != nil {
		return bad("outer.fragments", "%s", err)
	}
	if o.Overlap < 0 || o.Overlap > innerSteps {
		return bad("outer.overlap", "is %d: it must lie between 0 and inner_steps, which is %d", o.Overlap, innerSteps)
	}
	if s.Foreign() && o.Overlap > 0 && o.Overlap < innerSteps {
		return bad("outer.overlap", "is %d, but the parameters of a program can be changed only between rounds: it must be 0 or inner_steps, which is %d", o.Overlap, innerSteps)
	}
	if o.Correction == Eager && (o.Overlap != innerSteps || o.Fragments > 1 || o.Mix != 0) {
		return bad("outer.correction", "applies only to outer steps that are delayed by one round: set train.outer.overlap to inner_steps, which is %d, and remove train.outer.fragments and train.outer.mix, or remove train.outer.correction", innerSteps)
	}
	plain := s.Exchange(innerSteps, parameters).Plain()
	if s.Regions != nil && !plain {
		return bad("regions", "needs rounds that exchange all parameters: remove train.outer.fragments, train.outer.mix and train.outer.overlap, or remove train.regions")
	}
	if s.Regions != nil && stalenessWeight > 0 {
		return bad("regions", "cannot be combined with policy.staleness_weight, which uses late contributions: remove one of them")
	}
	if stalenessWeight > 0 && !plain {
		return bad("outer", "has fragments, mix or overlap, which cannot be combined with policy.staleness_weight: remove fragments, mix and overlap, or remove policy.staleness_weight")
	}
	return nil
}
