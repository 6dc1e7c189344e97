package probe

import (
	"math"
	"slices"
	"time"

	"testbed/internal/stats"
)

// HalfWidth estimates the half-width of a uniform variation from the range
// between the 5th and the 95th percentile, which is nine tenths of the width.
// Stragglers of a busy machine hardly move it, but would move a standard
// deviation.
func HalfWidth(sorted []time.Duration) time.Duration {
	return time.Duration(float64(stats.Quantile(sorted, 0.95)-stats.Quantile(sorted, 0.05)) / 1.8)
}

func sorted(d []time.Duration) []time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d
}

// z99 is the quantile of the normal distribution for 99 %, two-sided.
const z99 = 2.5758293035489004

// Wilson returns the 99 % confidence interval (Wilson's score) of a
// probability, from k successes in n trials.
func Wilson(k, n int) (low, high float64) {
	if n == 0 {
		return 0, 1
	}
	p, m, z2 := float64(k)/float64(n), float64(n), z99*z99
	middle := (p + z2/(2*m)) / (1 + z2/m)
	half := z99 / (1 + z2/m) * math.Sqrt(p*(1-p)/m+z2/(4*m*m))
	low, high = max(middle-half, 0), min(middle+half, 1)
	switch k { // rounding must not exclude the measured value
	case 0:
		low = 0
	case n:
		high = 1
	}
	return low, high
}

// BinomialRange returns the unsurprising counts in n trials of probability p:
// fewer, and likewise more, have a chance below alpha/2.
func BinomialRange(n int, p, alpha float64) (low, high int) {
	switch {
	case p <= 0:
		return 0, 0
	case p >= 1:
		return n, n
	}
	below := 0.0 // the chance of k or fewer
	low, high = -1, n
	for k := 0; k <= n; k++ {
		below += binomial(n, k, p)
		if low < 0 && below >= alpha/2 {
			low = k
		}
		if below >= 1-alpha/2 {
			high = k
			break
		}
	}
	return max(low, 0), high
}

// binomial is the chance of exactly k in n trials.
func binomial(n, k int, p float64) float64 {
	choose := lgamma(n+1) - lgamma(k+1) - lgamma(n-k+1)
	return math.Exp(choose + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p))
}

func lgamma(n int) float64 {
	v, _ := math.Lgamma(float64(n)) // the sign is positive
	return v
}
