package stats_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
	"testbed/internal/stats"
)

// TestCoverage draws data sets from a population whose median is known and
// counts how often the interval holds it. The population is skewed, as times
// are; the standard error of a share of 500 near 0.95 is 0.01.
func TestCoverage(t *testing.T) {
	const sets = 500
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{3, 4, 5, 8, 15, 30} {
		held, level := 0, 0.0
		for range sets {
			values := make([]float64, n)
			for i := range values {
				values[i] = 4 * math.Exp(0.3*rng.NormFloat64())
			}
			e := stats.Estimated(values)
			level = e.Interval.Level
			if e.Interval.Contains(4) {
				held++
			}
		}
		share := float64(held) / sets
		t.Logf("%d values: %.1f %% of the intervals hold the median, level %.1f %%", n, 100*share, 100*level)
		low, high := 0.88, 0.99
		if n < 5 { // as few allow less, and the interval says so
			low, high = level-0.06, level+0.06
		}
		if share < low || share > high {
			t.Errorf("%d values: coverage %.3f, want %.3f to %.3f", n, share, low, high)
		}
	}
}

func TestTooFew(t *testing.T) {
	for _, values := range [][]float64{nil, {3}, {3, 5}} {
		e := stats.Estimated(values)
		if e.Interval != nil || e.Why == "" || e.N != len(values) {
			t.Errorf("%v: %+v", values, e)
		}
	}
	if e := stats.Estimated([]float64{3, 5}); e.Median != 4 {
		t.Errorf("median %v, want 4", e.Median)
	}
}

// TestOneLuckyRun moves the median of the others little, and never out of their
// range.
func TestOneLuckyRun(t *testing.T) {
	if e := stats.Estimated([]float64{1, 1.01, 0.99, 1.02, 17}); e.Median != 1.01 || !e.Interval.Contains(1) {
		t.Errorf("%+v %+v", e, e.Interval)
	}
}

func TestEstimateByProperty(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-1e9, 1e9), stats.LeastRepeats, 20).Draw(t, "values")
		values[1] = values[0] + 1 // else they may all be the same
		e := stats.Estimated(values)
		i := e.Interval
		if !(slices.Min(values) <= i.Low && i.Low <= e.Median && e.Median <= i.High && i.High <= slices.Max(values)) {
			t.Fatalf("median %v in [%v, %v] of %v", e.Median, i.Low, i.High, values)
		}
		shuffled := slices.Clone(values)
		slices.Reverse(shuffled)
		if again := stats.Estimated(shuffled); *again.Interval != *i || again.Median != e.Median {
			t.Fatalf("another order gives %+v, not %+v", again.Interval, i)
		}
		same := make([]float64, len(values))
		for j := range same {
			same[j] = values[0]
		}
		if e := stats.Estimated(same); e.Interval != nil || !e.Same || e.Why == "" || e.Median != values[0] {
			t.Fatalf("equal values %v give %+v", values[0], e)
		}
	})
}

func TestFinding(t *testing.T) {
	for want, values := range map[string][]float64{
		"":                    {2, 2},
		"faster":              {1.1, 1.2, 1.3, 1.1, 1.2},
		"slower":              {0.9, 0.8, 0.7, 0.8, 0.9},
		"no difference shown": {0.99, 1.01, 1.02, 0.98, 1},
	} {
		if got := stats.Estimated(values).Finding("faster", "slower"); got != want {
			t.Errorf("%v: %q, want %q", values, got, want)
		}
	}
	if got := stats.Estimated([]float64{1, 1, 1}).Finding("faster", "slower"); got != "no difference shown" {
		t.Errorf("equal times: %q", got)
	}
	// Seeds that change nothing say nothing about which policy is faster.
	if got := stats.Estimated([]float64{4, 4, 4, 4, 4}).Finding("faster", "slower"); got != stats.Unchanged {
		t.Errorf("five times the same speed-up: %q", got)
	}
}

// TestQuantileOfWholeRanks: of a hundred and one values each percentile is a
// value of its own.
func TestQuantileOfWholeRanks(t *testing.T) {
	values := make([]int, 101)
	for i := range values {
		values[i] = i
	}
	for percent := range values {
		if got := stats.Quantile(values, float64(percent)/100); got != percent {
			t.Errorf("the quantile %d %% is %d", percent, got)
		}
	}
	for _, c := range []struct {
		sorted []float64
		p      float64
		want   float64
	}{{nil, 0.5, 0}, {[]float64{3}, 0.99, 3}, {[]float64{1, 2}, 0.5, 1}, {[]float64{1, 2}, 1, 2}, {[]float64{1, 2, 3}, 0.99, 2}} {
		if got := stats.Quantile(c.sorted, c.p); got != c.want {
			t.Errorf("%v: the quantile %v is %v, want %v", c.sorted, c.p, got, c.want)
		}
	}
}

func TestMedianHasHalfOnEachSide(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(1, 1e6), 1, 30).Draw(t, "values")
		before := slices.Clone(values)
		m := stats.Median(values)
		below, above := 0, 0
		for _, v := range values {
			if v <= m {
				below++
			}
			if v >= m {
				above++
			}
		}
		if 2*below < len(values) || 2*above < len(values) {
			t.Fatalf("%v is no median", m)
		}
		if !slices.Equal(values, before) {
			t.Fatal("the values are in another order")
		}
	})
}
