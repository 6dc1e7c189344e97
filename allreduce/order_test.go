package allreduce

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
)

func drawCosts(t *rapid.T, least, most int) [][]float64 {
	n := rapid.IntRange(least, most).Draw(t, "ranks")
	cost := make([][]float64, n)
	for i := range cost {
		cost[i] = rapid.SliceOfN(rapid.Float64Range(0, 10), n, n).Draw(t, "costs")
	}
	return cost
}

// TestOrderIsTheBest: of all orders, tried one after the other.
func TestOrderIsTheBest(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		cost := drawCosts(t, 1, 7)
		for _, objective := range []Objective{Bottleneck, Sum} {
			best := math.Inf(1)
			var try func(order []int, left []int)
			try = func(order, left []int) {
				if len(left) == 0 {
					best = min(best, tourScore(cost, order).by(objective))
				}
				for i, r := range left {
					try(append(slices.Clone(order), r), slices.Delete(slices.Clone(left), i, i+1))
				}
			}
			all := make([]int, len(cost))
			for i := range all {
				all[i] = i
			}
			try(all[:1], all[1:])
			tour, err := OrderRing(cost, objective)
			if err != nil {
				t.Fatal(err)
			}
			if got := tourScore(cost, tour.Order).by(objective); got != tour.Cost || math.Abs(got-best) > 1e-9 {
				t.Fatalf("%v costs %v and says %v, the best costs %v", tour.Order, got, tour.Cost, best)
			}
		}
	})
}

func TestOrderIsNeverWorseThanNaive(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		cost := drawCosts(t, maxExact-1, 24)
		for _, objective := range []Objective{Bottleneck, Sum} {
			tour, err := OrderRing(cost, objective)
			if err != nil {
				t.Fatal(err)
			}
			sorted := slices.Sorted(slices.Values(tour.Order))
			for i, r := range sorted {
				if r != i {
					t.Fatalf("%v is not an order", tour.Order)
				}
			}
			if tour.Order[0] != 0 || tour.Cost > tour.Naive {
				t.Fatalf("%+v", tour)
			}
		}
	})
}

// TestOrderKeepsRegionsTogether: two regions whose workers joined in turn; a
// ring has to cross between them twice, and not more often.
func TestOrderKeepsRegionsTogether(t *testing.T) {
	for _, n := range []int{8, 30} {
		cost := make([][]float64, n)
		for i := range cost {
			cost[i] = make([]float64, n)
			for j := range cost[i] {
				cost[i][j] = 1
				if i%2 != j%2 {
					cost[i][j] = 10
				}
			}
		}
		tour, err := OrderRing(cost, Sum)
		if err != nil || tour.Cost != float64(n-2+20) || tour.Naive != float64(10*n) {
			t.Errorf("%d ranks: %+v, %v", n, tour, err)
		}
	}
}

func TestOrderRefusals(t *testing.T) {
	for says, cost := range map[string][][]float64{
		"no ranks":           {},
		"0 ranks":            {{0, 1}, {}},
		"is -1":              {{0, -1}, {1, 0}},
		"1 to rank 0 is NaN": {{0, 1}, {math.NaN(), 0}},
	} {
		if _, err := OrderRing(cost, Sum); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want an error about %q, got %v", says, err)
		}
	}
}

func TestRingLatency(t *testing.T) {
	cost := [][]float64{{0, 1, 9}, {9, 0, 2}, {4, 9, 0}}
	// 0 → 1 → 2 → 0 → 1 costs 8; from 1 it is 2 + 4 + 1 + 2, from 2 it is 4 + 1 + 2 + 4.
	if got := RingLatency(cost, []int{0, 1, 2}); got != 11 {
		t.Errorf("latency %v", got)
	}
	if got := RingLatency(cost[:1], []int{0}); got != 0 {
		t.Errorf("latency alone %v", got)
	}
}
