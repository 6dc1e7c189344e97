package allreduce

import (
	"fmt"
	"math"
	"math/bits"
)

// NaiveOrder names the default order of the ring: that of the ranks, which
// follows the workers' ids.
const NaiveOrder = "naive"

// Objective is the measure that an order of the ring is judged by.
type Objective uint8

const (
	// Bottleneck is the largest cost around the ring. It limits long reductions,
	// in which all ranks send all the time. Of orders with the same largest cost,
	// the one with the smaller sum is preferred.
	Bottleneck Objective = iota
	// Sum is the sum of the costs around the ring. It limits short reductions, if
	// the costs are delays.
	Sum
)

const (
	// maxExact is the largest ring that is solved exactly: 2^11 × 12² steps.
	maxExact = 12
	// maxImproved is the largest ring that is improved step by step, in at most
	// maxRounds rounds, whose time grows with the third power of the ring's size:
	// 0.9 s in all for 256 ranks.
	maxImproved = 256
	maxRounds   = 20
)

// Tour is an order of the ranks around the ring.
type Tour struct {
	Order []int   // ranks, beginning with 0
	Cost  float64 // by the objective
	Naive float64 // cost of the order 0, 1, 2, …
}

// RingLatency is the cost of the longest way around the ring: of a chunk's
// 2(ranks-1) consecutive hops, from the worst starting point.
func RingLatency(cost [][]float64, order []int) (longest float64) {
	n := len(order)
	hop := func(k int) float64 { return cost[order[k%n]][order[(k+1)%n]] }
	for first := range n {
		sum := 0.0
		for k := range 2 * (n - 1) {
			sum += hop(first + k)
		}
		longest = math.Max(longest, sum)
	}
	return longest
}

// OrderRing finds a good order of the ring. cost[i][j] is the cost of sending
// from rank i to rank j, for example in seconds per byte. It need not be
// symmetric; +Inf marks a pair that cannot communicate. The diagonal is
// ignored. Up to 12 ranks the tour is optimal. For more ranks it is never worse
// than the naive order. It fails when the matrix is not square, or a cost is
// negative or no number.
func OrderRing(cost [][]float64, objective Objective) (Tour, error) {
	n := len(cost)
	if n == 0 {
		return Tour{}, fmt.Errorf("ring order: there are no ranks")
	}
	for i, row := range cost {
		if len(row) != n {
			return Tour{}, fmt.Errorf("ring order: rank %d has costs to %d ranks, not %d", i, len(row), n)
		}
		for j, c := range row {
			if i != j && !(c >= 0) {
				return Tour{}, fmt.Errorf("ring order: the cost from rank %d to rank %d is %v, but must not be negative", i, j, c)
			}
		}
	}
	naive := make([]int, n)
	for i := range naive {
		naive[i] = i
	}
	best := naive
	if n > 3 && n <= maxExact {
		best = exactOrder(cost, objective)
	} else if n > 2 {
		best = heuristicOrder(cost, objective, naive)
	}
	if !tourScore(cost, best).better(tourScore(cost, naive), objective) {
		best = naive
	}
	return Tour{best, tourScore(cost, best).by(objective), tourScore(cost, naive).by(objective)}, nil
}

// score is the cost of an order, by both objectives.
type score struct{ largest, sum float64 }

func (s score) with(c float64) score { return score{math.Max(s.largest, c), s.sum + c} }

func (s score) by(o Objective) float64 {
	if o == Sum {
		return s.sum
	}
	return s.largest
}

func (s score) better(than score, o Objective) bool {
	if o == Bottleneck && s.largest != than.largest {
		return s.largest < than.largest
	}
	return s.sum < than.sum
}

func tourScore(cost [][]float64, order []int) (s score) {
	for k, from := range order {
		if to := order[(k+1)%len(order)]; to != from {
			s = s.with(cost[from][to])
		}
	}
	return s
}

// exactOrder is dynamic programming over sets of ranks (Held and Karp): the
// best way from rank 0 through a set to each of its ranks.
func exactOrder(cost [][]float64, o Objective) []int {
	n := len(cost)
	type way struct {
		score
		from int // the rank before the last; -1 where there is no way yet
	}
	ways := make([][]way, 1<<(n-1)) // by set of ranks 1 … n-1, and the last of them
	for set := 1; set < len(ways); set++ {
		ways[set] = make([]way, n)
		for last := 1; last < n; last++ {
			w := &ways[set][last]
			w.from = -1
			rest := set &^ (1 << (last - 1))
			if rest == set {
				continue
			}
			if rest == 0 {
				*w = way{score{}.with(cost[0][last]), 0}
				continue
			}
			for left := rest; left != 0; left &= left - 1 {
				before := bits.TrailingZeros(uint(left)) + 1
				s := ways[rest][before].with(cost[before][last])
				if w.from < 0 || s.better(w.score, o) {
					*w = way{s, before}
				}
			}
		}
	}
	all := len(ways) - 1
	end, best := 1, ways[all][1].with(cost[1][0])
	for last := 2; last < n; last++ {
		if s := ways[all][last].with(cost[last][0]); s.better(best, o) {
			end, best = last, s
		}
	}
	order := make([]int, n)
	for k, set := n-1, all; k > 0; k-- {
		order[k] = end
		set, end = set&^(1<<(end-1)), ways[set][end].from
	}
	return order
}

// heuristicOrder improves the better of the naive order and the one that goes
// to the nearest rank left, by moving stretches of up to three ranks elsewhere
// and by turning stretches around, until neither helps.
func heuristicOrder(cost [][]float64, o Objective, naive []int) []int {
	n := len(cost)
	order := make([]int, n)
	copy(order, naive)
	for k := 1; k < n; k++ {
		nearest := k
		for m := k + 1; m < n; m++ {
			if cost[order[k-1]][order[m]] < cost[order[k-1]][order[nearest]] {
				nearest = m
			}
		}
		order[k], order[nearest] = order[nearest], order[k]
	}
	if tourScore(cost, naive).better(tourScore(cost, order), o) {
		copy(order, naive)
	}
	if n > maxImproved {
		return order
	}
	best := tourScore(cost, order)
	tried := make([]int, n)
	try := func() bool {
		s := tourScore(cost, tried)
		if !s.better(best, o) {
			return false
		}
		best = s
		copy(order, tried)
		return true
	}
	for improved, rounds := true, 0; improved && rounds < maxRounds; rounds++ {
		improved = false
		for i := 1; i < n; i++ {
			for j := i + 1; j < n; j++ {
				copy(tried, order)
				for a, b := i, j; a < b; a, b = a+1, b-1 {
					tried[a], tried[b] = tried[b], tried[a]
				}
				improved = try() || improved
				for length := 1; length <= 3 && i+length <= j; length++ {
					// order[i:i+length] goes behind order[j].
					copy(tried, order)
					copy(tried[i:], order[i+length:j+1])
					copy(tried[j+1-length:], order[i:i+length])
					improved = try() || improved
				}
			}
		}
	}
	return order
}
