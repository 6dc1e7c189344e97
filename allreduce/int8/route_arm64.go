//go:build arm64 && !purego

package int8

// forms are the forms of this machine: NEON is part of every 64-bit Arm
// processor that runs Go.
func forms() []form { return []form{{route: portable}, {route: neon}} }

// NEON is 128 bits wide: blocks are encoded one by one and codes go through the
// caches. With this single form there is nothing to choose or measure.

func endStream() {}

func canFlush() bool { return false }

func flush(*byte, int) {}

func (coder) together() bool { return false }

func (coder) addQuantiseVector([]float32, []float32, []byte, []byte, []float32, []byte, []byte, float32, float32, bool) (int, uint32, bool) {
	return 1, 0, true
}

// absmaxVector misses no NaN.
func (coder) absmaxVector(src []float32) uint32 { return absmaxNEON(&src[0], len(src)) }

// quantiseVector never gets a NaN, since absmaxVector and addVector find it.
func (c coder) quantiseVector(codes []byte, src, _ []float32, inverse float32, _ bool) bool {
	if c.Bits == 4 {
		quantise4NEON(&codes[0], &src[0], len(src), inverse)
	} else {
		quantiseNEON(&codes[0], &src[0], len(src), inverse)
	}
	return true
}

func (c coder) dequantiseVector(dst []float32, codes []byte, scale float32, _ bool) {
	if c.Bits == 4 {
		dequantise4NEON(&dst[0], &codes[0], len(dst), scale)
	} else {
		dequantiseNEON(&dst[0], &codes[0], len(dst), scale)
	}
}

// addVector misses no NaN.
func (c coder) addVector(sums []float32, codes []byte, own []float32, scale, mul float32, _ bool) uint32 {
	if c.Bits == 4 {
		return add4NEON(&sums[0], &codes[0], &own[0], len(own), scale, mul)
	}
	return addNEON(&sums[0], &codes[0], &own[0], len(own), scale, mul)
}
