package work_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"testbed/train/work"
)

// TestCDF is the share of what is drawn up to a duration.
func TestCDF(t *testing.T) {
	for _, s := range []work.Steps{
		{Distribution: work.Normal, Sigma: new(0.1)}, {Distribution: work.Normal, Sigma: new(0.9)},
		{Sigma: new(0.3)}, {Distribution: work.LogNormal, Sigma: new(0.5)},
		{Distribution: work.Pareto, Sigma: new(0.5)}, {Distribution: work.Pareto, Shape: new(1.2)},
		{Distribution: work.Trace, Ratios: []float64{0.5, 1, 1, 1.5}},
	} {
		const n, mean = 20_000, 1_000_000
		sampler := work.NewSampler(&work.Spec{Steps: s}, 1, 0, mean, 0, rand.New(rand.NewPCG(1, 1)))
		all := make([]float64, n)
		for i := range all {
			all[i] = float64(sampler.Step(0, 1)) / mean
		}
		slices.Sort(all)
		far := 0.0
		for i := 0; i < n; i++ {
			if i+1 < n && all[i+1] == all[i] {
				continue // the last of equal ones counts
			}
			far = max(far, math.Abs(s.CDF(all[i])-float64(i+1)/n))
		}
		if far > 1.63/math.Sqrt(n) { // 1 in 100, with a fixed seed
			t.Errorf("%s: a distance of %.4f", s, far)
		}
		if s.CDF(-1) != 0 || s.CDF(1e9) != 1 {
			t.Errorf("%s: from %v to %v", s, s.CDF(-1), s.CDF(1e9))
		}
	}
}
