package shaping

import (
	"fmt"
	"math"
	"slices"

	"testbed/internal/errs"
)

// minRate is the lowest rate of a dilated link, like the lowest rate in a
// scenario.
const minRate = Rate(1000)

// Dilated returns the plan of a network in which everything takes x times as
// long by the machine's clock: rates divided by x, delays, jitter and queues in
// time multiplied. A program in it whose own clock is as slow sees the network
// as planned (Gupta et al., "To Infinity and Beyond: Time-Warped Network
// Emulation", NSDI 2006). x is at least 1; for 1 the plan itself is returned.
// If a link cannot be emulated, the error is a *errs.FieldError that names the
// nodes.
func (p *Plan) Dilated(x float64) (*Plan, error) {
	if x == 1 {
		return p, nil
	}
	slow := func(d Duration) Duration { return Duration(math.Round(float64(d) * x)) }
	thin := func(r Rate) Rate {
		if r == 0 {
			return 0
		}
		return max(minRate, Rate(math.Round(float64(r)/x)))
	}
	d := *p
	d.Nodes, d.Paths = slices.Clone(p.Nodes), slices.Clone(p.Paths)
	for i := range d.Nodes {
		n := &d.Nodes[i]
		n.RateUp, n.RateDown, n.PaceUp, n.PaceDown = thin(n.RateUp), thin(n.RateDown), thin(n.PaceUp), thin(n.PaceDown)
		n.Queue.Time, n.AccessOneWayDelay = min(slow(n.Queue.Time), maxTime), slow(n.AccessOneWayDelay)
	}
	for i, row := range d.Paths {
		d.Paths[i] = slices.Clone(row)
		for j := range row {
			way := &d.Paths[i][j]
			way.OneWayDelay, way.Jitter, way.Rate = slow(way.OneWayDelay), slow(way.Jitter), thin(way.Rate)
			name, problem := way.problem()
			if problem == "" && way.Jitter > maxJitter {
				name, problem = "jitter", fmt.Sprintf("%v is above the limit of %v", way.Jitter, maxJitter)
			}
			if problem != "" {
				return nil, errs.Fieldf(name, "from %s to %s, with a dilation of %g: %s", d.Nodes[i].Name, d.Nodes[j].Name, x, problem)
			}
		}
	}
	return &d, nil
}
