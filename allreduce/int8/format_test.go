package int8

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
)

// slow4 follows Format's contract for 4 bits in the plainest way; it returns
// the encoding and what it decodes to.
func slow4(src []float32, block int) (encoded []byte, decoded []float32) {
	var scales, codes []byte
	half := 0
	for lo := 0; lo < len(src); lo += block {
		part := src[lo:min(lo+block, len(src))]
		var absmax float32
		bad := false
		for _, x := range part {
			bad = bad || math.IsNaN(float64(x)) || math.IsInf(float64(x), 0)
			absmax = max(absmax, float32(math.Abs(float64(x))))
		}
		scale := absmax / 7
		for scale*7 > math.MaxFloat32 {
			scale = math.Nextafter32(scale, 0)
		}
		switch {
		case bad:
			scale = math.Float32frombits(0x7fc00000)
		case absmax < 0x1p-115:
			scale = 0
		}
		b := math.Float32bits(scale)
		scales = append(scales, byte(b), byte(b>>8), byte(b>>16), byte(b>>24))
		inverse := 7 / absmax
		for _, x := range part {
			code := 0.0
			if !bad && scale != 0 {
				code = math.RoundToEven(float64(x * inverse))
			}
			if code < -7 || code > 7 {
				panic(fmt.Sprintf("code %v", code))
			}
			if half%2 == 0 {
				codes = append(codes, byte(int8(code))&0xf)
			} else {
				codes[len(codes)-1] |= byte(int8(code)) << 4
			}
			half++
			y := float32(code) * scale
			if code == 0 {
				y = 0 * scale // an integer has no -0
			}
			if bad {
				y = math.Float32frombits(0x7fc00000)
			}
			decoded = append(decoded, y)
		}
	}
	return append(scales, codes...), decoded
}

func TestFourBitsEqualSlowOnes(t *testing.T) { onEveryRoute(t, testFourBitsEqualSlowOnes) }

func testFourBitsEqualSlowOnes(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		f := Format{Bits: 4, Block: drawBlock(t)}
		n := rapid.OneOf(rapid.IntRange(0, 200), rapid.IntRange(1000, 2100)).Draw(t, "n")
		src, add := vector(t, "src", n), vector(t, "add", n)
		mul := rapid.SampledFrom([]float32{1, 0.5, 1.0 / 3, 0.2}).Draw(t, "mul")

		encoded, residual := f.roomFor(n), make([]float32, n)
		want, values := slow4(src, f.Block)
		for _, r := range [][]float32{residual, nil} {
			clear(encoded)
			f.Quantise(encoded, src, r)
			if !bytes.Equal(encoded, want) {
				t.Fatalf("quantise, residual %v:\n got %x\nwant %x", r != nil, encoded, want)
			}
		}
		decoded := valuesFor(n)
		f.Dequantise(decoded, encoded)
		sums := make([]float32, n)
		for i, want := range values {
			if math.Float32bits(decoded[i]) != math.Float32bits(want) {
				t.Fatalf("dequantise[%d] = %v, want %v", i, decoded[i], want)
			}
			lost := src[i] - want
			if math.IsNaN(float64(want)) {
				lost = 0
			}
			if residual[i] != lost {
				t.Fatalf("residual[%d] = %v, want %v", i, residual[i], lost)
			}
			sums[i] = (want + add[i]) * mul
		}
		plain := valuesFor(n)
		f.DequantiseAdd(plain, encoded, add)
		for i, want := range values {
			want += add[i]
			if plain[i] != want && (!math.IsNaN(float64(plain[i])) || !math.IsNaN(float64(want))) {
				t.Fatalf("dequantise and add[%d] = %v, want %v", i, plain[i], want)
			}
		}
		stepped := f.roomFor(n)
		f.AddRequantise(stepped, encoded, add, mul, nil)
		want, _ = slow4(sums, f.Block)
		if !bytes.Equal(stepped, want) {
			t.Fatalf("add and requantise:\n got %x\nwant %x", stepped, want)
		}
		f.AddRequantise(encoded, encoded, add, mul, add)
		if !bytes.Equal(stepped, encoded) {
			t.Fatal("add and requantise differs in place, with a residual")
		}
	})
}

// TestResidualChangesNoByte: keeping the residual is a read, and it holds what
// the encoding lost, for both widths.
func TestResidualChangesNoByte(t *testing.T) { onEveryRoute(t, testResidualChangesNoByte) }

func testResidualChangesNoByte(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		f := Format{Bits: rapid.SampledFrom([]int{8, 4}).Draw(t, "bits"), Block: drawBlock(t)}
		n := rapid.IntRange(0, 1500).Draw(t, "n")
		src, add := vector(t, "src", n), vector(t, "add", n)
		plain, kept := make([]byte, f.EncodedLen(n)), make([]byte, f.EncodedLen(n))
		residual := make([]float32, n)
		f.Quantise(plain, src, nil)
		f.Quantise(kept, src, residual)
		if !bytes.Equal(plain, kept) {
			t.Fatal("quantise: other bytes with a residual")
		}
		f.AddRequantise(plain, plain, add, 0.25, nil)
		before := make([]float32, n)
		f.Dequantise(before, kept)
		f.AddRequantise(kept, kept, add, 0.25, residual)
		if !bytes.Equal(plain, kept) {
			t.Fatal("add and requantise: other bytes with a residual")
		}
		after := make([]float32, n)
		f.Dequantise(after, kept)
		for i, y := range after {
			var want float32
			if sum := (before[i] + add[i]) * 0.25; !math.IsNaN(float64(y)) {
				want = (sum - y) / 0.25
			}
			if residual[i] != want {
				t.Fatalf("residual[%d] = %v, want %v", i, residual[i], want)
			}
		}
	})
}

// TestWhereHalvesLie: the earlier code lies in the lower half.
func TestWhereHalvesLie(t *testing.T) { onEveryRoute(t, testWhereHalvesLie) }

func testWhereHalvesLie(t *testing.T) {
	for n := range 200 {
		src, want := make([]float32, n), make([]byte, (n+1)/2)
		for i := range src {
			src[i] = float32(i%15 - 7)
			want[i/2] |= byte(i%15-7) & 0xf << (4 * (i & 1))
		}
		if n > 14 {
			b := make([]byte, Format{Bits: 4, Block: 1024}.EncodedLen(n))
			Format{Bits: 4, Block: 1024}.Quantise(b, src, nil)
			if !bytes.Equal(b[4:], want) {
				t.Fatalf("%d values: %x, want %x", n, b[4:], want)
			}
		}
	}
}

func TestLargestStaysFiniteInFourBits(t *testing.T) {
	f := Format{Bits: 4, Block: MinBlock}
	for below := range uint32(1 << 12) {
		x := []float32{math.Float32frombits(infinity - 1 - below)}
		b, y := make([]byte, f.EncodedLen(1)), make([]float32, 1)
		f.Quantise(b, x, nil)
		f.Dequantise(y, b)
		if math.IsInf(float64(y[0]), 0) || y[0] < x[0]*0.999999 {
			t.Fatalf("%v comes back as %v", x[0], y[0])
		}
	}
}

// TestErrorFeedbackTelescopes: with the residual carried over, the sum of many
// encoded vectors stays within one residual of the true sum.
func TestErrorFeedbackTelescopes(t *testing.T) {
	const n, rounds = 4096, 50
	for _, bits := range []int{8, 4} {
		f := Format{Bits: bits, Block: 1024}
		r := rand.New(rand.NewPCG(7, 8))
		drift := func(feedback bool) float64 {
			residual := make([]float32, n)
			b, y := make([]byte, f.EncodedLen(n)), make([]float32, n)
			var x [n]float32
			sum := make([]float64, n)
			for range rounds {
				for i := range x {
					g := float32(r.NormFloat64()*0.1 + 0.01)
					sum[i] += float64(g)
					x[i] = g
					if feedback {
						x[i] += residual[i]
					}
				}
				f.Quantise(b, x[:], residual)
				f.Dequantise(y, b)
				for i := range y {
					sum[i] -= float64(y[i])
				}
			}
			var e float64
			for _, d := range sum {
				e += d * d
			}
			return math.Sqrt(e / n)
		}
		with, without := drift(true), drift(false)
		// Independent errors grow as √rounds ≈ 7; the residual is one round's.
		if with*3 > without {
			t.Errorf("%d bits: the sum is off by %.4g with error feedback, %.4g without", bits, with, without)
		}
	}
}

func TestFormatAllocatesNothing(t *testing.T) {
	src, residual := make([]float32, 5000), make([]float32, 5000)
	for _, f := range []Format{{8, 1024}, {4, 1024}} {
		b := make([]byte, f.EncodedLen(len(src)))
		if n := testing.AllocsPerRun(10, func() {
			f.Quantise(b, src, residual)
			f.AddRequantise(b, b, src, 0.25, residual)
			f.Dequantise(src, b)
		}); n != 0 {
			t.Errorf("%+v: %v allocations", f, n)
		}
	}
}

func FuzzDecodeFourBits(f *testing.F) {
	f.Add([]byte{0, 0, 0x80, 0x7f, 0x8f, 2, 3}, uint16(5))
	f.Add(bytes.Repeat([]byte{0x88}, 40), uint16(33))
	f.Fuzz(func(t *testing.T, b []byte, n uint16) {
		onEveryRoute(t, func(t *testing.T) { decodeFourBits(t, bytes.Clone(b), n) })
	})
}

func decodeFourBits(t *testing.T, b []byte, n uint16) {
	for _, block := range []int{16, 64} {
		format := Format{Bits: 4, Block: block}
		if format.EncodedLen(int(n)) > len(b) {
			t.Skip("the input is too short for its number of values")
		}
		out := make([]float32, n)
		format.Dequantise(out, b)
		for i, x := range out {
			scale := scaleAt(b[4*(i/block):])
			half := b[format.ScalesLen(int(n))+i/2] >> (4 * (i & 1)) & 0xf
			want := float32(int8(half<<4)>>4) * scale
			if math.Float32bits(scale)&signless >= infinity {
				want = math.Float32frombits(canonical)
			}
			if math.Float32bits(x) != math.Float32bits(want) {
				t.Fatalf("value %d is %v, want %v", i, x, want)
			}
		}
		sums := make([]float32, n)
		for i := range sums {
			sums[i] = (out[i] + out[i]) * 0.5
		}
		want, _ := slow4(sums, block)
		stepped := make([]byte, format.EncodedLen(int(n)))
		format.AddRequantise(stepped, b, out, 0.5, nil)
		if !bytes.Equal(stepped, want) {
			t.Fatalf("got %x, want %x", stepped, want)
		}
	}
}

func BenchmarkFormats(b *testing.B) {
	const n = 1 << 16
	src, residual := make([]float32, n), make([]float32, n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range src {
		src[i] = float32(r.NormFloat64())
	}
	dst := make([]float32, n)
	for _, f := range []Format{{8, DefaultBlock}, {4, DefaultBlock}} {
		in, out := make([]byte, f.EncodedLen(n)), make([]byte, f.EncodedLen(n))
		f.Quantise(in, src, nil)
		for _, k := range []struct {
			name string
			run  func()
		}{
			{"quantise", func() { f.Quantise(out, src, nil) }},
			{"quantise with residual", func() { f.Quantise(out, src, residual) }},
			{"dequantise", func() { f.Dequantise(dst, in) }},
			{"ring step", func() { f.AddRequantise(out, in, src, 1, nil) }},
			{"ring step with residual", func() { f.AddRequantise(out, in, src, 1, residual) }},
		} {
			b.Run(fmt.Sprintf("%dbit/%s", f.Bits, k.name), func(b *testing.B) {
				b.SetBytes(4 * n)
				for b.Loop() {
					k.run()
				}
			})
		}
	}
}
