// Package work determines how long the inner steps of a worker take: their
// distribution, and everything that makes them longer for a while or for good
// (speed classes, noisy neighbours, heat, the time of day).
//
// The package is pure: a worker's times follow from the section `work` of a
// scenario, its seed, the worker's id, and the scenario times of the calls. The
// simulator and the real workers use the same Sampler.
package work

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"testbed/internal/errs"
	"testbed/policy"
)

// Spec is the section `work` of a scenario. Times are scenario time in
// microseconds.
type Spec struct {
	// How the durations of inner steps vary around the worker's `inner_step_mean`.
	Steps Steps `yaml:"steps" json:"steps,omitzero"`
	// Kinds of workers. A worker is in one class at most. Without a class, its factor
	// is 1.
	Classes []Class `yaml:"classes" json:"classes,omitempty"`
	// Slowness that comes and goes, as from neighbours on the same machine.
	Noise *Noise `yaml:"noise" json:"noise,omitempty"`
	// Throttling after a time of work.
	Thermal *Thermal `yaml:"thermal" json:"thermal,omitempty"`
	// Load that follows the time of day.
	Diurnal *Diurnal `yaml:"diurnal" json:"diurnal,omitempty"`
}

// Distribution is how the durations of inner steps vary around their mean.
type Distribution string

// The distributions. Each keeps the mean.
const (
	// Uniform is ± inner_step_jitter, or ± √3·sigma of the mean.
	Uniform Distribution = "uniform"
	// Normal has the deviation sigma, and is cut off at 0 and at twice the mean.
	Normal Distribution = "normal"
	// LogNormal is exp(sigma·Z − sigma²/2) times the mean, Z standard normal.
	LogNormal Distribution = "lognormal"
	// Pareto is bounded at paretoBound times its minimum.
	Pareto Distribution = "pareto"
	// Trace draws measured durations, with replacement.
	Trace Distribution = "trace"
)

// Distributions lists the distributions.
var Distributions = []Distribution{Uniform, Normal, LogNormal, Pareto, Trace}

// Steps is the distribution of inner steps' durations. The mean is the worker's
// inner_step_mean.
type Steps struct {
	// The distribution of a step's duration. All have the same mean.
	Distribution Distribution `yaml:"distribution" json:"distribution,omitempty"` // empty: Uniform
	// The standard deviation divided by the mean or, for `lognormal`, that of the
	// logarithm. `normal`, `lognormal` and `pareto` (or `shape`) need it. Most
	// distributions have a lower maximum than this range.
	Sigma *float64 `yaml:"sigma" json:"sigma,omitempty"`
	// For `pareto`, in place of `sigma`: the exponent.
	Shape *float64 `yaml:"shape" json:"shape,omitempty"`
	// For `trace`, which needs it: a file in the scenario's folder or below. It contains
	// durations in any unit, one a line (in CSV, the last column). A header and lines
	// with # are skipped.
	File string `yaml:"file" json:"file,omitempty"`
	// Ratios is the content of File, divided by its mean.
	Ratios []float64 `yaml:"-" json:"ratios,omitempty"`
}

// Class is a kind of workers.
type Class struct {
	// The name of the class, such as a100. Names are unique.
	Name string `yaml:"name" json:"name" need:"yes"`
	// The workers of the class.
	IDs []policy.ID `yaml:"ids" json:"ids" need:"yes"`
	// Inner steps take this many times as long.
	Factor float64 `yaml:"factor" json:"factor" need:"yes"`
	// A fraction of a day that is added to the phase of `diurnal`, so that a class can
	// be a region.
	Phase float64 `yaml:"phase" json:"phase,omitempty"`
}

// Noise is slowness that comes and goes, as neighbours on the same machine do:
// a Markov chain of two states with exponential times in each, separately for
// each worker.
type Noise struct {
	// While slow, inner steps take this many times as long.
	SlowFactor float64 `yaml:"slow_factor" json:"slow_factor" need:"yes"`
	// The mean of the exponential time for which a worker has its normal speed.
	MeanOK policy.Time `yaml:"mean_ok" json:"mean_ok" need:"yes"`
	// The mean of the exponential time for which a worker is slow.
	MeanSlow policy.Time `yaml:"mean_slow" json:"mean_slow" need:"yes"`
}

// Thermal is throttling: a worker's temperature rises for the time Heat, then
// its steps take SlowFactor times as long for the time Cool. The lumped thermal
// resistance and capacitance of Skadron et al., "Temperature-aware
// microarchitecture" (ISCA 2003), behaves in this way under constant load
// between two thresholds. Time at a barrier counts as load. Workers begin
// anywhere in the cycle.
type Thermal struct {
	// While throttled, inner steps take this many times as long.
	SlowFactor float64 `yaml:"slow_factor" json:"slow_factor" need:"yes"`
	// The time for which a worker has its normal speed, even while it waits.
	Heat policy.Time `yaml:"heat" json:"heat" need:"yes"`
	// The time for which the worker is then throttled.
	Cool policy.Time `yaml:"cool" json:"cool" need:"yes"`
}

// Diurnal is load that follows the time of day: steps take 1 +
// Amplitude·sin(2π(t/Period + Phase)) times as long.
type Diurnal struct {
	// Inner steps take 1 + `amplitude` · sin 2π(t ÷ `period` + `phase`) times as long,
	// updated a thousand times a day.
	Amplitude float64 `yaml:"amplitude" json:"amplitude" need:"yes"`
	// The length of a day.
	Period policy.Time `yaml:"period" json:"period" need:"yes"`
	// The time of day at which the run begins, as a fraction of a day. The class's phase
	// is added.
	Phase float64 `yaml:"phase" json:"phase,omitempty"`
}

// Limits keep every duration within a scenario's range.
const (
	maxTime   = policy.Time(1e12) // µs
	maxFactor = 1e6
)

// paretoBound is the ratio of a Pareto's largest value to its least. An
// unbounded tail has no mean for exponents up to 1. Above 1 it has draws longer
// than any run.
const paretoBound = 1000

// Validate checks everything except the file of a trace. The error joins
// *errs.FieldErrors with the path of the field in the section.
func (s *Spec) Validate() error {
	problems := []error{s.Steps.validate()}
	in := map[policy.ID]string{} // which class
	for i, c := range s.Classes {
		problems = append(problems, s.validateClass(i, c, in))
	}
	for _, f := range []struct {
		given bool
		field string
		value func() float64
		low   float64
		high  float64
	}{
		{s.Noise != nil, "noise.slow_factor", func() float64 { return s.Noise.SlowFactor }, 1, maxFactor},
		{s.Noise != nil, "noise.mean_ok", func() float64 { return float64(s.Noise.MeanOK) }, 1, float64(maxTime)},
		{s.Noise != nil, "noise.mean_slow", func() float64 { return float64(s.Noise.MeanSlow) }, 1, float64(maxTime)},
		{s.Thermal != nil, "thermal.slow_factor", func() float64 { return s.Thermal.SlowFactor }, 1, maxFactor},
		{s.Thermal != nil, "thermal.heat", func() float64 { return float64(s.Thermal.Heat) }, 1, float64(maxTime)},
		{s.Thermal != nil, "thermal.cool", func() float64 { return float64(s.Thermal.Cool) }, 1, float64(maxTime)},
		{s.Diurnal != nil, "diurnal.amplitude", func() float64 { return s.Diurnal.Amplitude }, 0, 0.99},
		{s.Diurnal != nil, "diurnal.period", func() float64 { return float64(s.Diurnal.Period) }, 1, float64(maxTime)},
		{s.Diurnal != nil, "diurnal.phase", func() float64 { return s.Diurnal.Phase }, 0, 1},
	} {
		if f.given {
			problems = append(problems, within(f.field, f.value(), f.low, f.high))
		}
	}
	return errors.Join(problems...)
}

func within(field string, value, low, high float64) error {
	if value >= low && value <= high {
		return nil
	}
	return errs.Fieldf(field, "is %v: it must lie between %v and %v", number(value), number(low), number(high))
}

// number avoids an exponent if a whole number can be written.
func number(x float64) any {
	if x == math.Trunc(x) && math.Abs(x) < 1e15 {
		return int64(x)
	}
	return x
}

func (s *Spec) validateClass(i int, c Class, in map[policy.ID]string) error {
	at := func(field string) string { return fmt.Sprintf("classes[%d].%s", i, field) }
	for j, other := range s.Classes[:i] {
		if other.Name == c.Name {
			return errs.Fieldf(at("name"), "%q is already the name of classes[%d]; give each class a name of its own", c.Name, j)
		}
	}
	switch {
	case c.Name == "":
		return errs.Fieldf(at("name"), "is empty: give the class a name such as a100")
	case !(c.Factor > 0 && c.Factor <= maxFactor):
		return errs.Fieldf(at("factor"), "is %v: it must lie in (0, %v]", number(c.Factor), number(maxFactor))
	case c.Phase != 0 && s.Diurnal == nil:
		return errs.Fieldf(at("phase"), "is %v, but there is no work.diurnal to shift: add work.diurnal, or remove the phase", c.Phase)
	}
	for k, id := range c.IDs {
		if other, twice := in[id]; twice {
			return errs.Fieldf(at(fmt.Sprintf("ids[%d]", k)), "worker %d is already in class %s; name each worker once", id, other)
		}
		in[id] = c.Name
	}
	return within(at("phase"), c.Phase, 0, 1)
}

// widest is the largest Sigma of a Uniform: beyond it durations would be
// negative.
var widest = 1 / math.Sqrt(3)

func (s Steps) validate() error {
	d := s.kind()
	needs := func(field, example string) error {
		return errs.Fieldf("steps."+field, "is missing: the distribution %s needs it, for example %s", d, example)
	}
	switch {
	case !slices.Contains(Distributions, d):
		names := make([]string, len(Distributions))
		for i, n := range Distributions {
			names[i] = string(n)
		}
		return errs.Fieldf("steps.distribution", "%q is not a distribution; choose one of %s", d, strings.Join(names, ", "))
	case s.Sigma != nil && d == Trace:
		return errs.Fieldf("steps.sigma", "does not apply to the distribution %s, because the trace contains the variation: remove sigma", d)
	case s.Shape != nil && d != Pareto:
		return errs.Fieldf("steps.shape", "applies only to the distribution %s, not to %s: remove shape", Pareto, d)
	case s.File != "" && d != Trace:
		return errs.Fieldf("steps.file", "applies only to the distribution %s, not to %s: remove file", Trace, d)
	case s.File == "" && d == Trace:
		return needs("file", "traces/steps.csv")
	case s.Sigma == nil && (d == Normal || d == LogNormal):
		return needs("sigma", "0.3")
	case d == Pareto && s.Sigma == nil && s.Shape == nil:
		return needs("sigma", "0.3, or shape in its place")
	case s.Sigma != nil && s.Shape != nil:
		return errs.Fieldf("steps.shape", "sigma already gives the variation; remove sigma or shape")
	case s.Shape != nil && !(*s.Shape > 1 && *s.Shape <= 1000):
		return errs.Fieldf("steps.shape", "is %v: it must lie in (1, 1000]", *s.Shape)
	case s.Sigma == nil:
		return nil
	}
	most := map[Distribution]float64{Uniform: widest, Normal: 1, LogNormal: 3, Pareto: 10}[d]
	if !(*s.Sigma >= 0 && *s.Sigma <= most) {
		return errs.Fieldf("steps.sigma", "is %v: with the distribution %s, it must lie between 0 and %.3g", *s.Sigma, d, most)
	}
	return nil
}

// kind is the distribution, or the default if none is given.
func (s Steps) kind() Distribution {
	if s.Distribution == "" {
		return Uniform
	}
	return s.Distribution
}

// TakesJitter reports whether the jitter of workers has an effect together with
// the section.
func (s Steps) TakesJitter() bool { return s.kind() == Uniform && s.Sigma == nil }

// String describes the variation of inner steps in a few words.
func (s Steps) String() string {
	switch {
	case s.TakesJitter():
		return "uniform, by inner_step_jitter"
	case s.File != "" && len(s.Ratios) > 0:
		return fmt.Sprintf("%s %s, %s", s.kind(), s.File, errs.Count(len(s.Ratios), "duration"))
	case s.File != "":
		return fmt.Sprintf("%s %s", s.kind(), s.File)
	case s.Shape != nil:
		return fmt.Sprintf("%s, shape %v", s.kind(), *s.Shape)
	}
	return fmt.Sprintf("%s, sigma %v", s.kind(), *s.Sigma)
}

// usual compares a duration with its usual length.
func usual(factor float64) string {
	if factor == 1 {
		return "as long as usual"
	}
	return fmt.Sprintf("%v times as long as usual", factor)
}

// Describe describes the section's effect on inner steps, a line for each part.
func (s *Spec) Describe() []string {
	lines := []string{"steps: " + s.Steps.String()}
	for _, c := range s.Classes {
		line := fmt.Sprintf("class %s: %s with steps that take %s", c.Name, errs.Count(len(c.IDs), "worker"), usual(c.Factor))
		if c.Phase != 0 {
			line += fmt.Sprintf(", and a diurnal load that runs %v of a day ahead", c.Phase)
		}
		lines = append(lines, line)
	}
	if n := s.Noise; n != nil {
		lines = append(lines, fmt.Sprintf("noise: phases at normal speed (%d µs on average) alternate with phases in which steps take %s (%d µs on average)", n.MeanOK, usual(n.SlowFactor), n.MeanSlow))
	}
	if h := s.Thermal; h != nil {
		lines = append(lines, fmt.Sprintf("thermal: %d µs at normal speed alternate with %d µs in which steps take %s", h.Heat, h.Cool, usual(h.SlowFactor)))
	}
	if d := s.Diurnal; d != nil {
		lines = append(lines, fmt.Sprintf("diurnal: over a day of %d µs, steps take between %.4g and %.4g times as long as usual", d.Period, 1-d.Amplitude, 1+d.Amplitude))
	}
	return lines
}

// Of returns the class of a worker, or nil if it is in none.
func (s *Spec) Of(id policy.ID) *Class {
	if s == nil {
		return nil
	}
	for i := range s.Classes {
		if slices.Contains(s.Classes[i].IDs, id) {
			return &s.Classes[i]
		}
	}
	return nil
}
