package report

import (
	"fmt"
	"math"
	"slices"

	"testbed/internal/stats"
	"testbed/policy"
	"testbed/record"
	"testbed/report/words"
)

// score is a policy's result in a world: its time, and the work that it
// discarded for that.
type score struct {
	Policy string `json:"policy"`
	World  string `json:"world"`
	// Wall is the wall-clock of the complete runs, in µs of scenario time.
	Wall stats.Estimate `json:"wall_clock_us"`
	// Speedup is the reference's wall-clock divided by the policy's, seed by seed,
	// and Finding the conclusion. The reference has none.
	Speedup stats.Estimate `json:"-"`
	Finding string         `json:"-"`
	// Runs counts the runs, and Complete the complete ones.
	Runs     int `json:"-"`
	Complete int `json:"-"`
	// Lost is the mean of record.Work.Lost over the complete runs; nil if a record
	// does not have it.
	Lost *float64 `json:"lost"`
	// Front reports whether the policy is on the Pareto front of its world: no
	// other policy is as fast and loses as little, and is better in one of the
	// two.
	Front bool `json:"front"`
}

// scores are the scores of every policy in every world in which it was played,
// world by world.
func scores(policies []string, all []matched) (scores []score) {
	for _, world := range worlds {
		first := len(scores)
		for _, name := range policies {
			sc := score{Policy: name, World: world}
			var walls []float64
			counted, lost := 0, 0.0
			for _, m := range all {
				sum, ok := m.runs[world][name]
				if !ok || m.again && world != record.Real {
					continue
				}
				sc.Runs++
				if !sum.Complete {
					continue
				}
				sc.Complete++
				walls = append(walls, float64(sum.WallClock))
				if sum.Work != nil {
					counted++
					lost += sum.Work.Lost
				}
			}
			if sc.Runs == 0 {
				continue
			}
			sc.Wall = stats.Estimated(walls)
			if name != policies[0] {
				sc.Speedup, sc.Finding = compared(policies[0], name, world, all)
			}
			if counted > 0 {
				sc.Lost = new(lost / float64(counted))
			}
			scores = append(scores, sc)
		}
		markFront(scores[first:])
	}
	return scores
}

// markFront marks the scores of a world that no other one dominates. A policy
// with an incomplete run is neither on the front nor does it dominate others:
// its time is not known.
func markFront(world []score) {
	compete := func(s score) bool { return s.Lost != nil && s.Complete == s.Runs }
	dominates := func(a, b score) bool {
		return a.Wall.Median <= b.Wall.Median && *a.Lost <= *b.Lost && (a.Wall.Median < b.Wall.Median || *a.Lost < *b.Lost)
	}
	for k := range world {
		world[k].Front = compete(world[k]) && !slices.ContainsFunc(world, func(other score) bool {
			return compete(other) && dominates(other, world[k])
		})
	}
}

// WallText is the wall-clock for a table.
func (s score) WallText() string {
	text := "–"
	if s.Wall.N > 0 {
		text = words.Micros(policy.Time(math.Round(s.Wall.Median)))
	}
	if i := s.Wall.Interval; i != nil {
		text += fmt.Sprintf(" (%s–%s)", words.Thousands(int64(math.Round(i.Low))), words.Thousands(int64(math.Round(i.High))))
	}
	if s.Complete < s.Runs {
		text += fmt.Sprintf(", %d of %d incomplete", s.Runs-s.Complete, s.Runs)
	}
	return text
}

// SpeedupText is the speed-up for a table.
func (s score) SpeedupText() string {
	if s.Speedup.N == 0 {
		return "–"
	}
	text := fmt.Sprintf("%.3f×", s.Speedup.Median)
	if i := s.Speedup.Interval; i != nil {
		text += fmt.Sprintf(" (%.3f–%.3f)", i.Low, i.High)
	}
	return text
}

// LostText is the work lost for a table.
func (s score) LostText() string {
	if s.Lost == nil {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100**s.Lost)
}

// rankCorrelations compares each simulated world's order of the policies with
// the measured one. An incomplete run counts as slower than any complete one.
func rankCorrelations(policies []string, all []matched) map[string]stats.Correlation {
	if len(policies) < stats.LeastRanked {
		return nil
	}
	correlations := map[string]stats.Correlation{}
	for _, world := range []string{record.Sim, record.SimLinks} {
		var predicted, measured [][]float64
		for _, m := range all {
			x, y := m.runs[world].walls(policies), m.runs[record.Real].walls(policies)
			if x != nil && y != nil {
				predicted, measured = append(predicted, x), append(measured, y)
			}
		}
		if predicted != nil {
			correlations[world] = stats.RankCorrelation(predicted, measured)
		}
	}
	return correlations
}

// walls are the policies' wall-clocks for an order; nil if one is missing.
func (set Set) walls(policies []string) (all []float64) {
	for _, name := range policies {
		sum, ok := set[name]
		switch {
		case !ok:
			return nil
		case sum.Complete:
			all = append(all, float64(sum.WallClock))
		default:
			all = append(all, math.Inf(1))
		}
	}
	return all
}

// rankText says whether the simulated orders agree with the measured one, a
// line each.
func rankText(all map[string]stats.Correlation) (lines []string) {
	for _, world := range worlds {
		c, ok := all[world]
		if !ok {
			continue
		}
		what := fmt.Sprintf("order of the %d policies, %s against measured: ", c.Things, worldText(world))
		if c.Tau == nil {
			lines = append(lines, what+"not compared, because "+c.Why)
			continue
		}
		text := fmt.Sprintf("Kendall's τ %.2f", *c.Tau)
		if i := c.Interval; i != nil {
			text += fmt.Sprintf(" (%.2f to %.2f, %.3g %% interval over %d seeds)", i.Low, i.High, 100*i.Level, c.N)
		}
		lines = append(lines, what+text)
	}
	return lines
}
