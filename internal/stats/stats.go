// Package stats computes results of repeated measurements: a median and how far
// it can be trusted.
package stats

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// LeastRepeats is the least number of measurements for an interval.
const LeastRepeats = 3

// resamples is the number of bootstrap samples.
const resamples = 2000

// nominal is the probability that an interval aims at.
const nominal = 0.95

// Estimate is the median of repeated measurements, with its interval.
type Estimate struct {
	N      int     `json:"n"`      // The number of measurements.
	Median float64 `json:"median"` // Their median.
	// The confidence interval, `null` for fewer than three measurements, or if all are
	// equal.
	Interval *Interval `json:"interval"`
	// The reason why there is no interval.
	Why string `json:"why,omitempty"`
	// The measurements suffice for an interval, but all are equal.
	Same bool `json:"same,omitempty"`
}

// Interval is a confidence interval of the population's median, or of another
// estimated quantity.
type Interval struct {
	Low  float64 `json:"low"`  // The lower end.
	High float64 `json:"high"` // The upper end.
	// The probability that such an interval contains the true value: 0.95, or the most
	// that few measurements allow.
	Level float64 `json:"level"`
}

// Contains reports whether the interval contains x, including its ends.
func (i Interval) Contains(x float64) bool { return i.Low <= x && x <= i.High }

// Unchanged is the finding for ratios that are the same with every seed.
const Unchanged = "the seeds change nothing"

// Finding is the conclusion from the ratio of two times: faster or slower in
// the caller's words, or "no difference shown" if the interval contains 1. It
// is empty without an interval, unless that is so because all ratios are the
// same.
func (e Estimate) Finding(above, below string) string {
	switch i := e.Interval; {
	case e.NoDifference():
		return "no difference shown"
	case e.Same:
		return Unchanged
	case i == nil:
		return ""
	case i.Low > 1:
		return above
	}
	return below
}

// NoDifference reports whether the ratio of two times shows no difference: the
// interval contains 1, or all ratios are 1.
func (e Estimate) NoDifference() bool {
	return e.Interval != nil && e.Interval.Contains(1) || e.Same && e.Median == 1
}

// Median returns the middle of the values, the mean of the middle two of an
// even number, and NaN for none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Quantile returns the value at or just below the share p of the way through
// the sorted values, from the least (0) to the largest (1), always one of the
// values. NumPy calls this the method "lower". Without values it is zero.
func Quantile[T any](sorted []T, p float64) T {
	if len(sorted) == 0 {
		var none T
		return none
	}
	return sorted[int(p*float64(len(sorted)-1)+1e-9)] // 0.29 × 100 is 28.999…
}

// Estimated returns the median of the values with its percentile bootstrap
// interval (Efron & Tibshirani, An Introduction to the Bootstrap, chapter 13).
// It uses the median, because one lucky run must not move it. The same values
// give the same interval, in whatever order they come.
//
// No interval from n values can reach beyond them, and all of them are on one
// side of the population's median with probability 2·2⁻ⁿ. So the level of three
// values is 0.75 at most, of four 0.875, of five 0.9375. Values that are all
// the same have no interval: a thousand runs without variation carry as much
// information as one.
func Estimated(values []float64) Estimate {
	n := len(values)
	e := Estimate{N: n}
	if n > 0 {
		e.Median = Median(values)
	}
	if n < LeastRepeats {
		e.Why = fmt.Sprintf("an interval needs at least %d measurements, not %d", LeastRepeats, n)
		return e
	}
	sorted := slices.Sorted(slices.Values(values))
	if sorted[0] == sorted[n-1] {
		e.Same, e.Why = true, fmt.Sprintf("all %d values are the same, so the seeds change nothing", n)
		return e
	}
	e.Interval = bootstrap(n, func(picks []int) float64 {
		slices.Sort(picks) // of sorted values, so that the middle is the median
		return (sorted[picks[(n-1)/2]] + sorted[picks[n/2]]) / 2
	})
	return e
}

// Level is the level of an interval from n values.
func Level(n int) float64 { return min(nominal, 1-2*math.Pow(0.5, float64(n))) }

// bootstrap returns the percentile interval of a statistic of n measurements.
// The statistic is given the positions of a sample with replacement, and may
// reorder them. The samples are the same for the same n.
func bootstrap(n int, statistic func(picks []int) float64) *Interval {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], uint64(n))
	rng := rand.New(rand.NewChaCha8(key))
	results := make([]float64, resamples)
	picks := make([]int, n)
	for i := range results {
		for j := range picks {
			picks[j] = rng.IntN(n)
		}
		results[i] = statistic(picks)
	}
	slices.Sort(results)
	tail := int(math.Floor((1 - nominal) / 2 * resamples))
	return &Interval{
		Low: results[tail], High: results[resamples-1-tail],
		Level: Level(n),
	}
}
