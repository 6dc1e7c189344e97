package report

import (
	"cmp"
	"slices"

	"testbed/internal/stats"
	"testbed/policy"
	"testbed/record"
	"testbed/report/agreement"
	"testbed/report/learning"
)

// Comparison is the result of compare.
type Comparison struct {
	Scenario string `json:"scenario"` // The name of the scenario.
	// The policies as they were given. The first is the reference for the others.
	Policies []string `json:"policies"`
	// Simulated on churn's network: a [result](#the-result) by policy. Worlds that
	// `--world` leaves out are absent.
	Sim Set `json:"sim,omitzero"`
	// Simulated on the planned links: a result by policy.
	SimLinks Set `json:"sim_links,omitempty"`
	// Measured with the first seed: a result by policy.
	Real Set `json:"real,omitzero"`
	// Measured with the other seeds of `--repeat`.
	Repeats []Set `json:"repeats,omitempty"`
	// The link backends, if there are several. `real` and `repeats` are on the first.
	Links []string `json:"links,omitempty"`
	// For each other backend, results like `real`, seed by seed.
	OtherLinks map[string][]Set `json:"other_links,omitempty"`
	// The [agreement](links.md#backends-side-by-side) of the backends.
	Agreement *agreement.Table `json:"agreement,omitempty"`
	// Simulated on churn's network with the other seeds. If they are missing, `sim`
	// stands for them.
	SimRepeats []Set `json:"sim_repeats,omitempty"`
	// Simulated on the planned links with the other seeds.
	SimLinksRepeats []Set `json:"sim_links_repeats,omitempty"`
	// Two policies: the first policy's wall-clock divided by the second's.
	Speedup *Speedup `json:"speedup,omitempty"`
	// More policies: the speed-up over the reference, by policy.
	Speedups map[string]Speedup `json:"speedups,omitempty"`
	// By policy, (simulated − measured) / measured wall-clock, the median of repeats.
	PredictionError map[string]float64 `json:"prediction_error,omitzero"`
	// `prediction_error` of the simulation on the planned links.
	LinksPredictionError map[string]float64 `json:"links_prediction_error,omitempty"`
	// By policy, simulated − measured for each part of the [split](#split), for the
	// seed with the median measured wall-clock.
	Residuals map[string]Residual `json:"residuals,omitempty"`
	// Three policies or more: the simulated and the measured
	// [order](results.md#the-order-of-policies), by simulated world.
	RankCorrelation map[string]stats.Correlation `json:"rank_correlation,omitempty"`
	// Estimates over the seeds of `--repeat`.
	Statistics Statistics `json:"statistics"`
	// The validation loss of `--loss`, the target of `learning`.
	Target float64 `json:"target_loss,omitempty"`
	// Trained runs: losses and times to a loss, by world.
	Learning map[string]*learning.Result `json:"learning,omitempty"`
	// All runs.
	Runs []Played `json:"runs"`
	// Each policy except the first, in each world on each backend.
	Comparisons []Against `json:"comparisons"`
	// The error of each simulated world under each policy.
	Predictions []Prediction `json:"predictions"`
	Dir         string       `json:"dir"` // The directory.
}

// Residual has the parts of a prediction's error.
type Residual struct {
	Sim      record.Split `json:"sim"`       // On churn's network.
	SimLinks record.Split `json:"sim_links"` // On the planned links.
}

// Set has a run under each policy, all with one seed, by policy.
type Set map[string]record.Summary

// Speedup is the reference's wall-clock divided by another policy's.
type Speedup struct {
	Sim      float64 `json:"sim,omitempty"`       // On churn's network.
	SimLinks float64 `json:"sim_links,omitempty"` // On the planned links.
	// Measured: a number, or a list if the comparison was repeated.
	Real any `json:"real,omitempty"`
}

// worlds are the worlds of a comparison, in the order in which they are shown.
var worlds = []string{record.Sim, record.SimLinks, record.Real}

// worldText describes the runs of a world.
func worldText(world string) string {
	switch world {
	case record.Sim:
		return "simulated"
	case record.SimLinks:
		return "on planned links"
	}
	return "measured"
}

// sets returns the runs of a world, one set for each seed; none if the world was
// not played.
func (c *Comparison) sets(world string) (all []Set) {
	first, others := c.Real, c.Repeats
	switch world {
	case record.Sim:
		first, others = c.Sim, c.SimRepeats
	case record.SimLinks:
		first, others = c.SimLinks, c.SimLinksRepeats
	}
	if first == nil {
		return nil
	}
	for i := range 1 + max(len(c.Repeats), len(c.SimRepeats), len(c.SimLinksRepeats)) {
		if i == 0 || i > len(others) {
			all = append(all, first)
		} else {
			all = append(all, others[i-1])
		}
	}
	return all
}

// matched groups the runs with the same seed.
func (c *Comparison) matched() (all []matched) {
	for _, world := range worlds {
		for i, set := range c.sets(world) {
			if i == len(all) {
				all = append(all, matched{runs: map[string]Set{}})
			}
			all[i].runs[world] = set
		}
	}
	return all
}

// median is the median wall-clock under a policy.
func median(sets []Set, name string) policy.Time {
	var walls []policy.Time
	for _, set := range sets {
		walls = append(walls, set[name].WallClock)
	}
	return policy.Median(walls)
}

// speedup is the speed-up of a policy over the reference; 0 if one of them is
// incomplete.
func (set Set) speedup(reference, name string) float64 {
	if set[name].WallClock == 0 {
		return 0
	}
	return float64(set[reference].WallClock) / float64(set[name].WallClock)
}

func ratios(sets []Set, reference, name string) []float64 {
	var all []float64
	for _, set := range sets {
		all = append(all, set.speedup(reference, name))
	}
	return all
}

// Conclude computes the results that follow from the runs.
func (c *Comparison) Conclude() {
	all := c.matched()
	for _, name := range c.Policies[1:] {
		reference := c.Policies[0]
		s := Speedup{Sim: c.Sim.speedup(reference, name), SimLinks: c.SimLinks.speedup(reference, name)}
		if len(c.Repeats) > 0 {
			s.Real = ratios(c.sets(record.Real), reference, name)
		} else if c.Real != nil {
			s.Real = c.Real.speedup(reference, name)
		}
		if len(c.Policies) == 2 {
			c.Speedup = &s
			break
		}
		if c.Speedups == nil {
			c.Speedups = map[string]Speedup{}
		}
		c.Speedups[name] = s
	}
	if c.Real != nil && c.Sim != nil {
		c.PredictionError = c.errors(record.Sim)
	}
	if c.Real != nil && c.SimLinks != nil {
		c.LinksPredictionError = c.errors(record.SimLinks)
		c.Residuals = map[string]Residual{}
		for _, name := range c.Policies {
			m := all[c.medianRun(name)].runs
			measured := m[record.Real][name].Split
			c.Residuals[name] = Residual{m[record.Sim][name].Split.Minus(measured), m[record.SimLinks][name].Split.Minus(measured)}
		}
	}
	c.RankCorrelation = rankCorrelations(c.Policies, all)
	c.Statistics = statistics(c.Policies, all)
	for _, world := range worlds {
		if learnt := learning.New(c.Policies, c.sets(world), c.Target); learnt != nil {
			if c.Learning == nil {
				c.Learning = map[string]*learning.Result{}
			}
			c.Learning[world] = learnt
		}
	}
	c.list()
	if len(c.Links) > 1 {
		c.Agreement = agreement.New(c.Policies, c.Links, c.measured())
	}
}

// measured are all real runs, on whatever links.
func (c *Comparison) measured() (all []record.Summary) {
	sets := append([]Set{c.Real}, c.Repeats...)
	for _, backend := range c.Links {
		sets = append(sets, c.OtherLinks[backend]...)
	}
	for _, set := range sets {
		for _, name := range c.Policies {
			all = append(all, set[name])
		}
	}
	return all
}

// medianRun is the position of the real run with the median wall-clock under a
// policy, or of the shorter of the two middle ones.
func (c *Comparison) medianRun(name string) int {
	sets := c.sets(record.Real)
	order := make([]int, len(sets))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(sets[a][name].WallClock, sets[b][name].WallClock) })
	return order[(len(order)-1)/2]
}

// errors are the medians of a prediction's errors, by policy.
func (c *Comparison) errors(world string) map[string]float64 {
	median, predicted := map[string]float64{}, c.sets(world)
	for _, name := range c.Policies {
		var errors []float64
		for i, set := range c.sets(record.Real) {
			if measured := float64(set[name].WallClock); measured > 0 {
				errors = append(errors, (float64(predicted[i][name].WallClock)-measured)/measured)
			}
		}
		if len(errors) > 0 {
			median[name] = stats.Median(errors)
		}
	}
	return median
}
