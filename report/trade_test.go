package report

import (
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
	"testbed/internal/stats"
)

// TestFront: on the front nobody is beaten by anybody, and whoever is not on it
// is beaten by somebody who is.
func TestFront(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		var world []score
		for range rapid.IntRange(1, 8).Draw(t, "policies") {
			lost := float64(rapid.IntRange(0, 4).Draw(t, "lost"))
			s := score{Runs: 1, Complete: 1, Wall: stats.Estimate{Median: float64(rapid.IntRange(0, 4).Draw(t, "wall"))}, Lost: &lost}
			switch rapid.IntRange(0, 5).Draw(t, "what is missing") {
			case 0:
				s.Lost = nil
			case 1:
				s.Runs = 2
			}
			world = append(world, s)
		}
		markFront(world)
		for _, a := range world {
			if a.Lost == nil || a.Complete < a.Runs {
				if a.Front {
					t.Fatalf("on the front without figures: %+v", a)
				}
				continue
			}
			beaten := false
			for _, b := range world {
				if b.Front && b.Wall.Median <= a.Wall.Median && *b.Lost <= *a.Lost && (b.Wall.Median != a.Wall.Median || *b.Lost != *a.Lost) {
					beaten = true
				}
			}
			if beaten == a.Front {
				t.Fatalf("beaten %v, on the front %v: %+v", beaten, a.Front, a)
			}
		}
	})
}
