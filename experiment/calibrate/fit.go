package calibrate

import (
	"math"
	"math/rand/v2"
	"slices"

	"testbed/internal/stats"
)

// Estimate is a fitted value with its 95 % interval.
type Estimate struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Unit  string  `json:"unit"`
	// Observations is the number of observations behind the fit.
	Observations int `json:"observations"`
}

// row is one equation: y ≈ Σ x[j]·β[j]. Rows of one group were measured
// together, and are drawn together.
type row struct {
	x     []float64
	y     float64
	group string
}

// huber is the residual, in standard deviations, beyond which weights fall: 95
// % as efficient as least squares on normal residuals (Huber 1981).
const huber = 1.345

// robust solves for β by least squares in which the weight of a residual falls
// beyond 1.345 standard deviations. Another program's burst of work on the same
// processors adds to single times, and must not decide the fit. It returns nil
// if the rows do not determine β.
func robust(rows []row) []float64 {
	weights := make([]float64, len(rows))
	for i := range weights {
		weights[i] = 1
	}
	beta := solve(rows, weights)
	for range 30 {
		if beta == nil {
			return nil
		}
		residuals := residuals(rows, beta)
		s := spread(residuals)
		if s == 0 {
			return beta
		}
		for i, r := range residuals {
			weights[i] = min(1, huber*s/math.Abs(r))
		}
		next := solve(rows, weights)
		if next == nil {
			return beta
		}
		done := slices.EqualFunc(beta, next, func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(a) })
		if beta = next; done {
			return beta
		}
	}
	return beta
}

func residuals(rows []row, beta []float64) []float64 {
	out := make([]float64, len(rows))
	for i, r := range rows {
		out[i] = r.y - dot(r.x, beta)
	}
	return out
}

func dot(x, y []float64) float64 {
	sum := 0.0
	for j := range x {
		sum += x[j] * y[j]
	}
	return sum
}

// spread is the standard deviation estimated from the median of absolute
// residuals.
func spread(residuals []float64) float64 {
	all := make([]float64, len(residuals))
	for i, r := range residuals {
		all[i] = math.Abs(r)
	}
	return stats.Median(all) / 0.6745
}

// solve returns the weighted least squares, by the normal equations with
// columns scaled to one length, or nil if they are singular.
func solve(rows []row, weights []float64) []float64 {
	if len(rows) == 0 {
		return nil
	}
	p := len(rows[0].x)
	scale := make([]float64, p)
	for j := range scale {
		for i, r := range rows {
			scale[j] += weights[i] * r.x[j] * r.x[j]
		}
		scale[j] = math.Sqrt(scale[j])
		if scale[j] == 0 {
			return nil
		}
	}
	a := make([][]float64, p) // with the right-hand side as the last column
	for j := range a {
		a[j] = make([]float64, p+1)
		for i, r := range rows {
			f := weights[i] * r.x[j] / scale[j]
			for k := range p {
				a[j][k] += f * r.x[k] / scale[k]
			}
			a[j][p] += f * r.y
		}
	}
	for j := range p { // Gauss and Jordan, with pivots
		best := j
		for k := j + 1; k < p; k++ {
			if math.Abs(a[k][j]) > math.Abs(a[best][j]) {
				best = k
			}
		}
		a[j], a[best] = a[best], a[j]
		if math.Abs(a[j][j]) < 1e-10 {
			return nil
		}
		for k := range p {
			if k == j {
				continue
			}
			f := a[k][j] / a[j][j]
			for l := j; l <= p; l++ {
				a[k][l] -= f * a[j][l]
			}
		}
	}
	beta := make([]float64, p)
	for j := range beta {
		beta[j] = a[j][p] / a[j][j] / scale[j]
	}
	return beta
}

// apart is the least share of a column's square that the other columns must
// leave unexplained. With less, large coefficients of opposite signs fit noise.
// It is the inverse of a variance inflation factor of 20; the built-in
// experiments leave 0.15 and more.
const apart = 0.05

// determined returns the columns of x, in their order, that the rows separate
// from the columns before.
func determined(rows []row) (kept []int) {
	if len(rows) == 0 {
		return nil
	}
	var basis [][]float64 // orthonormal
	for j := range rows[0].x {
		column := make([]float64, len(rows))
		for i, r := range rows {
			column[i] = r.x[j]
		}
		whole := dot(column, column)
		for range 2 { // twice: rounding
			for _, b := range basis {
				along := dot(column, b)
				for i := range column {
					column[i] -= along * b[i]
				}
			}
		}
		rest := dot(column, column)
		if whole == 0 || rest <= apart*whole {
			continue
		}
		for i := range column {
			column[i] /= math.Sqrt(rest)
		}
		kept, basis = append(kept, j), append(basis, column)
	}
	return kept
}

// columns returns the rows with these columns of x only.
func columns(rows []row, of []int) []row {
	out := make([]row, len(rows))
	for i, r := range rows {
		out[i] = row{y: r.y, group: r.group}
		for _, j := range of {
			out[i].x = append(out[i].x, r.x[j])
		}
	}
	return out
}

// draws is how often a fit is repeated for its intervals.
const draws = 400

// bootstrap returns the 95 % intervals of the results of fit. The rows are
// drawn again, with replacement, group by group, because rows of one run share
// its circumstances. Draws for which fit returns nil are skipped. The seed
// makes the intervals the same each time.
func bootstrap(rows []row, fit func([]row) []float64) (low, high []float64) {
	rng := rand.New(rand.NewPCG(1, 2))
	groups := map[string][]row{}
	var names []string
	for _, r := range rows {
		if groups[r.group] == nil {
			names = append(names, r.group)
		}
		groups[r.group] = append(groups[r.group], r)
	}
	var all [][]float64
	for range draws {
		var sample []row
		for range names {
			group := groups[names[rng.IntN(len(names))]]
			for range group {
				sample = append(sample, group[rng.IntN(len(group))])
			}
		}
		if beta := fit(sample); beta != nil {
			all = append(all, beta)
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	for j := range all[0] {
		values := make([]float64, len(all))
		for i := range all {
			values[i] = all[i][j]
		}
		slices.Sort(values)
		low = append(low, values[len(values)*25/1000])
		high = append(high, values[(len(values)-1)*975/1000])
	}
	return low, high
}

// estimates fits the rows, multiplies each coefficient by its factor in times,
// and gives it its unit. If the rows do not determine the coefficients, they
// are 0 with no observations.
func estimates(rows []row, units []string, times []float64) []Estimate {
	out := make([]Estimate, len(units))
	beta := robust(rows)
	low, high := bootstrap(rows, robust)
	told := len(determined(rows)) == len(units)
	for j := range out {
		out[j] = Estimate{Unit: units[j]}
		if !told || beta == nil || low == nil {
			continue // the rows do not determine it
		}
		out[j].Observations = len(rows)
		out[j].Value, out[j].Low, out[j].High = beta[j]*times[j], low[j]*times[j], high[j]*times[j]
	}
	return out
}
