package report

import (
	"testbed/internal/stats"
	"testbed/policy"
	"testbed/record"
	"testbed/report/learning"
	"testbed/shaping/fidelity"
)

// The lists have the results of a comparison in one form, for any number of
// policies, seeds, worlds and link backends.

// Played is one run of a comparison.
type Played struct {
	World      string      `json:"world"`         // The name of the [world](results.md#worlds).
	Links      string      `json:"links"`         // The link backend.
	Policy     string      `json:"policy"`        // The policy.
	Seed       uint64      `json:"seed"`          // The seed.
	Complete   bool        `json:"complete"`      // All outer steps were taken.
	WallClock  policy.Time `json:"wall_clock_us"` // The time of the last outer step.
	OuterSteps int         `json:"outer_steps"`   // The number of outer steps.
	// The share of [work](#work) lost. It is `null` if it was not counted.
	Lost *float64 `json:"lost"`
	// The final validation loss. It is `null` if nothing was trained.
	Loss     *float64       `json:"loss"`
	Fidelity fidelity.Level `json:"fidelity"` // The [verdict](fidelity.md).
	Dir      string         `json:"dir"`      // The run directory.
}

// Against compares one policy with the reference, in one world on one link
// backend.
type Against struct {
	World     string `json:"world"`     // The name of the [world](results.md#worlds).
	Links     string `json:"links"`     // The link backend.
	Policy    string `json:"policy"`    // The policy.
	Reference string `json:"reference"` // The first policy.
	// The reference's wall-clock divided by the policy's, for each seed that was
	// complete under both.
	Speedups []SeedRatio `json:"speedups"`
	// The estimate from `speedups`.
	Speedup stats.Estimate `json:"speedup"`
	// The faster policy, `no difference shown` if the interval contains 1 or all ratios
	// are 1, or `the seeds change nothing` if all ratios are otherwise equal. It is
	// empty for fewer than three ratios.
	Finding string `json:"finding"`
}

// SeedRatio is a ratio of two runs with one seed.
type SeedRatio struct {
	Seed  uint64  `json:"seed"`  // The seed of both runs.
	Ratio float64 `json:"ratio"` // The ratio.
}

// Prediction is the error of a simulated world under a policy: (simulated −
// measured) / measured wall-clock, for seeds that were complete in both.
type Prediction struct {
	World  string `json:"world"`  // The simulated world.
	Policy string `json:"policy"` // The policy.
	// (Simulated − measured) / measured wall-clock.
	Error stats.Estimate `json:"error"`
}

// backend is the sets of one world on one link backend.
type backend struct {
	world string
	sets  []Set
}

// backends are all played runs: the worlds in order, and the other link
// backends at the end.
func (c *Comparison) backends() (all []backend) {
	for _, of := range []struct {
		world  string
		first  Set
		others []Set
	}{{record.Sim, c.Sim, c.SimRepeats}, {record.SimLinks, c.SimLinks, c.SimLinksRepeats}, {record.Real, c.Real, c.Repeats}} {
		if of.first != nil {
			all = append(all, backend{of.world, append([]Set{of.first}, of.others...)})
		}
	}
	for _, links := range c.Links {
		if sets := c.OtherLinks[links]; len(sets) > 0 {
			all = append(all, backend{record.Real, sets})
		}
	}
	return all
}

// list fills the lists.
func (c *Comparison) list() {
	c.Runs, c.Comparisons, c.Predictions = []Played{}, []Against{}, []Prediction{}
	reference := c.Policies[0]
	for _, b := range c.backends() {
		for _, set := range b.sets {
			for _, name := range c.Policies {
				c.Runs = append(c.Runs, newPlayed(b.world, set[name]))
			}
		}
		for _, name := range c.Policies[1:] {
			a := Against{World: b.world, Links: b.sets[0][name].Links, Policy: name, Reference: reference, Speedups: []SeedRatio{}}
			var ratios []float64
			for _, set := range b.sets {
				if set[reference].Complete && set[name].Complete {
					ratio := set.speedup(reference, name)
					ratios, a.Speedups = append(ratios, ratio), append(a.Speedups, SeedRatio{set[name].Seed, ratio})
				}
			}
			a.Speedup = stats.Estimated(ratios)
			a.Finding = a.Speedup.Finding(name+" is faster", reference+" is faster")
			c.Comparisons = append(c.Comparisons, a)
		}
	}
	for _, of := range []struct {
		world  string
		errors map[string]stats.Estimate
	}{{record.Sim, c.Statistics.PredictionError}, {record.SimLinks, c.Statistics.LinksPredictionError}} {
		for _, name := range c.Policies {
			if e, ok := of.errors[name]; ok {
				c.Predictions = append(c.Predictions, Prediction{of.world, name, e})
			}
		}
	}
}

// newPlayed is a run without its rounds.
func newPlayed(world string, sum record.Summary) Played {
	p := Played{
		World: world, Links: sum.Links, Policy: sum.Policy, Seed: sum.Seed, Complete: sum.Complete, WallClock: sum.WallClock,
		OuterSteps: sum.OuterSteps, Fidelity: sum.Fidelity.Verdict, Dir: sum.Dir,
	}
	if sum.Work != nil {
		p.Lost = &sum.Work.Lost
	}
	if curve := learning.NewCurve(sum); len(curve.Points) > 0 {
		p.Loss = new(curve.Final())
	}
	return p
}
