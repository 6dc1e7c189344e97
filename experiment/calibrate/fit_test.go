package calibrate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// synthetic are rows of a known law with noise, some of it gross: what a busy
// neighbour does to single times.
func synthetic(rng *rand.Rand, groups, perGroup int, beta []float64, noise, gross float64) []row {
	var rows []row
	for g := range groups {
		x := []float64{1, float64(1 + g%5), rng.Float64() * 10}
		common := noise * rng.NormFloat64() // what runs have of their own
		for range perGroup {
			y := dot(x, beta) + common + noise*rng.NormFloat64()
			if rng.Float64() < 0.1 {
				y += gross * rng.Float64()
			}
			rows = append(rows, row{x: x, y: y, group: fmt.Sprint(g)})
		}
	}
	return rows
}

// TestRobustRecovers the coefficients behind noisy times; plain least squares,
// which the gross errors draw away, are the control.
func TestRobustRecovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	beta := []float64{3, 2, 0.5}
	var robustError, plainError float64
	const runs = 40
	for range runs {
		rows := synthetic(rng, 20, 7, beta, 0.1, 20)
		weights := make([]float64, len(rows))
		for i := range weights {
			weights[i] = 1
		}
		r, p := robust(rows), solve(rows, weights)
		for j := range beta {
			robustError += math.Abs(r[j]-beta[j]) / beta[j] / runs / 3
			plainError += math.Abs(p[j]-beta[j]) / beta[j] / runs / 3
		}
	}
	if robustError > 0.02 || plainError < 4*robustError {
		t.Errorf("mean error %.2f %%, of least squares %.2f %%", 100*robustError, 100*plainError)
	}
	exact := synthetic(rng, 20, 7, beta, 0, 0)
	for j, b := range robust(exact) {
		if math.Abs(b-beta[j]) > 1e-9 {
			t.Errorf("without noise coefficient %d is %v, want %v", j, b, beta[j])
		}
	}
}

func TestSingularRowsHaveNoFit(t *testing.T) {
	rows := []row{{x: []float64{1, 2}, y: 1}, {x: []float64{1, 2}, y: 1.1}, {x: []float64{1, 2}, y: 0.9}}
	if b := robust(rows); b != nil {
		t.Errorf("rows that are all alike give %v", b)
	}
	if b := robust(nil); b != nil {
		t.Errorf("no rows give %v", b)
	}
	for _, e := range estimates(rows, []string{"ms", "ns"}, []float64{1, 1}) {
		if e.Value != 0 || e.Observations != 0 {
			t.Errorf("estimate %+v", e)
		}
	}
}

// TestIntervalsCover the truth about as often as they say: of 95 % intervals
// from few groups somewhat fewer do.
func TestIntervalsCover(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	beta := []float64{3, 2, 0.5}
	const runs = 25
	covered, all := 0, 0
	for range runs {
		rows := synthetic(rng, 25, 6, beta, 0.2, 0)
		low, high := bootstrap(rows, robust)
		for j := range beta {
			all++
			if low[j] <= beta[j] && beta[j] <= high[j] {
				covered++
			}
			if high[j] <= low[j] || high[j]-low[j] > 1 {
				t.Fatalf("interval %v to %v", low[j], high[j])
			}
		}
	}
	if share := float64(covered) / float64(all); share < 0.85 {
		t.Errorf("%.0f %% of the 95 %% intervals cover the truth", 100*share)
	}
}
