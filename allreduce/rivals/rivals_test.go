package rivals

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
)

const block = 64

// through returns what src decodes to.
func (c *Codec) through(src []float32) []float32 {
	b, out := make([]byte, c.EncodedLen(len(src), block)), make([]float32, len(src))
	c.Quantise(b, src, block)
	c.DequantiseAdd(out, b, nil, block)
	return out
}

// TestErrorsStayWithinTheStep: each value comes back within what the rival's
// description allows, whatever the chunk is.
func TestErrorsStayWithinTheStep(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		src := rapid.OneOf(
			rapid.SliceOfN(rapid.Float32Range(-1000, 1000), 0, 300),
			rapid.SliceOfN(rapid.SampledFrom([]float32{0, 1, -1, 1e-30, 1e30, -1e30, 1e-40}), 0, 300),
		).Draw(t, "src")
		var least, largest, absmax, sum, squares float64
		for i, x := range src {
			y := float64(x)
			if i == 0 {
				least, largest = y, y
			}
			least, largest, absmax = min(least, y), max(largest, y), max(absmax, math.Abs(y))
			sum, squares = sum+y, squares+y*y
		}
		for _, c := range All {
			out := c.through(src)
			for i, x := range src {
				y := float64(out[i])
				off := math.Abs(y - float64(x))
				limit := absmax // prime: a bin's mean is not outside of it
				switch c.Name {
				case "prime":
					if y*float64(x) < 0 && off > absmax {
						t.Fatalf("prime: %v came back as %v", x, y)
					}
					limit = 2 * absmax
				case "pccl_minmax":
					limit = (largest - least) / 255
				case "pccl_zeropoint": // what is beyond 6σ is cut off
					n := float64(len(src))
					limit = max(12*math.Sqrt(max(squares/n-sum/n*sum/n, 0))/255, math.Abs(float64(x))+math.Abs(sum/n))
				case "torchft_fp8": // half of the last of four binary places, or of the least step
					limit = max(math.Abs(float64(x))/16, absmax/448/512)
				}
				if off > limit*1.001+absmax*0x1p-23+1e-33 { // results are float32
					t.Fatalf("%s: value %d, %v, came back as %v", c.Name, i, x, y)
				}
			}
		}
	})
}

// TestAdding: the sum is what decoding and adding give, in place as well.
func TestAdding(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		src := rapid.SliceOfN(rapid.Float32Range(-10, 10), 0, 200).Draw(t, "src")
		add := rapid.SliceOfN(rapid.Float32Range(-10, 10), len(src), len(src)).Draw(t, "add")
		for _, c := range All {
			decoded := c.through(src)
			b := make([]byte, c.EncodedLen(len(src), block))
			c.Quantise(b, src, block)
			sums := append([]float32{}, add...)
			c.DequantiseAdd(sums, b, sums, block)
			for i := range sums {
				if want := decoded[i] + add[i]; math.Abs(float64(sums[i]-want)) > 1e-5 {
					t.Fatalf("%s: sum %d is %v, want %v", c.Name, i, sums[i], want)
				}
			}
		}
	})
}

// TestFP8 compares the rounding with the nearest of all codes.
func TestFP8(t *testing.T) {
	nearest := func(x float32) (best byte) {
		if math.Signbit(float64(x)) {
			best = 0x80
		}
		for code := range 256 {
			y := float64(fp8Values[code])
			if code&0x7f == 0x7f || code>>7 != int(best>>7) {
				continue
			}
			d, e := math.Abs(y-float64(x)), math.Abs(float64(fp8Values[best])-float64(x))
			if d < e || d == e && code&1 == 0 {
				best = byte(code)
			}
		}
		return best
	}
	if fp8Values[0x7e] != 448 || fp8Values[1] != 0x1p-9 || fp8Values[0x38] != 1 || fp8Values[0xb8] != -1 {
		t.Fatal(fp8Values)
	}
	rapidtest.Check(t, func(t *rapid.T) {
		x := rapid.OneOf(rapid.Float32Range(-448, 448), rapid.Float32Range(-0.04, 0.04), rapid.Custom(func(t *rapid.T) float32 {
			code := rapid.IntRange(0, 0x7d).Draw(t, "code") // halfway to the next
			return (fp8Values[code] + fp8Values[code+1]) / 2
		})).Draw(t, "x")
		if got, want := toFP8(x), nearest(x); got != want {
			t.Fatalf("%v becomes %#x, %v; want %#x, %v", x, got, fp8Values[got], want, fp8Values[want])
		}
	})
}

func TestNothingAllocates(t *testing.T) {
	src := make([]float32, 5000)
	for _, c := range All {
		b := make([]byte, c.EncodedLen(len(src), block))
		if n := testing.AllocsPerRun(10, func() {
			c.Quantise(b, src, block)
			c.DequantiseAdd(src, b, src, block)
		}); n != 0 {
			t.Errorf("%s: %v allocations", c.Name, n)
		}
	}
}
