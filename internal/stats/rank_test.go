package stats_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
	"testbed/internal/stats"
)

// TestKendallTau: worked by hand, and one with ties as scipy.stats.kendalltau
// documents it.
func TestKendallTau(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		x, y []float64
		want float64
		ok   bool
	}{
		{[]float64{1, 2, 3, 4}, []float64{10, 20, 30, 40}, 1, true},
		{[]float64{1, 2, 3, 4}, []float64{4, 3, 2, 1}, -1, true},
		{[]float64{1, 2, 3, 4}, []float64{1, 2, 4, 3}, 4. / 6, true},
		{[]float64{12, 2, 1, 12, 2}, []float64{1, 4, 7, 1, 0}, -0.4714045207910316, true},
		{[]float64{1, 2, inf}, []float64{5, 6, inf}, 1, true},
		{[]float64{1, 1, 1}, []float64{1, 2, 3}, 0, false},
		{nil, nil, 0, false},
	} {
		if got, ok := stats.KendallTau(c.x, c.y); ok != c.ok || math.Abs(got-c.want) > 1e-15 {
			t.Errorf("%v against %v: %v, %v; want %v, %v", c.x, c.y, got, ok, c.want, c.ok)
		}
	}
}

// TestKendallTauHolds: it is symmetric, lies in [-1, 1], turns its sign when one
// list is reversed, and hangs on the order alone.
func TestKendallTauHolds(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 8).Draw(t, "n")
		list := rapid.SliceOfN(rapid.IntRange(0, 5), n, n)
		var x, y, reversed, bent []float64
		for i, v := range list.Draw(t, "x") {
			x, reversed, bent = append(x, float64(v)), append(reversed, -float64(v)), append(bent, math.Exp(float64(v)))
			y = append(y, float64(list.Draw(t, "y")[i]))
		}
		tau, ok := stats.KendallTau(x, y)
		for _, other := range []struct {
			x, y []float64
			sign float64
		}{{y, x, 1}, {reversed, y, -1}, {bent, y, 1}} {
			if got, same := stats.KendallTau(other.x, other.y); same != ok || math.Abs(got-other.sign*tau) > 1e-12 {
				t.Fatalf("%v against %v is %v, and %v against %v is %v", x, y, tau, other.x, other.y, got)
			}
		}
		if tau < -1-1e-12 || tau > 1+1e-12 {
			t.Fatalf("%v", tau)
		}
	})
}

func TestRankCorrelation(t *testing.T) {
	same := [][]float64{{1, 2, 3}, {1, 2, 3}, {1, 2, 3}, {1, 2, 3}}
	noisy := [][]float64{{1, 2, 3}, {1, 3, 2}, {1, 2, 3}, {1, 2.5, 3}}
	c := stats.RankCorrelation(same, same)
	if c.Tau == nil || *c.Tau != 1 || c.Interval == nil || c.Interval.Low != 1 || c.Interval.High != 1 || c.N != 4 || c.Things != 3 {
		t.Errorf("the same order: %+v", c)
	}
	c = stats.RankCorrelation(same, noisy)
	if c.Tau == nil || *c.Tau != 1 || c.Interval == nil || c.Interval.Low >= 1 || c.Interval.High != 1 || c.Interval.Level != 0.875 {
		t.Errorf("a noisy order: %+v, %+v", c, c.Interval)
	}
	backwards := slices.Clone(noisy)
	slices.Reverse(backwards)
	if again := stats.RankCorrelation(same, backwards); *again.Tau != *c.Tau {
		t.Errorf("in another order of the measurements: %v, not %v", *again.Tau, *c.Tau)
	}
	if c := stats.RankCorrelation(same[:2], noisy[:2]); c.Tau == nil || c.Interval != nil || c.Why == "" {
		t.Errorf("of two measurements: %+v", c)
	}
	for what, x := range map[string][][]float64{"no order": {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}}, "two things": {{1, 2}}, "nothing": nil} {
		if c := stats.RankCorrelation(x, x); c.Tau != nil || c.Interval != nil || c.Why == "" {
			t.Errorf("%s: %+v", what, c)
		}
	}
}
