package codec

import (
	"encoding/binary"
	"math"

	"testbed/allreduce"
	"testbed/allreduce/int8"
)

// kernels encode and decode codes.
func (c *Codec) kernels() int8.Format { return int8.Format(c.Format) }

// Quantise encodes src into dst[:EncodedLen(len(src))]. residual is as in
// int8.Format.Quantise.
func (c *Codec) Quantise(dst []byte, src, residual []float32) {
	switch c.Bits {
	case 16:
		for i, x := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], bfloat16(x))
		}
	case 32:
		for i, x := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], float32Bits(x))
		}
	default:
		c.kernels().Quantise(dst, src, residual)
		return
	}
	if residual != nil {
		for i, x := range src {
			residual[i] = c.lost(dst, i, x)
		}
	}
}

// Lost returns the encoding error of each value.
func Lost(f allreduce.Format, values []float32) []float32 {
	lost := make([]float32, len(values))
	c := Codec{Format: f}
	c.Quantise(make([]byte, c.EncodedLen(len(values))), values, lost)
	return lost
}

// Dequantise decodes src[:EncodedLen(len(dst))] into dst. Any bytes are valid.
func (c *Codec) Dequantise(dst []float32, src []byte) {
	switch c.Bits {
	case 16:
		for i := range dst {
			dst[i] = at16(src, i)
		}
	case 32:
		for i := range dst {
			dst[i] = at32(src, i)
		}
	default:
		c.kernels().Dequantise(dst, src)
	}
}

// DequantiseAdd decodes src, adds the values of add, and writes the sums. sums
// may be add.
func (c *Codec) DequantiseAdd(sums []float32, src []byte, add []float32) {
	switch c.Bits {
	case 16:
		for i, x := range add {
			sums[i] = at16(src, i) + x
		}
	case 32:
		for i, x := range add {
			sums[i] = at32(src, i) + x
		}
	default:
		c.kernels().DequantiseAdd(sums, src, add)
	}
}

// AddRequantise is one step of the ring, as in int8.Format: dst may be src, and
// residual may be add.
func (c *Codec) AddRequantise(dst, src []byte, add []float32, mul float32, residual []float32) {
	switch {
	case c.Bits == 16 && residual == nil:
		for i, x := range add {
			binary.LittleEndian.PutUint16(dst[2*i:], bfloat16(float32(at16(src, i)+x)*mul))
		}
	case c.Bits == 32 && residual == nil:
		for i, x := range add {
			binary.LittleEndian.PutUint32(dst[4*i:], float32Bits(float32(at32(src, i)+x)*mul))
		}
	case c.Bits == 16:
		for i, x := range add {
			sum := float32(at16(src, i)+x) * mul
			binary.LittleEndian.PutUint16(dst[2*i:], bfloat16(sum))
			residual[i] = c.lost(dst, i, sum) / mul
		}
	case c.Bits == 32:
		c.AddRequantise(dst, src, add, mul, nil)
		clear(residual[:len(add)])
	default:
		c.kernels().AddRequantise(dst, src, add, mul, residual)
	}
}

// lost is the encoding error of value i, 0 if the decoded value is not a
// number.
func (c *Codec) lost(encoded []byte, i int, value float32) float32 {
	if c.Bits == 32 {
		return 0
	}
	back := at16(encoded, i)
	if math.IsNaN(float64(back)) || math.IsInf(float64(back), 0) {
		return 0
	}
	return value - back
}

// canonical has the bits of the NaN that stands for all.
const canonical = 0x7fc00000

func float32Bits(x float32) uint32 {
	if math.IsNaN(float64(x)) {
		return canonical
	}
	return math.Float32bits(x)
}

// bfloat16 rounds half to even. An infinity stays infinite: its lower half is
// 0.
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
