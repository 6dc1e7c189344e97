package train

import (
	"math"

	"testbed/record"
)

// Repeated returns a contribution that counts so many more times than once in a
// mean. Without repeats it is the contribution itself.
func Repeated(contribution []float32, repeats int) []float32 {
	if repeats == 0 {
		return contribution
	}
	sum := make([]float32, len(contribution))
	for i, g := range contribution {
		sum[i] = float32(g * float32(1+repeats))
	}
	return sum
}

// NewContribution describes a contribution. lost is its quantisation error. All
// three vectors have the same length. A contribution of zeros has all fields
// zero. ok is false for a contribution that is not finite: it cannot be
// described.
func NewContribution(contribution, outcome, lost []float32, layers []Layer) (c record.Contribution, ok bool) {
	square, error2, outcome2, product := 0.0, 0.0, 0.0, 0.0
	for i, g := range contribution {
		square += float64(float64(g) * float64(g))
		error2 += float64(float64(lost[i]) * float64(lost[i]))
		outcome2 += float64(float64(outcome[i]) * float64(outcome[i]))
		product += float64(float64(g) * float64(outcome[i]))
	}
	if !(square+error2+outcome2 <= math.MaxFloat64) {
		return c, false
	}
	if square == 0 {
		return c, true
	}
	c = record.Contribution{Norm: math.Sqrt(square), QuantisationError: math.Sqrt(error2 / square)}
	if outcome2 > 0 {
		c.Cosine = product / (math.Sqrt(square) * math.Sqrt(outcome2))
	}
	for _, l := range layers {
		square, error2 := 0.0, 0.0
		for i := l.At; i < l.At+l.Len; i++ {
			square += float64(float64(contribution[i]) * float64(contribution[i]))
			error2 += float64(float64(lost[i]) * float64(lost[i]))
		}
		e := record.LayerError{Name: l.Name}
		if square > 0 {
			e.Error = math.Sqrt(error2 / square)
		}
		c.Layers = append(c.Layers, e)
	}
	return c, true
}
