package stats

import (
	"cmp"
	"fmt"
	"math"
)

// LeastRanked is the least number of things whose order is compared: two are in
// the same order or not, which their ratio shows.
const LeastRanked = 3

// Correlation is the agreement of two orders of the same things.
type Correlation struct {
	Things int `json:"things"` // The number of policies in the order.
	N      int `json:"n"`      // The number of measurements behind the order.
	// Kendall's rank correlation: 1 for the same order, 0 for no relation, −1 for the
	// reverse order. It is `null` if it is undefined.
	Tau *float64 `json:"tau"`
	// The interval of `tau`, if any.
	Interval *Interval `json:"interval"`
	// The reason why `tau` or `interval` is `null`.
	Why string `json:"why,omitempty"`
}

// KendallTau returns the rank correlation of two lists of values of the same
// things, with ties as in tau-b (Kendall, The treatment of ties in ranking
// problems, Biometrika 33, 1945). Infinite values are in order, NaN is not. ok
// is false if a list has no order: all of its values are equal.
func KendallTau(x, y []float64) (tau float64, ok bool) {
	var agree, inX, inY int // pairs of things: in the same order less reversed, and not tied
	for i := range x {
		for j := range i {
			a, b := cmp.Compare(x[i], x[j]), cmp.Compare(y[i], y[j])
			agree += a * b
			inX += a * a
			inY += b * b
		}
	}
	if inX == 0 || inY == 0 {
		return 0, false
	}
	return float64(agree) / math.Sqrt(float64(inX)*float64(inY)), true
}

// RankCorrelation compares two worlds' orders of the same things, by the
// medians of their measurements: x[i][k] and y[i][k] are the i-th measurements
// of thing k, and belong together. The interval is a bootstrap over i, that is,
// over measurements rather than things: it shows how far noise may have changed
// the order, not the effect of other things. A sample without an order counts
// as 0.
func RankCorrelation(x, y [][]float64) Correlation {
	c := Correlation{N: len(x)}
	if c.N > 0 {
		c.Things = len(x[0])
	}
	if c.N == 0 || c.Things < LeastRanked {
		c.Why = fmt.Sprintf("comparing orders needs at least %d items, not %d", LeastRanked, c.Things)
		return c
	}
	of := func(picks []int) (float64, bool) {
		return KendallTau(medians(x, picks), medians(y, picks))
	}
	all := make([]int, c.N)
	for i := range all {
		all[i] = i
	}
	tau, ok := of(all)
	if !ok {
		c.Why = "all items have the same median on one of the two sides, so that side has no order"
		return c
	}
	c.Tau = &tau
	if c.N < LeastRepeats {
		c.Why = fmt.Sprintf("an interval needs at least %d measurements, not %d", LeastRepeats, c.N)
		return c
	}
	c.Interval = bootstrap(c.N, func(picks []int) float64 {
		tau, _ := of(picks)
		return tau
	})
	return c
}

// medians are the medians of each thing over the picked measurements.
func medians(x [][]float64, picks []int) []float64 {
	of := make([]float64, len(x[0]))
	values := make([]float64, len(picks))
	for k := range of {
		for i, pick := range picks {
			values[i] = x[pick][k]
		}
		of[k] = Median(values)
	}
	return of
}
