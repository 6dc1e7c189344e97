package sweep

import (
	"slices"

	"testbed/internal/stats"
	"testbed/report/learning"
	"testbed/scenarios"
)

// Summary is the result of a sweep.
type Summary struct {
	Scenario string `json:"scenario"` // The name of the scenario.
	// The [world](results.md#worlds), `sim` for both simulations.
	World string `json:"world"`
	// The name of the world. Older summaries lack it.
	WorldName string `json:"world_name,omitempty"`
	// The network of a simulation, unless it is churn's.
	Network  string   `json:"network,omitempty"`
	Fields   []Axis   `json:"fields"`   // The fields that were varied.
	Seeds    []uint64 `json:"seeds"`    // The seeds.
	Repeats  int      `json:"repeats"`  // How often each point was played on the real network.
	Policies []string `json:"policies"` // The policies, the reference first.
	Points   int      `json:"points"`   // The number of points.
	Done     int      `json:"done"`     // The number of points that were played.
	// One for each combination of values. For two fields, cell (i, j) has index i·n + j,
	// where n is the number of the second field's values.
	Cells []Cell `json:"cells"`
	// Trained runs: the validation loss to which times are measured.
	Target *float64 `json:"target_loss,omitempty"`
	Dir    string   `json:"dir"` // The directory.
}

// Cell is an assignment with the results of its points, over seeds and repeats.
type Cell struct {
	Set Assignment `json:"set"` // The values of the fields.
	// By policy, the wall-clocks of complete runs in microseconds of scenario time.
	WallClock map[string]stats.Estimate `json:"wall_clock_us"`
	// By policy, the share of work lost.
	Lost map[string]stats.Estimate `json:"lost,omitempty"`
	// By policy, the wall-clock divided by the share of work that was not lost: the
	// time for as many contributions as the workers could have made.
	Effective map[string]stats.Estimate `json:"effective_us,omitempty"`
	// By policy, the number of runs that the horizon cut short.
	Incomplete map[string]int `json:"incomplete"`
	// Two policies: the first policy's wall-clock divided by the second's, of runs with
	// the same seed and repeat.
	Speedup *stats.Estimate `json:"speedup,omitempty"`
	// Two policies: as in `comparisons`.
	Finding string `json:"finding,omitempty"`
	// More policies: the speed-up of each except the first.
	Speedups map[string]stats.Estimate `json:"speedups,omitempty"`
	// More policies: the finding of each except the first.
	Findings map[string]string `json:"findings,omitempty"`
	// Each policy except the first, for any number of policies.
	Comparisons []Compared `json:"comparisons"`
	// By policy, the first cell's times divided by this cell's, of runs with the same
	// seed and repeat. The first cell has none.
	Against map[string]Paired `json:"against_first_cell,omitempty"`
	// Trained runs: losses by policy. The reference is the first policy in this cell.
	// For the first policy, it is the first cell.
	Learning map[string]learning.Outcome `json:"learning,omitempty"`
}

// Compared compares a policy with the first one in a cell.
type Compared struct {
	Policy    string         `json:"policy"`    // The policy.
	Reference string         `json:"reference"` // The first policy.
	Speedup   stats.Estimate `json:"speedup"`   // The ratio of their wall-clocks.
	Finding   string         `json:"finding"`   // As in `comparisons[].finding` of a [comparison](#comparisons).
	// The ratio of the effective times, if work was counted.
	Effective *stats.Estimate `json:"effective_speedup,omitempty"`
}

// Paired has ratios of the times of runs with the same seed and repeat: of
// wall-clocks, and of Effective times if work was counted.
type Paired struct {
	WallClock stats.Estimate `json:"wall_clock"` // The ratio of wall-clocks.
	// The ratio of effective times, if work was counted.
	Effective *stats.Estimate `json:"effective,omitempty"`
}

// times are the times of a complete run; 0 is unknown.
type times struct{ wall, effective float64 }

// pairs are ratios of the times of runs with the same seed and repeat.
type pairs struct{ walls, effective []float64 }

func (p *pairs) add(reference, t times) {
	if reference.wall > 0 && t.wall > 0 {
		p.walls = append(p.walls, reference.wall/t.wall)
	}
	if reference.effective > 0 && t.effective > 0 {
		p.effective = append(p.effective, reference.effective/t.effective)
	}
}

func (p *pairs) estimated() Paired {
	e := Paired{WallClock: stats.Estimated(p.walls)}
	if len(p.effective) > 0 {
		e.Effective = new(stats.Estimated(p.effective))
	}
	return e
}

// SpeedupOf is the speed-up of a policy over the first one, nil if unknown.
func (c Cell) SpeedupOf(policyName string) *stats.Estimate {
	if c.Speedup != nil {
		return c.Speedup
	}
	if e, ok := c.Speedups[policyName]; ok {
		return &e
	}
	return nil
}

// Varied are the fields that differ between cells. Fixed are the settings that
// all cells share.
func (s Summary) Varied() (fields []Axis) {
	fixed := s.Fixed()
	for _, f := range s.Fields {
		if fixed.Value(f.Field) == "" {
			fields = append(fields, f)
		}
	}
	return fields
}

func (s Summary) Fixed() (all Assignment) {
	for _, f := range s.Fields {
		if len(f.Values) == 1 && !slices.ContainsFunc(s.Cells, func(c Cell) bool { return c.Set.Value(f.Field) == "" }) {
			all = append(all, scenarios.Setting{Field: f.Field, Value: f.Values[0]})
		}
	}
	return all
}

// Compared are the policies that have a speed-up over the first.
func (s Summary) Compared() []string { return s.Policies[min(1, len(s.Policies)):] }

// Summarise computes the summary of the finished rows.
func (p *Plan) Summarise(keys []string, done map[string]Row) Summary {
	s := Summary{Scenario: p.Scenario.Name, World: p.World, WorldName: p.worldName(), Network: p.Network, Seeds: p.Seeds, Repeats: p.Repeats, Policies: p.Policies, Points: len(keys)}
	for _, f := range p.Fields() {
		axis := Axis{Field: f}
		seen := map[string]bool{}
		for _, c := range p.Cells {
			if v := c.Value(f); v != "" && !seen[v] {
				seen[v] = true
				axis.Values = append(axis.Values, v)
			}
		}
		s.Fields = append(s.Fields, axis)
	}
	perCell := len(keys) / len(p.Cells)
	target := p.target(keys, done)
	if target > 0 {
		s.Target = &target
	}
	for i, set := range p.Cells {
		c := Cell{Set: set, WallClock: map[string]stats.Estimate{}, Incomplete: map[string]int{}, Learning: p.training(i, keys, done, target)}
		walls := map[string][]float64{}
		lost, effective := map[string][]float64{}, map[string][]float64{}
		ratios, against := map[string]*pairs{}, map[string]*pairs{}
		for _, name := range p.Policies {
			ratios[name], against[name] = &pairs{}, &pairs{}
		}
		var reference times // of the first policy with the same seed and repeat
		for k := i * perCell; k < (i+1)*perCell; k++ {
			first := k%len(p.Policies) == 0
			if first {
				reference = times{}
			}
			r, ok := done[keys[k]]
			switch {
			case !ok:
				continue
			case !r.Complete:
				c.Incomplete[r.Policy]++
			default:
				t := r.times()
				walls[r.Policy] = append(walls[r.Policy], t.wall)
				if t.effective > 0 {
					lost[r.Policy] = append(lost[r.Policy], *r.Lost)
					effective[r.Policy] = append(effective[r.Policy], t.effective)
				}
				if first {
					reference = t
				} else {
					ratios[r.Policy].add(reference, t)
				}
				against[r.Policy].add(done[keys[k-i*perCell]].times(), t)
			}
			s.Done++
		}
		for _, name := range p.Policies {
			c.WallClock[name] = stats.Estimated(walls[name])
			c.work(name, lost[name], effective[name])
		}
		c.compare(p.Policies, ratios)
		if i > 0 {
			c.Against = map[string]Paired{}
			for _, name := range p.Policies {
				c.Against[name] = against[name].estimated()
			}
		}
		s.Cells = append(s.Cells, c)
	}
	return s
}

// times are the times of a complete run; for other runs they are unknown.
func (r Row) times() (t times) {
	if !r.Complete {
		return times{}
	}
	t.wall = float64(r.WallClock)
	if r.Lost != nil && *r.Lost < 1 {
		t.effective = t.wall / (1 - *r.Lost)
	}
	return t
}

// work summarises the work of the runs that have counted it.
func (c *Cell) work(name string, lost, effective []float64) {
	if len(lost) == 0 {
		return
	}
	if c.Lost == nil {
		c.Lost, c.Effective = map[string]stats.Estimate{}, map[string]stats.Estimate{}
	}
	c.Lost[name], c.Effective[name] = stats.Estimated(lost), stats.Estimated(effective)
}

// compare computes the speed-up of each policy over the first.
func (c *Cell) compare(policies []string, ratios map[string]*pairs) {
	c.Comparisons = []Compared{}
	if len(policies) > 2 {
		c.Speedups, c.Findings = map[string]stats.Estimate{}, map[string]string{}
	}
	for _, name := range policies[1:] {
		paired := ratios[name].estimated()
		e := paired.WallClock
		finding := e.Finding(name+" is faster", policies[0]+" is faster")
		c.Comparisons = append(c.Comparisons, Compared{name, policies[0], e, finding, paired.Effective})
		if len(policies) == 2 {
			c.Speedup, c.Finding = &e, finding
			return
		}
		c.Speedups[name] = e
		if finding != "" {
			c.Findings[name] = finding
		}
	}
}

// target is the validation loss for times to a loss; 0 if nothing was trained.
func (p *Plan) target(keys []string, done map[string]Row) float64 {
	var all, reference []learning.Curve
	for k, key := range keys {
		if c := done[key].curve(); p.Train && len(c.Points) > 0 {
			all = append(all, c)
			if k < len(keys)/len(p.Cells) && k%len(p.Policies) == 0 {
				reference = append(reference, c)
			}
		}
	}
	switch {
	case len(all) == 0:
		return 0
	case p.Target > 0:
		return p.Target
	case len(reference) == 0: // no point of it is done
		return learning.Target(all)
	}
	return learning.Target(reference)
}

// training summarises the training results of a cell, by policy; nil if there
// are none.
func (p *Plan) training(cell int, keys []string, done map[string]Row, target float64) map[string]learning.Outcome {
	if target == 0 {
		return nil
	}
	perCell := len(keys) / len(p.Cells)
	curves := func(cell, policy int) (all []learning.Curve) { // by seed and repeat
		for k := cell*perCell + policy; k < (cell+1)*perCell; k += len(p.Policies) {
			all = append(all, done[keys[k]].curve())
		}
		return all
	}
	outcomes := map[string]learning.Outcome{}
	for k, name := range p.Policies {
		var reference []learning.Curve
		switch {
		case k > 0:
			reference = curves(cell, 0)
		case cell > 0:
			reference = curves(0, 0)
		}
		outcomes[name] = learning.NewOutcome(curves(cell, k), reference, target)
	}
	return outcomes
}
