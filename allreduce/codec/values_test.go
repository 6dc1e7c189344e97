package codec

import (
	"bytes"
	"encoding/json"
	"math"
	"testing"

	"pgregory.net/rapid"

	"testbed/allreduce"
	"testbed/allreduce/int8"
	"testbed/internal/rapidtest"
)

// value draws numbers that matter: ordinary ones, halves of the last place of a
// bfloat16, extremes, specials.
func value() *rapid.Generator[float32] {
	return rapid.OneOf(
		rapid.Float32Range(-4, 4),
		rapid.Custom(func(t *rapid.T) float32 {
			return math.Float32frombits(rapid.Uint32().Draw(t, "high")<<16 | rapid.SampledFrom([]uint32{0, 0x7fff, 0x8000, 0x8001}).Draw(t, "low"))
		}),
		rapid.Custom(func(t *rapid.T) float32 { return math.Float32frombits(rapid.Uint32().Draw(t, "bits")) }),
		rapid.SampledFrom([]float32{0, float32(math.Copysign(0, -1)), math.MaxFloat32, -math.MaxFloat32, 0x1p-149, float32(math.Inf(-1))}),
	)
}

// floats encodes floating-point numbers of so many bits.
func floats(bits int) *Codec { return &Codec{Format: allreduce.Format{Bits: bits, Block: 16}} }

// TestBfloat16 has the roundings that decide, and what is out of the ordinary.
func TestBfloat16(t *testing.T) {
	for bits, want := range map[uint32]uint16{
		0x3f800000: 0x3f80, 0x3f807fff: 0x3f80, 0x3f808000: 0x3f80, 0x3f808001: 0x3f81, 0x3f818000: 0x3f82, 0xbf818000: 0xbf82,
		0x80000000: 0x8000, 0x00000001: 0x0000, 0x00008001: 0x0001, // denormal
		0x7f7f7fff: 0x7f7f, 0x7f7f8000: 0x7f80, 0xff7fffff: 0xff80, // beyond the largest
		0x7f800000: 0x7f80, 0xff800000: 0xff80, 0x7f800001: 0x7fc0, 0xffc12345: 0x7fc0,
	} {
		if got := bfloat16(math.Float32frombits(bits)); got != want {
			t.Errorf("%#08x becomes %#04x, want %#04x", bits, got, want)
		}
	}
}

// TestFloatsEqualTheModel compares with allreduce's own model of the wire, in
// which two ranks' vectors pass through it twice.
func TestFloatsEqualTheModel(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		f := floats(rapid.SampledFrom([]int{16, 32}).Draw(t, "bits"))
		n := rapid.IntRange(0, 50).Draw(t, "n")
		a := rapid.SliceOfN(value(), 2*n, 2*n).Draw(t, "a")
		b := rapid.SliceOfN(value(), 2*n, 2*n).Draw(t, "b")
		want := allreduce.RingMean([][]float32{a, b}, f.Format)
		encoded, residual := make([]byte, f.EncodedLen(n)), make([]float32, n)
		for chunk, ranks := range [][2][]float32{{a[:n], b[:n]}, {b[n:], a[n:]}} { // chunk c starts at rank c
			f.Quantise(encoded, ranks[0], nil)
			kept := bytes.Clone(encoded)
			f.AddRequantise(encoded, encoded, ranks[1], 0.5, nil)
			got := make([]float32, n)
			f.Dequantise(got, encoded)
			for i, y := range got {
				if math.Float32bits(y) != math.Float32bits(want[chunk*n+i]) {
					t.Fatalf("value %d of chunk %d is %v, want %v", i, chunk, y, want[chunk*n+i])
				}
			}
			f.AddRequantise(kept, kept, ranks[1], 0.5, residual)
			if !bytes.Equal(kept, encoded) {
				t.Fatal("other bytes with a residual")
			}
		}
	})
}

// TestFloatsLose checks what the residual holds: exactly what is missing, and
// never what is no number.
func TestFloatsLose(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		f := floats(rapid.SampledFrom([]int{16, 32}).Draw(t, "bits"))
		src := rapid.SliceOfN(value(), 0, 50).Draw(t, "src")
		b, residual, back := make([]byte, f.EncodedLen(len(src))), make([]float32, len(src)), make([]float32, len(src))
		f.Quantise(b, src, residual)
		f.Dequantise(back, b)
		for i, lost := range residual {
			want := src[i] - back[i]
			if math.IsNaN(float64(want)) || math.IsInf(float64(want), 0) {
				want = 0
			}
			if lost != want || f.Bits == 32 && lost != 0 {
				t.Fatalf("%v came back as %v, lost %v", src[i], back[i], lost)
			}
		}
	})
}

// TestCodesAreThoseOfInt8: the formats of codes are package int8's.
func TestCodesAreThoseOfInt8(t *testing.T) {
	src := []float32{1, -2, 3, float32(math.Pi)}
	for _, bits := range []int{8, 4} {
		f := allreduce.Format{Bits: bits, Block: 16}
		got, want := make([]byte, f.EncodedLen(len(src))), make([]byte, f.EncodedLen(len(src)))
		(&Codec{Format: f}).Quantise(got, src, nil)
		int8.Format(f).Quantise(want, src, nil)
		if !bytes.Equal(got, want) {
			t.Errorf("%d bits: %x, want %x", bits, got, want)
		}
	}
}

// TestOutcomeAnnounced: what peers are told of an outcome, byte for byte.
func TestOutcomeAnnounced(t *testing.T) {
	o := &Outcome{Length: 100, Ranks: 2, Piece: 1024, Block: 512, Bits: 4}
	const want = `{"length":100,"ranks":2,"piece":1024,"block":512,"bits":4}`
	if got, err := json.Marshal(o); err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

func FuzzDequantise(f *testing.F) {
	f.Add([]byte{0, 0, 0x80, 0x7f, 1, 2, 3, 4}, true)
	f.Fuzz(func(t *testing.T, b []byte, wide bool) {
		format := floats(16)
		if wide {
			format = floats(32)
		}
		out := make([]float32, len(b)*8/format.Bits)
		format.Dequantise(out, b)
		again := make([]byte, format.EncodedLen(len(out)))
		format.Quantise(again, out, nil)
		for i, x := range out {
			size := format.Bits / 8
			if !math.IsNaN(float64(x)) && !bytes.Equal(again[i*size:][:size], b[i*size:][:size]) {
				t.Fatalf("%x encodes back to %x", b, again)
			}
		}
	})
}
