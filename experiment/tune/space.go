// Package tune searches the parameters of policies: it determines which points
// are tried, which of them no other point beats, and which few of those are
// worth playing on a real network. The package plays nothing itself.
package tune

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"testbed/policy"
	"testbed/policy/program"
	"testbed/scenarios"
)

// Space is the parameters of a policy that are searched, each with its range.
type Space struct {
	Policy string // with its fixed parameters
	Axes   []Axis
}

// Axis is a parameter with its possible values.
type Axis struct {
	Name      string
	Low, High float64
	Log       bool // by its logarithm
	Whole     bool // in whole numbers
	Bool      bool // true above the middle
}

// NewSpace returns the space of a policy in a scenario: the parameters that
// have a range and that the specification does not give. Ranges of times and of
// numbers of members are relative to the scenario.
func NewSpace(s *scenarios.Scenario, name string) (Space, error) {
	p, err := s.Policy.Named(name)
	if err != nil {
		return Space{}, err
	}
	if err := p.Validate(); err != nil { // asks a program for its parameters
		return Space{}, &scenarios.Error{File: s.Name, Field: "policy", Problem: err.Error()}
	}
	space := Space{Policy: name}
	for _, param := range policy.Parameters(p) {
		r := param.Range
		if r == nil || strings.Contains(name+":", ":"+param.Name+"=") { // or given
			continue
		}
		of := 1.0
		switch r.Of {
		case policy.OfRound:
			of = float64(typicalRound(s))
		case policy.OfMembers:
			of = float64(len(s.Workers))
		}
		a := Axis{Name: param.Name, Low: r.Low * of, High: r.High * of, Log: r.Log}
		switch param.Default.(type) {
		case bool:
			a.Bool = true
		case float64:
		default:
			a.Whole = true
			a.Low, a.High = math.Ceil(a.Low), math.Floor(a.High)
			if a.Log {
				a.Low = max(1, a.Low)
			}
		}
		if a.High > a.Low {
			space.Axes = append(space.Axes, a)
		}
	}
	return space, nil
}

// typicalRound is the median worker's time for the inner steps of a round.
func typicalRound(s *scenarios.Scenario) policy.Time {
	var means []policy.Time
	for _, w := range s.Workers {
		means = append(means, w.InnerStepMean)
	}
	return policy.Median(means) * policy.Time(s.InnerSteps)
}

// value is the axis's value at a place from 0 to 1, written as for --policy. It
// has three digits, because more do not matter.
func (a Axis) value(at float64) string {
	if a.Bool {
		return strconv.FormatBool(at > 0.5)
	}
	v := a.Low + at*(a.High-a.Low)
	if a.Log {
		v = a.Low * math.Pow(a.High/a.Low, at)
	}
	if a.Whole {
		v = math.Round(v)
	}
	if math.Abs(v) < 1e-6 {
		v = 0
	}
	if v != 0 {
		digits := math.Pow(10, 2-math.Floor(math.Log10(math.Abs(v))))
		v = min(max(math.Round(v*digits)/digits, a.Low), a.High)
	}
	if a.Whole {
		v = math.Round(v)
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// Spec names the policy with the parameters at a place in the unit cube.
func (s Space) Spec(at []float64) string {
	var b strings.Builder
	b.WriteString(s.Policy)
	for i, a := range s.Axes {
		fmt.Fprintf(&b, ":%s=%s", a.Name, a.value(at[i]))
	}
	return b.String()
}

// Spread returns n places that cover the unit cube evenly: a Latin hypercube
// (M. McKay et al., A Comparison of Three Methods for Selecting Values of Input
// Variables, 1979).
func (s Space) Spread(n int, rng *rand.Rand) [][]float64 {
	places := make([][]float64, n)
	for i := range places {
		places[i] = make([]float64, len(s.Axes))
	}
	for axis := range s.Axes {
		for i, stratum := range rng.Perm(n) {
			places[i][axis] = (float64(stratum) + rng.Float64()) / float64(n)
		}
	}
	return places
}

// nearby is the largest distance of a neighbour along each axis.
const nearby = 0.1

// Near returns n places near the given ones, at least one.
func (s Space) Near(places [][]float64, n int, rng *rand.Rand) [][]float64 {
	near := make([][]float64, n)
	for i := range near {
		near[i] = slices.Clone(places[rng.IntN(len(places))])
		for axis := range near[i] {
			at := near[i][axis] + nearby*rng.NormFloat64()
			near[i][axis] = min(max(at, 0), 1)
		}
	}
	return near
}

// PolicyOf returns the name of the policy in a specification, without
// parameters.
func PolicyOf(spec string) string {
	name, settings, _ := strings.Cut(spec, ":")
	if program.Is(spec) {
		path, _, _ := strings.Cut(settings, ":")
		return name + ":" + path
	}
	return name
}
