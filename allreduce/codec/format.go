package codec

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"testbed/allreduce"
	"testbed/allreduce/int8"
)

// Format is how values go over the wire: with 8 or 4 bits as codes of package
// int8, with 16 as bfloat16, and with 32 as they are.
//
// Floating-point numbers lie one after the other, little-endian, without scales.
// A bfloat16 is rounded to the nearest, half to even, so that what is beyond the
// largest becomes infinite. An infinity stays one, and any NaN becomes the
// canonical one, 0x7fc00000 or 0x7fc0: unlike a block of codes, values spoil
// nothing but themselves. Sums are of float32, as with codes.
type Format struct {
	Bits  int // of a value, one of allreduce.Bits
	Block int // values per scale, as int8.CheckBlock has it; pieces are whole blocks
}

// Check reports whether the format is usable.
func (f Format) Check() error {
	if !slices.Contains(allreduce.Bits, f.Bits) {
		return fmt.Errorf("values of %d bits; there are %v", f.Bits, allreduce.Bits)
	}
	return int8.CheckBlock(f.Block)
}

func (f Format) codes() int8.Format { return int8.Format(f) }

// EncodedLen returns the number of bytes that n values take.
func (f Format) EncodedLen(n int) int {
	if allreduce.HasCodes(f.Bits) {
		return f.codes().EncodedLen(n)
	}
	return n * f.Bits / 8
}

// Quantise encodes src into dst[:EncodedLen(len(src))]. residual is as in
// int8.Format.Quantise.
func (f Format) Quantise(dst []byte, src, residual []float32) {
	switch f.Bits {
	case 16:
		for i, x := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], bfloat16(x))
		}
	case 32:
		for i, x := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], float32Bits(x))
		}
	default:
		f.codes().Quantise(dst, src, residual)
		return
	}
	if residual != nil {
		for i, x := range src {
			residual[i] = f.lost(dst, i, x)
		}
	}
}

// Lost returns what each of the values loses when they are encoded.
func (f Format) Lost(values []float32) []float32 {
	lost := make([]float32, len(values))
	f.Quantise(make([]byte, f.EncodedLen(len(values))), values, lost)
	return lost
}

// Dequantise decodes src[:EncodedLen(len(dst))] into dst. Any bytes are valid.
func (f Format) Dequantise(dst []float32, src []byte) {
	switch f.Bits {
	case 16:
		for i := range dst {
			dst[i] = at16(src, i)
		}
	case 32:
		for i := range dst {
			dst[i] = at32(src, i)
		}
	default:
		f.codes().Dequantise(dst, src)
	}
}

// DequantiseAdd decodes src, adds the values of add, and writes the sums, to add
// if that is sums.
func (f Format) DequantiseAdd(sums []float32, src []byte, add []float32) {
	switch f.Bits {
	case 16:
		for i, x := range add {
			sums[i] = at16(src, i) + x
		}
	case 32:
		for i, x := range add {
			sums[i] = at32(src, i) + x
		}
	default:
		f.codes().DequantiseAdd(sums, src, add)
	}
}

// AddRequantise is one step of the ring, as int8.Format has it: dst may be src,
// and residual may be add.
func (f Format) AddRequantise(dst, src []byte, add []float32, mul float32, residual []float32) {
	switch {
	case f.Bits == 16 && residual == nil:
		for i, x := range add {
			binary.LittleEndian.PutUint16(dst[2*i:], bfloat16(float32(at16(src, i)+x)*mul))
		}
	case f.Bits == 32 && residual == nil:
		for i, x := range add {
			binary.LittleEndian.PutUint32(dst[4*i:], float32Bits(float32(at32(src, i)+x)*mul))
		}
	case f.Bits == 16:
		for i, x := range add {
			sum := float32(at16(src, i)+x) * mul
			binary.LittleEndian.PutUint16(dst[2*i:], bfloat16(sum))
			residual[i] = f.lost(dst, i, sum) / mul
		}
	case f.Bits == 32:
		f.AddRequantise(dst, src, add, mul, nil)
		clear(residual[:len(add)])
	default:
		f.codes().AddRequantise(dst, src, add, mul, residual)
	}
}

// lost is what value i lost when it was encoded, 0 where no number comes back.
func (f Format) lost(encoded []byte, i int, value float32) float32 {
	if f.Bits == 32 {
		return 0
	}
	back := at16(encoded, i)
	if math.IsNaN(float64(back)) || math.IsInf(float64(back), 0) {
		return 0
	}
	return value - back
}

// canonical are the bits of the NaN that stands for all.
const canonical = 0x7fc00000

func float32Bits(x float32) uint32 {
	if math.IsNaN(float64(x)) {
		return canonical
	}
	return math.Float32bits(x)
}

// bfloat16 rounds half to even. An infinity stays one: its lower half is 0.
func bfloat16(x float32) uint16 {
	b := float32Bits(x)
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

func at16(b []byte, i int) float32 {
	return math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*i:])) << 16)
}

func at32(b []byte, i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
}
