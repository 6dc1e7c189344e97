package bench

import (
	"math"
	"slices"

	"testbed/internal/stats"
)

// medianOrZero is the median of values, and 0 if there are none: JSON has no
// NaN.
func medianOrZero(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return stats.Median(values)
}

// Spread returns the range of values as a share of their median, or 0 if the
// median is 0.
func Spread(values []float64) float64 {
	middle := medianOrZero(values)
	if middle == 0 {
		return 0
	}
	return (slices.Max(values) - slices.Min(values)) / middle
}

// BoundSeconds is the least time of an all-reduce of elements values at 8 bit
// each, if every worker sends and receives at rate bits per second: 2
// (workers-1) / workers × elements bytes. It is 0 if the rate is 0, that is,
// unlimited.
func BoundSeconds(workers, elements int, rate int64) float64 {
	if rate == 0 {
		return 0
	}
	return ringShare(workers) * float64(elements) * 8 / float64(rate)
}

// ringShare is the part of the vector that every worker has to send.
func ringShare(workers int) float64 { return 2 * float64(workers-1) / float64(workers) }

const floatBytes = 4

// Bandwidths returns the algorithm and the bus bandwidth as nccl-tests define
// them (doc/PERFORMANCE.md there), in GB/s: the bytes of the float32 vector
// divided by the time, and that times 2 (workers-1) / workers.
func Bandwidths(workers, elements int, seconds float64) (algorithm, bus float64) {
	if seconds == 0 {
		return 0, 0
	}
	algorithm = floatBytes * float64(elements) / seconds / 1e9
	return algorithm, algorithm * ringShare(workers)
}

// Squares are the sums of squares for a relative error.
type Squares struct {
	Error float64 `json:"error"` // of the differences from the exact values
	Exact float64 `json:"exact"` // of the exact values
}

// Add adds the sums of another part of the vector.
func (s *Squares) Add(o Squares) { s.Error, s.Exact = s.Error+o.Error, s.Exact+o.Exact }

// Relative is the relative L2 error, and 0 if both sums are 0.
func (s Squares) Relative() float64 {
	if s.Error == 0 {
		return 0
	}
	return math.Sqrt(s.Error / s.Exact)
}
