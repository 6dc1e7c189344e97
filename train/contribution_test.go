package train

import (
	"math"
	"testing"

	"testbed/record"
)

func TestContribution(t *testing.T) {
	layers := []Layer{{Name: "a", At: 0, Len: 2}, {Name: "b", At: 2, Len: 1}, {Name: "zeros", At: 3, Len: 1}}
	c, ok := NewContribution([]float32{3, 0, 4, 0}, []float32{6, 0, 0, 8}, []float32{0, 0.5, 1, 0}, layers)
	if !ok || c.Norm != 5 || math.Abs(c.Cosine-18.0/50) > 1e-15 || math.Abs(c.QuantisationError-math.Sqrt(1.25)/5) > 1e-15 {
		t.Errorf("%v: %+v", ok, c)
	}
	for k, want := range []record.LayerError{{Name: "a", Error: 0.5 / 3}, {Name: "b", Error: 0.25}, {Name: "zeros"}} {
		if got := c.Layers[k]; got.Name != want.Name || math.Abs(got.Error-want.Error) > 1e-15 {
			t.Errorf("layer %d: %+v, want %+v", k, got, want)
		}
	}
	zeros, inf := make([]float32, 2), []float32{1, float32(math.Inf(1))}
	for what, v := range map[string][3][]float32{
		"no number": {inf, zeros, zeros}, "an outcome that is none": {{1, 1}, inf, zeros}, "an error that is none": {{1, 1}, zeros, {0, float32(math.NaN())}},
	} {
		if c, ok := NewContribution(v[0], v[1], v[2], nil); ok {
			t.Errorf("%s: %+v", what, c)
		}
	}
	if c, ok := NewContribution(zeros, []float32{1, 1}, zeros, nil); !ok || c.Norm != 0 || c.Cosine != 0 || c.QuantisationError != 0 {
		t.Errorf("zeros: %v, %+v", ok, c)
	}
	if c, ok := NewContribution([]float32{1, 1}, zeros, zeros, nil); !ok || c.Cosine != 0 {
		t.Errorf("an outcome of zeros: %v, %+v", ok, c)
	}
}
