package int8

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
)

// slowQuantise follows the package's contract in the plainest way.
func slowQuantise(src []float32, block int) []byte {
	var scales, codes []byte
	for lo := 0; lo < len(src); lo += block {
		part := src[lo:min(lo+block, len(src))]
		var absmax float32
		bad := false
		for _, x := range part {
			bad = bad || math.IsNaN(float64(x)) || math.IsInf(float64(x), 0)
			absmax = max(absmax, float32(math.Abs(float64(x))))
		}
		scale := min(absmax/127, 0x1.020406p+121)
		switch {
		case bad:
			scale = math.Float32frombits(0x7fc00000)
		case absmax < 0x1p-115:
			scale = 0
		}
		scales = binary.LittleEndian.AppendUint32(scales, math.Float32bits(scale))
		inverse := 127 / absmax
		for _, x := range part {
			code := 0.0
			if !bad && scale != 0 {
				code = math.RoundToEven(float64(x * inverse))
			}
			if code < -127 || code > 127 {
				panic(fmt.Sprintf("code %v", code))
			}
			codes = append(codes, byte(int8(code)))
		}
	}
	return append(scales, codes...)
}

func slowDequantise(src []byte, n, block int) []float32 {
	dst := make([]float32, n)
	codes := src[4*((n+block-1)/block):]
	for i := range dst {
		scale := math.Float32frombits(binary.LittleEndian.Uint32(src[4*(i/block):]))
		if math.IsNaN(float64(scale)) || math.IsInf(float64(scale), 0) {
			dst[i] = math.Float32frombits(0x7fc00000)
			continue
		}
		dst[i] = float32(int8(codes[i])) * scale
	}
	return dst
}

func slowAddRequantise(src []byte, add []float32, block int, mul float32) []byte {
	sums := slowDequantise(src, len(add), block)
	for i := range sums {
		sums[i] += add[i]
		sums[i] *= mul
	}
	return slowQuantise(sums, block)
}

// onEveryRoute runs a test in each form that this machine has.
func onEveryRoute(t *testing.T, test func(*testing.T)) {
	defer func(was *form) { forced = was }(forced)
	for _, f := range forms() {
		forced = &f
		t.Run(f.String(), test)
	}
}

// eight has codes of 8 bits, of which most tests are.
func eight(block int) Format { return Format{Bits: 8, Block: block} }

func roomFor(n, block int) []byte { return eight(block).roomFor(n) }

// value draws numbers that matter: ordinary ones, ties, extremes, specials.
func value() *rapid.Generator[float32] {
	return rapid.OneOf(
		rapid.Float32Range(-4, 4),
		rapid.Custom(func(t *rapid.T) float32 { return float32(rapid.IntRange(-254, 254).Draw(t, "half")) / 2 }),
		rapid.Float32(),
		rapid.Custom(func(t *rapid.T) float32 { return math.Float32frombits(rapid.Uint32().Draw(t, "bits")) }),
		rapid.SampledFrom([]float32{
			0, float32(math.Copysign(0, -1)), 127, -127, 0x1p-115, 0x1.fffffep-116, -0x1p-149,
			math.MaxFloat32, -math.MaxFloat32,
		}),
	)
}

// vector draws numbers that matter throughout, or ordinary ones, or ordinary
// ones with few of the others and some zeros: then most blocks are ordinary.
func vector(t *rapid.T, label string, n int) []float32 {
	kind := rapid.IntRange(0, 2).Draw(t, label+" kind")
	if kind == 0 {
		return rapid.SliceOfN(value(), n, n).Draw(t, label)
	}
	v := rapid.SliceOfN(rapid.Float32Range(-4, 4), n, n).Draw(t, label)
	if kind == 2 && n > 0 {
		for range rapid.IntRange(1, 6).Draw(t, label+" others") {
			at := rapid.IntRange(0, n-1).Draw(t, label+" place")
			if rapid.Bool().Draw(t, label+" zeros") {
				clear(v[at:min(n, at+200)])
			}
			v[at] = value().Draw(t, label+" other")
		}
	}
	return v
}

func drawBlock(t *rapid.T) int {
	return rapid.SampledFrom([]int{16, 48, 64, 128, 1024}).Draw(t, "block")
}

func TestKernelsEqualSlowOnes(t *testing.T) { onEveryRoute(t, testKernelsEqualSlowOnes) }

func testKernelsEqualSlowOnes(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		block := drawBlock(t)
		n := rapid.OneOf(rapid.IntRange(0, 200), rapid.IntRange(1000, 2100)).Draw(t, "n")
		src, add := vector(t, "src", n), vector(t, "add", n)
		mul := rapid.SampledFrom([]float32{1, 0.5, 1.0 / 3, 0.2}).Draw(t, "mul")

		encoded := roomFor(n, block)
		eight(block).Quantise(encoded, src, nil)
		if want := slowQuantise(src, block); !bytes.Equal(encoded, want) {
			t.Fatalf("quantise:\n got %x\nwant %x", encoded, want)
		}
		decoded := valuesFor(n)
		eight(block).Dequantise(decoded, encoded)
		for i, want := range slowDequantise(encoded, n, block) {
			if math.Float32bits(decoded[i]) != math.Float32bits(want) {
				t.Fatalf("dequantise[%d] = %v, want %v", i, decoded[i], want)
			}
		}
		sums, inPlace := valuesFor(n), slices.Clone(add)
		eight(block).DequantiseAdd(sums, encoded, add)
		eight(block).DequantiseAdd(inPlace, encoded, inPlace)
		for i, want := range decoded {
			want += add[i]
			if sums[i] != want && (!math.IsNaN(float64(sums[i])) || !math.IsNaN(float64(want))) {
				t.Fatalf("dequantise and add[%d] = %v, want %v", i, sums[i], want)
			}
			if math.Float32bits(sums[i]) != math.Float32bits(inPlace[i]) {
				t.Fatalf("dequantise and add[%d] = %v in place, else %v", i, inPlace[i], sums[i])
			}
		}
		stepped := roomFor(n, block)
		eight(block).AddRequantise(stepped, encoded, add, mul, nil)
		if want := slowAddRequantise(encoded, add, block, mul); !bytes.Equal(stepped, want) {
			t.Fatalf("add and requantise:\n got %x\nwant %x", stepped, want)
		}
		eight(block).AddRequantise(encoded, encoded, add, mul, nil)
		if !bytes.Equal(stepped, encoded) {
			t.Fatal("add and requantise differs in place")
		}
	})
}

func TestRowsOfSpecialBlocks(t *testing.T) {
	t.Parallel()
	onEveryRoute(t, testRowsOfSpecialBlocks)
}

// Where few blocks are ordinary, the others come in every order: what is
// special about one may not touch its neighbours, nor be missed.
func testRowsOfSpecialBlocks(t *testing.T) {
	const block = 64
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	kinds := map[string][]float32{
		"ordinary": {1, -0.5, 3}, "zeros": {0}, "tiny": {0x1p-120, 0}, "NaN": {nan},
		"NaN among ordinary ones": {nan, 1, -2, 3, 1}, "NaN among zeros": {0, 0, 0, 0, nan}, "NaN among tiny ones": {0x1p-120, nan},
		"infinite": {1, inf}, "largest": {math.MaxFloat32, 1},
	}
	names := slices.Sorted(maps.Keys(kinds))
	rapidtest.Check(t, func(t *rapid.T) {
		row := rapid.SliceOfN(rapid.OneOf(rapid.Just("ordinary"), rapid.SampledFrom(names)), 1, 20)
		draw := func(blocks []string, n int) []float32 {
			v := make([]float32, n)
			for b, name := range blocks {
				values := kinds[name]
				shift := rapid.IntRange(0, block).Draw(t, name)
				for i := b * block; i < min((b+1)*block, n); i++ {
					v[i] = values[(i+shift)%len(values)]
				}
			}
			return v
		}
		blocks := row.Draw(t, "blocks")
		n := len(blocks)*block - rapid.IntRange(0, block-1).Draw(t, "missing")
		src, add := draw(rapid.Permutation(blocks).Draw(t, "others"), n), draw(blocks, n)
		mul := rapid.SampledFrom([]float32{1, 0.5}).Draw(t, "mul")
		if rapid.Bool().Draw(t, "four bits") {
			f := Format{Bits: 4, Block: block}
			encoded := f.roomFor(n)
			f.Quantise(encoded, src, nil)
			want, sums := slow4(src, block)
			if !bytes.Equal(encoded, want) {
				t.Fatalf("quantise:\n got %x\nwant %x", encoded, want)
			}
			for i, x := range add {
				sums[i] = (sums[i] + x) * mul
			}
			want, _ = slow4(sums, block)
			f.AddRequantise(encoded, encoded, add, mul, nil)
			if !bytes.Equal(encoded, want) {
				t.Fatalf("add and requantise:\n got %x\nwant %x", encoded, want)
			}
			return
		}
		encoded := roomFor(n, block)
		eight(block).Quantise(encoded, src, nil)
		if want := slowQuantise(src, block); !bytes.Equal(encoded, want) {
			t.Fatalf("quantise:\n got %x\nwant %x", encoded, want)
		}
		for b := range blocks {
			if rapid.IntRange(0, 9).Draw(t, "scale") == 0 {
				bits := rapid.SampledFrom([]uint32{0x7f800000, 0xff800000, 0xffc00001}).Draw(t, "bits")
				binary.LittleEndian.PutUint32(encoded[4*b:], bits)
			}
		}
		want := slowAddRequantise(encoded, add, block, mul)
		eight(block).AddRequantise(encoded, encoded, add, mul, nil)
		if !bytes.Equal(encoded, want) {
			t.Fatalf("add and requantise:\n got %x\nwant %x", encoded, want)
		}
	})
}

func TestErrorIsHalfAStepAtMost(t *testing.T) { onEveryRoute(t, testErrorIsHalfAStepAtMost) }

func testErrorIsHalfAStepAtMost(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		src := rapid.SliceOfN(rapid.Float32Range(-1e30, 1e30), 1, 300).Draw(t, "src")
		encoded := make([]byte, eight(64).EncodedLen(len(src)))
		eight(64).Quantise(encoded, src, nil)
		decoded := make([]float32, len(src))
		eight(64).Dequantise(decoded, encoded)
		for lo := 0; lo < len(src); lo += 64 {
			hi := min(lo+64, len(src))
			absmax := float64(math.Float32frombits(eight(64).coder(encode, 0).absmaxBits(src[lo:hi])))
			for i := lo; i < hi; i++ {
				// The margin covers the roundings of scale and inverse.
				limit := absmax/127*0.50002 + 0x1p-115
				if e := math.Abs(float64(decoded[i]) - float64(src[i])); e > limit {
					t.Fatalf("value %v came back as %v, absmax %v", src[i], decoded[i], absmax)
				}
			}
		}
	})
}

func TestEdges(t *testing.T) { onEveryRoute(t, testEdges) }

func testEdges(t *testing.T) {
	nan := float32(math.NaN())
	inf := float32(math.Inf(1))
	for name, test := range map[string]struct {
		src   []float32
		scale uint32
		codes []int8
	}{
		"nothing":             {[]float32{}, 0, nil},
		"zeros":               {[]float32{0, float32(math.Copysign(0, -1))}, 0, []int8{0, 0}},
		"below the threshold": {[]float32{0x1.fffffep-116, -0x1p-149}, 0, []int8{0, 0}},
		"at the threshold":    {[]float32{0x1p-115, 0}, math.Float32bits(float32(0x1p-115) / 127), []int8{127, 0}},
		"ties go to even":     {[]float32{127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5}, math.Float32bits(1), []int8{127, 0, 2, 2, 0, -2, -2}},
		"denormal among ones": {[]float32{-1, 0x1p-149}, math.Float32bits(float32(1) / 127), []int8{-127, 0}},
		"not a number":        {[]float32{1, nan, 2}, 0x7fc00000, []int8{0, 0, 0}},
		"signalling":          {[]float32{1, math.Float32frombits(0xff800001)}, 0x7fc00000, []int8{0, 0}},
		"infinite":            {[]float32{1, -inf}, 0x7fc00000, []int8{0, 0}},
		"largest":             {[]float32{math.MaxFloat32, -math.MaxFloat32}, 0x7c010203, []int8{127, -127}},
	} {
		t.Run(name, func(t *testing.T) {
			var want []byte
			if len(test.src) > 0 {
				want = binary.LittleEndian.AppendUint32(nil, test.scale)
			}
			for _, c := range test.codes {
				want = append(want, byte(c))
			}
			got := make([]byte, eight(DefaultBlock).EncodedLen(len(test.src)))
			eight(DefaultBlock).Quantise(got, test.src, nil)
			if !bytes.Equal(got, want) {
				t.Errorf("got %x, want %x", got, want)
			}
		})
	}
}

func TestLargestStaysFinite(t *testing.T) { onEveryRoute(t, testLargestStaysFinite) }

func testLargestStaysFinite(t *testing.T) {
	for below := range uint32(1 << 12) {
		x := []float32{math.Float32frombits(infinity - 1 - below)}
		b, y := make([]byte, eight(MinBlock).EncodedLen(1)), make([]float32, 1)
		eight(MinBlock).Quantise(b, x, nil)
		eight(MinBlock).Dequantise(y, b)
		if math.IsInf(float64(y[0]), 0) || y[0] < x[0]*0.999999 {
			t.Fatalf("%v comes back as %v", x[0], y[0])
		}
	}
}

func TestBadBlockSpoilsOnlyItself(t *testing.T) { onEveryRoute(t, testBadBlockSpoilsOnlyItself) }

func testBadBlockSpoilsOnlyItself(t *testing.T) {
	const block = 16
	src := make([]float32, 3*block)
	for i := range src {
		src[i] = 1
	}
	src[block] = float32(math.Inf(-1))
	encoded := make([]byte, eight(block).EncodedLen(len(src)))
	eight(block).Quantise(encoded, src, nil)
	add := make([]float32, len(src))
	eight(block).AddRequantise(encoded, encoded, add, 1, nil)
	out := make([]float32, len(src))
	eight(block).Dequantise(out, encoded)
	for i, x := range out {
		if i/block == 1 {
			if math.Float32bits(x) != 0x7fc00000 {
				t.Errorf("value %d of the bad block is %v (%#x)", i, x, math.Float32bits(x))
			}
		} else if x != 1 {
			t.Errorf("value %d of a good block is %v", i, x)
		}
	}
}

func TestOverflowSpoilsTheBlock(t *testing.T) { onEveryRoute(t, testOverflowSpoilsTheBlock) }

func testOverflowSpoilsTheBlock(t *testing.T) {
	src := []float32{math.MaxFloat32, 1}
	encoded := make([]byte, eight(16).EncodedLen(2))
	eight(16).Quantise(encoded, src, nil)
	eight(16).AddRequantise(encoded, encoded, src, 0.5, nil)
	if scale := binary.LittleEndian.Uint32(encoded); scale != 0x7fc00000 {
		t.Errorf("scale %#x after an overflow", scale)
	}
}

func TestGaussianError(t *testing.T) { onEveryRoute(t, testGaussianError) }

func testGaussianError(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	src := make([]float32, 1<<18)
	for i := range src {
		src[i] = float32(r.NormFloat64())
	}
	encoded := make([]byte, eight(DefaultBlock).EncodedLen(len(src)))
	eight(DefaultBlock).Quantise(encoded, src, nil)
	out := make([]float32, len(src))
	eight(DefaultBlock).Dequantise(out, encoded)
	var e, s float64
	for i := range src {
		d := float64(out[i]) - float64(src[i])
		e, s = e+d*d, s+float64(src[i])*float64(src[i])
	}
	if rel := math.Sqrt(e / s); rel < 0.0075 || rel > 0.0083 {
		t.Errorf("relative L2 error %.4f, expected about 0.0079", rel)
	}
}

func TestNothingAllocates(t *testing.T) { onEveryRoute(t, testNothingAllocates) }

func testNothingAllocates(t *testing.T) {
	src := make([]float32, 5000)
	b := make([]byte, eight(DefaultBlock).EncodedLen(len(src)))
	if n := testing.AllocsPerRun(10, func() {
		eight(DefaultBlock).Quantise(b, src, nil)
		eight(DefaultBlock).AddRequantise(b, b, src, 0.25, nil)
		eight(DefaultBlock).Dequantise(src, b)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte{0, 0, 0x80, 0x7f, 1, 2, 3}, uint16(3))
	f.Add(bytes.Repeat([]byte{0xff}, 70), uint16(60))
	f.Fuzz(func(t *testing.T, b []byte, n uint16) {
		onEveryRoute(t, func(t *testing.T) { decodeEqualsSlow(t, b, n) })
	})
}

func decodeEqualsSlow(t *testing.T, b []byte, n uint16) {
	const block = 16
	if eight(block).EncodedLen(int(n)) > len(b) {
		t.Skip("the input is too short for its number of values")
	}
	b = b[:eight(block).EncodedLen(int(n))]
	got := make([]float32, n)
	eight(block).Dequantise(got, b)
	for i, want := range slowDequantise(b, int(n), block) {
		if math.Float32bits(got[i]) != math.Float32bits(want) {
			t.Fatalf("value %d is %v, want %v", i, got[i], want)
		}
	}
	stepped := make([]byte, len(b))
	eight(block).AddRequantise(stepped, b, got, 0.5, nil)
	if want := slowAddRequantise(b, got, block, 0.5); !bytes.Equal(stepped, want) {
		t.Fatalf("got %x, want %x", stepped, want)
	}
}

// The benchmarks report GB/s of float32 input; memcpy runs beside them as the
// machine's own yardstick.
func BenchmarkKernels(b *testing.B) {
	for _, n := range []int{1 << 10, 1 << 16, 1 << 26} {
		src := make([]float32, n)
		r := rand.New(rand.NewPCG(1, 2))
		for i := range src {
			src[i] = float32(r.NormFloat64())
		}
		dst := make([]float32, n)
		in, out := make([]byte, eight(DefaultBlock).EncodedLen(n)), make([]byte, eight(DefaultBlock).EncodedLen(n))
		eight(DefaultBlock).Quantise(in, src, nil)
		plain := bytes.Repeat([]byte{1}, 4*n)
		for _, k := range []struct {
			name string
			run  func()
		}{
			{"memcpy", func() { copy(dst, src) }},
			{"read", func() { // up to a byte that is not there
				if bytes.IndexByte(plain, 0) >= 0 {
					b.Error("found")
				}
			}},
			{"quantise", func() { eight(DefaultBlock).Quantise(out, src, nil) }},
			{"dequantise", func() { eight(DefaultBlock).Dequantise(dst, in) }},
			{"ring step", func() { eight(DefaultBlock).AddRequantise(out, in, src, 1, nil) }},
		} {
			b.Run(fmt.Sprintf("%s/%dKiB", k.name, n>>8), func(b *testing.B) {
				b.SetBytes(int64(4 * n))
				for b.Loop() {
					k.run()
				}
			})
		}
	}
}

func TestUse(t *testing.T) {
	defer func(was *form) { forced = was }(forced)
	all := Routes()
	if all[0] != "go" || all[len(all)-1] != Auto || forced != nil {
		t.Errorf("routes %v, forced %v", all, forced)
	}
	for _, name := range all {
		if err := Use(name); err != nil {
			t.Error(err)
		}
		for o := range operations {
			for _, n := range []int{1, 1 << 30} {
				f := eight(DefaultBlock)
				want := f.chosen(operation(o), n).form
				if name != Auto {
					want = forms()[slices.Index(all, name)]
					if Rule() != name {
						t.Errorf("the rule is %s, not %s", Rule(), name)
					}
				}
				want.stream = want.streams(operation(o))
				if got := f.coder(operation(o), n).form; got != want {
					t.Errorf("%s with %d values takes %v for %s, not %v", name, n, got, operations[o], want)
				}
			}
		}
	}
	if err := Use("sse"); err == nil || forced != nil {
		t.Errorf("an unknown route: %v, forced %v", err, forced)
	}
}
