package tune

import (
	"cmp"
	"slices"
)

// Point is a policy with its parameters, and its mean results over seeds.
type Point struct {
	// Policy is written as for --policy.
	Policy string `json:"policy"`
	// Complete reports that every run was complete. The fields below hold only
	// then.
	Complete bool `json:"complete"`
	// WallClock is in µs of scenario time. Lost is the share of the workers'
	// possible contributions that no outer step has.
	WallClock float64 `json:"wall_clock_us"`
	Lost      float64 `json:"lost"`
	// Loss is the final validation loss, if something is trained. Then Loss
	// counts, and Lost does not.
	Loss float64 `json:"loss,omitempty"`
}

// Price is the cost of a point besides its wall-clock: validation loss, or lost
// work.
func (p Point) Price() float64 { return cmp.Or(p.Loss, p.Lost) }

// Front returns the points that no other one beats (V. Pareto), the fastest
// first. Of points with the same result it has the one named first.
func Front(points []Point) []Point {
	sorted := slices.DeleteFunc(slices.Clone(points), func(p Point) bool { return !p.Complete })
	slices.SortStableFunc(sorted, func(a, b Point) int {
		return cmp.Or(cmp.Compare(a.WallClock, b.WallClock), cmp.Compare(a.Price(), b.Price()))
	})
	var front []Point
	for _, p := range sorted {
		if len(front) == 0 || p.Price() < front[len(front)-1].Price() {
			front = append(front, p)
		}
	}
	return front
}

// Choose returns at most n points of a front, the fastest first. It takes the
// fastest point and the one with the lowest price. Between them it takes the
// points that maximise the area that the chosen points dominate.
func Choose(front []Point, n int) []Point {
	if len(front) <= n || n < 1 {
		return front[:min(n, len(front))]
	}
	first, last := front[0], front[len(front)-1]
	chosen := []Point{first}
	if n > 1 {
		chosen = append(chosen, last)
	}
	area := func(points []Point) (sum float64) {
		for i := 1; i < len(points); i++ {
			sum += (last.WallClock - points[i].WallClock) * (points[i-1].Price() - points[i].Price())
		}
		return sum
	}
	for len(chosen) < n {
		var best []Point
		for _, p := range front {
			if slices.ContainsFunc(chosen, func(c Point) bool { return c.Policy == p.Policy }) {
				continue
			}
			with := append(slices.Clone(chosen), p)
			slices.SortStableFunc(with, func(a, b Point) int { return cmp.Compare(a.WallClock, b.WallClock) })
			if best == nil || area(with) > area(best) {
				best = with
			}
		}
		chosen = best
	}
	return chosen
}
