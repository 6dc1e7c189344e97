package sweep

import (
	"testbed/scenarios"
	"testbed/stats"
)

// Summary is what a sweep shows.
type Summary struct {
	Scenario string   `json:"scenario"`
	World    string   `json:"world"`
	Fields   []Axis   `json:"fields"`
	Seeds    []uint64 `json:"seeds"`
	Repeats  int      `json:"repeats"`
	Policies []string `json:"policies"`
	Points   int      `json:"points"`
	Done     int      `json:"done"`
	Cells    []Cell   `json:"cells"`
	Dir      string   `json:"dir"`
}

// Cell is an assignment with what its points came to, over seeds and repeats.
type Cell struct {
	Set Assignment `json:"set"`
	// WallClock has the wall-clocks of the complete runs in µs of scenario
	// time, by policy.
	WallClock map[string]stats.Estimate `json:"wall_clock_us"`
	// Incomplete counts the runs that the horizon cut short, by policy.
	Incomplete map[string]int `json:"incomplete"`
	// Speedup has the ratios baseline / straggler of the runs with the same
	// seed and repeat, where both policies are swept.
	Speedup *stats.Estimate `json:"speedup,omitempty"`
	// Finding is what the speed-up shows: one policy is faster, or "no
	// difference shown"; empty without an interval.
	Finding string `json:"finding,omitempty"`
}

// Summarize sums up the rows that are done.
func (p *Plan) Summarize(keys []string, done map[string]Row) Summary {
	s := Summary{Scenario: p.Scenario.Name, World: p.World, Seeds: p.Seeds, Repeats: p.Repeats, Policies: p.Policies, Points: len(keys)}
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
	for i, set := range p.Cells {
		c := Cell{Set: set, WallClock: map[string]stats.Estimate{}, Incomplete: map[string]int{}}
		walls := map[string][]float64{}
		var ratios []float64
		pair := map[string]float64{} // wall-clocks of the same seed and repeat
		for k := i * perCell; k < (i+1)*perCell; k++ {
			if k%len(p.Policies) == 0 {
				clear(pair)
			}
			r, ok := done[keys[k]]
			switch {
			case !ok:
				continue
			case !r.Complete:
				c.Incomplete[r.Policy]++
			default:
				wall := float64(r.WallClock)
				walls[r.Policy] = append(walls[r.Policy], wall)
				pair[r.Policy] = wall
				if len(pair) == 2 && pair[scenarios.Straggler] > 0 {
					ratios = append(ratios, pair[scenarios.Baseline]/pair[scenarios.Straggler])
				}
			}
			s.Done++
		}
		for _, name := range p.Policies {
			c.WallClock[name] = stats.Estimated(walls[name])
		}
		if len(p.Policies) == 2 {
			e := stats.Estimated(ratios)
			c.Speedup, c.Finding = &e, e.Finding(scenarios.Straggler+" is faster", scenarios.Baseline+" is faster")
		}
		s.Cells = append(s.Cells, c)
	}
	return s
}
