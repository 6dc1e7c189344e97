package train

import (
	"math"
	"slices"
	"testing"
)

// TestRegionalSteps: regions average between two steps of all, which begin where the
// last one of all ended, and see what regions have learnt since.
func TestRegionalSteps(t *testing.T) {
	all, err := Deal([]Layer{{Len: 2}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	f := all.Of(1)
	plain, s := State{Parameters: []float32{1, 2}, Momentum: make([]float32, 2)}, State{Parameters: []float32{1, 2}, Momentum: make([]float32, 2)}
	begin := slices.Clone(s.Parameters)
	DiLoCo.Take(&s, f, []float32{0.5, -0.5}, false) // the mean of local parameters is 0.5, 2.5
	if !slices.Equal(s.Parameters, []float32{0.5, 2.5}) || !slices.Equal(s.Agreed, begin) || slices.Max(s.Momentum) != 0 {
		t.Fatalf("after a region's step %+v", s)
	}
	if before := s.Clone(); before.Hash() != s.Hash() || s.Hash() == plain.Hash() || s.Last().Hash() != plain.Hash() {
		t.Error("the hash of a region's state is not that of what it is")
	}
	if !slices.Equal(s.Base(false), s.Parameters) || !slices.Equal(s.Base(true), begin) {
		t.Error("pseudo-gradients are measured from the wrong parameters")
	}
	// The workers have come to 0.25, 2.75: 0.75 and -0.75 from the beginning.
	DiLoCo.Take(&s, f, []float32{0.75, -0.75}, true)
	DiLoCo.Step(plain.Parameters, plain.Momentum, []float32{0.75, -0.75})
	if s.Hash() != plain.Hash() || s.Agreed != nil || math.Abs(float64(s.Parameters[0]-(1-0.7*1.9*0.75))) > 1e-6 {
		t.Errorf("after a step of all %+v, want %+v", s, plain)
	}
}
