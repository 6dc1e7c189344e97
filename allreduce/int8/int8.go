// Package int8 holds the quantisation kernels: float32 values to int8 codes
// with one float32 scale per block of values, and back. Nothing here allocates,
// except the single measurement of each kind of call (see MeasureBy).
//
// # Encoding
//
// n values in blocks of b are encoded as ⌈n/b⌉ scales (float32, little-endian)
// followed by n codes (int8, one byte each). Scales and codes are separate, so
// that a vector unit reads and writes both in full registers; only the last
// block may be shorter. The caller passes b everywhere: it is a multiple of
// MinBlock and at most MaxBlock.
//
// # Arithmetic
//
// Every route through this package, on every architecture, yields the same
// bytes. These rules are the contract:
//
//   - absmax is the largest bit pattern of the block's values with the sign
//     removed, compared as integers: the order of comparison does not matter.
//   - scale = absmax/127, code = round-half-even(value × (127/absmax)), each
//     operation rounded to float32. Codes are in -127 … 127. A scale above
//     0x7c010203 (bits) is lowered to it: the largest finite number would
//     otherwise come back as infinite.
//   - A block whose absmax is below 2^-115 has scale 0 and codes 0, so that no
//     denormal number takes part in any arithmetic that decides a code.
//   - A block with a NaN or an infinity, given or reached by overflow of a
//     sum, has the scale 0x7fc00000 (the canonical NaN) and codes 0. One bad
//     value thus spoils its block on every rank alike, and is never hidden.
//   - A dequantised value is float32(code)×scale; any block whose scale is no
//     finite number reads as canonical NaN throughout.
//   - Products are converted to float32 before they are added to, which
//     forbids the compiler to fuse the two.
package int8

import (
	"encoding/binary"
	"math"

	"testbed/allreduce"
)

// Bounds of a block, as allreduce has them.
const (
	DefaultBlock = allreduce.DefaultBlock
	MinBlock     = allreduce.MinBlock
	MaxBlock     = allreduce.MaxBlock
)

const (
	signless   = 0x7fffffff // mask of a float32 without its sign
	infinity   = 0x7f800000 // bits of +Inf; larger ones are NaN
	canonical  = 0x7fc00000 // bits of the NaN that marks a spoiled block
	minScaled  = 0x06000000 // bits of 2^-115, the smallest absmax with a scale
	maxScale   = 0x7c010203 // bits of the largest scale with a finite 127 × scale
	scaleBytes = 4
)

func blocks(n, block int) int { return (n + block - 1) / block }

func (c coder) quantise(dst []byte, src []float32) {
	scales, codes := c.split(dst, len(src))
	stream := c.streamsCodes(codes)
	for len(src) > 0 {
		n := min(c.Block, len(src))
		size := c.codesLen(n)
		if inverse, ok := c.putScale(scales, c.absmaxBits(src[:n])); ok {
			c.encodeBlock(scales, codes[:size], src[:n], src[n:], inverse, stream)
		} else {
			clear(codes[:size])
		}
		scales, codes, src = scales[scaleBytes:], codes[size:], src[n:]
	}
	if stream {
		endStream()
	}
}

func (c coder) fused(dst, src []byte, add []float32, mul float32) {
	// Go clears its variables, which takes time: no more than needed.
	if c.Block <= DefaultBlock {
		var room [2*DefaultBlock + lineValues]float32
		c.addRequantise(dst, src, add, mul, onLine(room[:]))
	} else {
		var room [2*MaxBlock + lineValues]float32
		c.addRequantise(dst, src, add, mul, onLine(room[:]))
	}
}

// addRequantise has room for the sums of two blocks. While one is added up, the
// codes of the one before it are written.
func (c coder) addRequantise(dst, src []byte, add []float32, mul float32, room []float32) {
	inScales, inCodes := c.split(src, len(add))
	scales, codes := c.split(dst, len(add))
	block, size := c.Block, c.codesLen(c.Block)
	stream := c.streamsCodes(codes)
	sums, lateSums := room[:len(room)/2], room[len(room)/2:]
	var inverse float32
	late := false // whether lateSums are those of block b-1, and its codes to be written
	encode := func(b int) {
		lo, hi := b*block, min((b+1)*block, len(add))
		c.encodeBlock(scales[scaleBytes*b:], codes[b*size:][:c.codesLen(hi-lo)], lateSums[:hi-lo], add[hi:], inverse, stream)
	}
	n := blocks(len(add), block)
	for b := 0; b < n; b++ {
		lo, hi := b*block, min((b+1)*block, len(add))
		var absmax uint32
		if late && hi-lo == block && c.together() {
			done, top, ok := c.addQuantiseVector(sums, lateSums, inScales[scaleBytes*b:], inCodes[b*size:], add[lo:],
				scales[scaleBytes*b:], codes[(b-1)*size:], inverse, mul, stream)
			absmax, b = top, b+done-1
			lo, hi = b*block, (b+1)*block
			if done%2 == 0 {
				sums, lateSums = lateSums, sums
			}
			if !ok {
				spoil(scales[scaleBytes*(b-1):], codes[(b-1)*size:b*size], stream)
			}
		} else {
			if late {
				encode(b - 1)
			}
			absmax = c.addBlock(sums[:hi-lo], inCodes[b*size:], add[lo:hi], scaleAt(inScales[scaleBytes*b:]), mul, false)
		}
		if inverse, late = c.putScale(scales[scaleBytes*b:], absmax); late {
			sums, lateSums = lateSums, sums
		} else {
			clear(codes[b*size:][:c.codesLen(hi-lo)])
		}
	}
	if late {
		encode(n - 1)
	}
	if stream {
		endStream()
	}
}

// encodeBlock is quantiseBlock for a block that may still have a NaN, which
// then spoils the block.
func (c coder) encodeBlock(scale, codes []byte, values, next []float32, inverse float32, stream bool) {
	if c.quantiseBlock(codes, values, next, inverse, stream) {
		return
	}
	spoil(scale, codes, stream)
}

// spoil marks a block as one with a NaN, after its codes have been written.
func spoil(scale, codes []byte, stream bool) {
	if stream {
		endStream() // before the same bytes are written again
	}
	binary.LittleEndian.PutUint32(scale, canonical)
	clear(codes)
}

// finite reports whether a scale is a finite number.
func finite(scale float32) bool { return math.Float32bits(scale)&signless < infinity }

func scaleAt(scales []byte) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(scales))
}

// absmaxBits returns the absmax of a block. If the absmax is neither below
// minScaled nor above the finite numbers, there may still be a NaN.
// quantiseBlock finds it, which costs less than looking for it here.
func (c coder) absmaxBits(src []float32) uint32 {
	var top uint32
	if n := c.vectors(len(src)); n > 0 {
		top, src = c.absmaxVector(src[:n]), src[n:]
	}
	// Two running maxima hide the latency of one.
	var a, b uint32
	i := 0
	for ; i+2 <= len(src); i += 2 {
		a = max(a, math.Float32bits(src[i])&signless)
		b = max(b, math.Float32bits(src[i+1])&signless)
	}
	if i < len(src) {
		a = max(a, math.Float32bits(src[i])&signless)
	}
	return max(top, a, b)
}

// putScale writes a block's scale to scale[:4] and returns the factor of its
// values, or false for a block whose codes are all 0.
func (f Format) putScale(scale []byte, absmax uint32) (inverse float32, ok bool) {
	if absmax < minScaled || absmax >= infinity {
		var bits uint32
		if absmax >= infinity {
			bits = canonical
		}
		binary.LittleEndian.PutUint32(scale, bits)
		return 0, false
	}
	largest, most := float32(127), uint32(maxScale)
	if f.Bits == 4 {
		largest, most = 7, maxScale4
	}
	top := math.Float32frombits(absmax)
	binary.LittleEndian.PutUint32(scale, min(math.Float32bits(top/largest), most))
	return largest / top, true
}

// quantiseBlock writes the codes of src, and reports whether no value is NaN.
// Meanwhile it prefetches as many values of next, which the caller will read;
// next may be empty. stream is the result of streamsCodes.
func (c coder) quantiseBlock(codes []byte, src, next []float32, inverse float32, stream bool) (ok bool) {
	ok = true
	if n := c.vectors(len(src)); n > 0 {
		size := c.codesLen(n)
		ok = c.quantiseVector(codes[:size], src[:n], next, inverse, stream)
		codes, src = codes[size:], src[n:]
	}
	if c.Bits == 4 {
		quantiseHalves(codes, src, inverse)
		return ok
	}
	codes = codes[:len(src)]
	for i, x := range src {
		codes[i] = roundToCode(float32(x * inverse))
	}
	return ok
}

// roundToCode rounds half to even by adding 1.5 × 2^23: numbers of that size
// have a unit of 1 in the last place, so the sum's low bits are the integer in
// two's complement. It holds for |x| < 2^22.
func roundToCode(x float32) byte {
	return byte(math.Float32bits(x + 0x1.8p23))
}

// dequantiseBlock decodes. stream is the result of streamsValues for dst.
func (c coder) dequantiseBlock(dst []float32, codes []byte, scale float32, stream bool) {
	if !finite(scale) {
		nan := math.Float32frombits(canonical)
		for i := range dst {
			dst[i] = nan
		}
		return
	}
	if n := c.vectors(len(dst)); n > 0 {
		size := c.codesLen(n)
		c.dequantiseVector(dst[:n], codes[:size], scale, stream)
		dst, codes = dst[n:], codes[size:]
	}
	if c.Bits == 4 {
		dequantiseHalves(dst, codes, scale)
		return
	}
	codes = codes[:len(dst)]
	for i := range dst {
		dst[i] = float32(float32(int8(codes[i])) * scale)
	}
}

// addBlock writes (decoded + own) × mul to sums and returns their absmax, with
// the same exception as absmaxBits. stream is the result of streamsValues for
// sums; if it is set, mul is 1.
func (c coder) addBlock(sums []float32, codes []byte, own []float32, scale, mul float32, stream bool) uint32 {
	if !finite(scale) {
		return canonical // the whole block is spoiled, sums are not read
	}
	sums = sums[:len(own)]
	var absmax uint32
	if n := c.vectors(len(own)); n > 0 {
		size := c.codesLen(n)
		absmax = c.addVector(sums[:n], codes[:size], own[:n], scale, mul, stream)
		sums, codes, own = sums[n:], codes[size:], own[n:]
	}
	if c.Bits == 4 {
		return max(absmax, addHalves(sums, codes, own, scale, mul))
	}
	codes = codes[:len(own)]
	for i, x := range own {
		sum := float32(float32(float32(int8(codes[i]))*scale)+x) * mul
		sums[i] = sum
		absmax = max(absmax, math.Float32bits(sum)&signless)
	}
	return absmax
}
