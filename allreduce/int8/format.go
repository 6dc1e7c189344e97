package int8

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Format is how values are encoded: with codes of 8 bits, which is what the
// functions of this package do, or of 4.
//
// Codes of 4 bits are those of 8 with 7 in the place of 127, in scale and in
// inverse: they lie in -7 … 7. Two share a byte, the earlier one in its lower
// half, in two's complement; an odd last one has a zero beside it. Scales stay
// float32, one for each block, and lie in front.
type Format struct {
	Bits  int // of a code: 8 or 4
	Block int // values per scale, as CheckBlock has it
}

// Check reports whether the format is usable.
func (f Format) Check() error {
	if f.Bits != 8 && f.Bits != 4 {
		return fmt.Errorf("codes of %d bits; there are 8 and 4", f.Bits)
	}
	return CheckBlock(f.Block)
}

// EncodedLen returns the number of bytes that n values take.
func (f Format) EncodedLen(n int) int {
	return f.ScalesLen(n) + f.codesLen(n)
}

// ScalesLen returns how many bytes of the encoding of n values are scales,
// which come first.
func (f Format) ScalesLen(n int) int { return scaleBytes * blocks(n, f.Block) }

func (f Format) codesLen(n int) int { return (n*f.Bits + 7) / 8 }

// Quantise encodes src into dst[:EncodedLen(len(src))]. If residual is not
// nil, residual[i] becomes what src[i] lost, src[i] less its decoded form, and
// 0 where no number comes back: a caller that adds it to its next vector makes
// the errors of one round good in the next (Seide et al. 2014, "1-bit
// stochastic gradient descent", §3). Slices that are too short make it panic;
// residual may be src.
func (f Format) Quantise(dst []byte, src, residual []float32) {
	if f.Bits == 8 && residual == nil {
		Quantise(dst, src, f.Block)
		return
	}
	scales, codes := f.split(dst, len(src))
	for len(src) > 0 {
		n := min(f.Block, len(src))
		f.encode(scales, codes, src[:n], absmaxBits(src[:n]), head(residual, n), 1)
		scales, codes = scales[scaleBytes:], codes[f.codesLen(n):]
		src, residual = src[n:], tail(residual, n)
	}
}

// Dequantise decodes src[:EncodedLen(len(dst))] into dst. It panics when src
// is shorter. Any bytes are valid input.
func (f Format) Dequantise(dst []float32, src []byte) {
	if f.Bits == 8 {
		Dequantise(dst, src, f.Block)
		return
	}
	scales, codes := f.split(src, len(dst))
	var wide [MaxBlock]byte
	for len(dst) > 0 {
		n := min(f.Block, len(dst))
		dequantiseBlock(dst[:n], f.widen(&wide, codes, n), scaleAt(scales))
		scales, codes, dst = scales[scaleBytes:], codes[f.codesLen(n):], dst[n:]
	}
}

// AddRequantise is the function of that name, in this format. If residual is
// not nil, residual[i] becomes what value i lost when it was encoded, as in
// Quantise, divided by mul: with mul = 1/ranks it is a loss of the sum, not of
// the mean. residual has the length of add and may be add.
func (f Format) AddRequantise(dst, src []byte, add []float32, mul float32, residual []float32) {
	if f.Bits == 8 && residual == nil {
		AddRequantise(dst, src, add, f.Block, mul)
		return
	}
	inScales, inCodes := f.split(src, len(add))
	scales, codes := f.split(dst, len(add))
	var sums [MaxBlock]float32
	var wide [MaxBlock]byte
	for len(add) > 0 {
		n := min(f.Block, len(add))
		absmax := addBlock(sums[:n], f.widen(&wide, inCodes, n), add[:n], scaleAt(inScales), mul)
		f.encode(scales, codes, sums[:n], absmax, head(residual, n), mul)
		b := f.codesLen(n)
		inScales, inCodes, scales, codes = inScales[scaleBytes:], inCodes[b:], scales[scaleBytes:], codes[b:]
		add, residual = add[n:], tail(residual, n)
	}
}

// split cuts an encoding of n values into its scales and its codes.
func (f Format) split(b []byte, n int) (scales, codes []byte) {
	s := f.ScalesLen(n)
	return b[:s:s], b[s : s+f.codesLen(n)]
}

// head and tail cut a slice that may be nil.
func head(s []float32, n int) []float32 {
	if s == nil {
		return nil
	}
	return s[:n]
}

func tail(s []float32, n int) []float32 {
	if s == nil {
		return nil
	}
	return s[n:]
}

// encode writes one block: its scale to scale[:4], its codes to the front of
// codes, and what they lose, divided by mul, to residual if there is one.
// values that lead to a spoiled block need not be there.
func (f Format) encode(scale, codes []byte, values []float32, absmax uint32, residual []float32, mul float32) {
	n := len(values)
	codes = codes[:f.codesLen(n)]
	var wide [MaxBlock]byte
	narrow := f.Bits == 4
	to := codes
	if narrow {
		to = wide[:n]
	}
	inverse, ok := f.putScale(scale, absmax)
	// Nothing is fetched meanwhile: too much comes before the next block, and
	// what is on its way from memory keeps that waiting.
	if ok && !quantiseBlock(to, values, nil, inverse, false) {
		absmax = canonical
		_, ok = f.putScale(scale, absmax)
	}
	switch {
	case !ok:
		clear(codes)
	case narrow:
		pack(codes, to)
	}
	switch {
	case residual == nil:
	case absmax >= infinity:
		clear(residual) // a residual that is no number would spoil every round to come
	case !ok:
		lose(residual, values, wide[:n], 0, mul) // the block's codes are all 0, and so is wide
	default:
		lose(residual, values, to, scaleAt(scale), mul)
	}
}

// lose writes (value - float32(code)×scale) / mul.
func lose(residual, values []float32, codes []byte, scale, mul float32) {
	codes, residual = codes[:len(values)], residual[:len(values)]
	for i, x := range values {
		residual[i] = (x - float32(float32(int8(codes[i]))*scale)) / mul
	}
}

// maxScale4 are the bits of the largest scale with a finite 7 × scale.
const maxScale4 = 0x7e124924

// putScale is the function of that name for codes of f.Bits.
func (f Format) putScale(scale []byte, absmax uint32) (inverse float32, ok bool) {
	if f.Bits == 8 || absmax < minScaled || absmax >= infinity {
		return putScale(scale, absmax)
	}
	top := math.Float32frombits(absmax)
	binary.LittleEndian.PutUint32(scale, min(math.Float32bits(top/7), maxScale4))
	return 7 / top, true
}

// widen returns n codes with a byte each; those of 4 bits are written to wide.
func (f Format) widen(wide *[MaxBlock]byte, codes []byte, n int) []byte {
	if f.Bits == 8 {
		return codes[:n]
	}
	unpack(wide[:n], codes)
	return wide[:n]
}

// pack writes the lower halves of codes to dst, two to a byte. Eight at a time
// move together in a word.
func pack(dst, codes []byte) {
	le := binary.LittleEndian
	for len(codes) >= 16 {
		le.PutUint64(dst, uint64(squeeze(le.Uint64(codes)))|uint64(squeeze(le.Uint64(codes[8:])))<<32)
		dst, codes = dst[8:], codes[16:]
	}
	for i := 0; i < len(codes); i += 2 {
		b := codes[i] & 0xf
		if i+1 < len(codes) {
			b |= codes[i+1] << 4
		}
		dst[i/2] = b
	}
}

// squeeze brings the lower halves of eight bytes together.
func squeeze(x uint64) uint32 {
	x &= 0x0f0f0f0f0f0f0f0f
	x = (x | x>>4) & 0x00ff00ff00ff00ff
	x = (x | x>>8) & 0x0000ffff0000ffff
	return uint32(x | x>>16)
}

// unpack is the inverse of pack; each half is extended by its sign.
func unpack(codes, packed []byte) {
	le := binary.LittleEndian
	for len(codes) >= 16 {
		x := le.Uint64(packed)
		le.PutUint64(codes, spread(uint32(x)))
		le.PutUint64(codes[8:], spread(uint32(x>>32)))
		codes, packed = codes[16:], packed[8:]
	}
	for i := range codes {
		half := packed[i/2] >> (4 * (i & 1)) & 0xf
		codes[i] = byte(int8(half<<4) >> 4)
	}
}

// spread gives each of eight half bytes a byte of its own, with its sign.
func spread(half uint32) uint64 {
	x := uint64(half)
	x = (x | x<<16) & 0x0000ffff0000ffff
	x = (x | x<<8) & 0x00ff00ff00ff00ff
	x = (x | x<<4) & 0x0f0f0f0f0f0f0f0f
	const sign = 0x0808080808080808
	negative := x & sign
	// 0x08 becomes 0xf8: its own bit and the four above it.
	return x | negative<<1 | negative<<2 | negative<<3 | negative<<4
}
