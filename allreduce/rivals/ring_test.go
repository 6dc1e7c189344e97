package rivals

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestRingError: PCCL's own errors, as pypccl 1.0.0 had them with four peers and
// a million normal values each, are reproduced.
func TestRingError(t *testing.T) {
	vectors := make([][]float32, 4)
	for k := range vectors {
		r := rand.New(rand.NewPCG(1, uint64(k)))
		vectors[k] = make([]float32, 1_000_000)
		for i := range vectors[k] {
			vectors[k][i] = float32(r.NormFloat64())
		}
	}
	for name, want := range map[string]float64{"pccl_minmax": 0.0574, "pccl_zeropoint": 0.0215} {
		c, ok := Find(name)
		if !ok {
			t.Fatalf("there is no codec %s", name)
		}
		if got := c.RingError(vectors, 1); math.Abs(got/want-1) > 0.05 {
			t.Errorf("%s: error %v, want %v", name, got, want)
		}
		// Shorter chunks have less extreme values.
		if whole, cut := c.RingError(vectors, 1), c.RingError(vectors, 16); cut > whole*1.01 {
			t.Errorf("%s: error %v with one slice, %v with 16", name, whole, cut)
		}
	}
	if c, ok := Find("none"); ok {
		t.Errorf("%v", c)
	}
}

// TestRingErrorOfFewValues: chunks may be empty, and zeros are exact.
func TestRingErrorOfFewValues(t *testing.T) {
	for _, c := range All[1:3] {
		if got := c.RingError([][]float32{{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}, 2); got != 0 {
			t.Errorf("%s: error %v", c.Name, got)
		}
		if got := c.RingError([][]float32{{1, 2, 3}, {1, 0, 2}}, 1); got < 0 || got > 0.5 {
			t.Errorf("%s: error %v", c.Name, got)
		}
	}
}
