package int8

import (
	"math"

	"testbed/allreduce"
)

// Format is an allreduce.Format with codes: of 8 bits, for which this package
// also has functions, or of 4.
//
// Codes of 4 bits are those of 8 with 7 in the place of 127, in scale and in
// inverse: they lie in -7 … 7. Two share a byte, the earlier one in its lower
// half, in two's complement; an odd last one is paired with a zero. Scales stay
// float32, one for each block, and come first.
type Format allreduce.Format

// EncodedLen is allreduce.Format's.
func (f Format) EncodedLen(n int) int { return allreduce.Format(f).EncodedLen(n) }

// ScalesLen is allreduce.Format's.
func (f Format) ScalesLen(n int) int { return allreduce.Format(f).ScalesLen(n) }

func (f Format) codesLen(n int) int { return allreduce.Format(f).CodesLen(n) }

// Quantise encodes src into dst[:EncodedLen(len(src))]. If residual is not nil,
// residual[i] becomes the error of src[i]: src[i] less its decoded form, or 0
// if that is not a number. A caller that adds it to its next vector corrects
// the errors of one round in the next (Seide et al. 2014, "1-bit stochastic
// gradient descent", §3). Slices that are too short make it panic; residual may
// be src.
func (f Format) Quantise(dst []byte, src, residual []float32) {
	c := f.coder(encode, len(src))
	if residual == nil {
		c.quantise(dst, src)
		return
	}
	scales, codes := f.split(dst, len(src))
	for len(src) > 0 {
		n := min(f.Block, len(src))
		c.encode(scales, codes, src[:n], c.absmaxBits(src[:n]), residual[:n], 1)
		scales, codes = scales[scaleBytes:], codes[f.codesLen(n):]
		src, residual = src[n:], residual[n:]
	}
}

// Dequantise decodes src[:EncodedLen(len(dst))] into dst. It panics when src
// is shorter. Any bytes are valid input.
func (f Format) Dequantise(dst []float32, src []byte) {
	f.coder(decode, len(dst)).dequantise(dst, src)
}

func (c coder) dequantise(dst []float32, src []byte) {
	stream := c.streamsValues(dst)
	scales, codes := c.split(src, len(dst))
	for len(dst) > 0 {
		n := min(c.Block, len(dst))
		size := c.codesLen(n)
		c.dequantiseBlock(dst[:n], codes[:size], scaleAt(scales), stream)
		scales, codes, dst = scales[scaleBytes:], codes[size:], dst[n:]
	}
	if stream {
		endStream()
	}
}

// DequantiseAdd decodes src[:EncodedLen(len(add))] and adds the values of add to
// it, into sums, which has their length and may be add. It panics when src is
// shorter.
func (f Format) DequantiseAdd(sums []float32, src []byte, add []float32) {
	f.coder(decodeAdd, len(add)).dequantiseAdd(sums, src, add)
}

func (c coder) dequantiseAdd(sums []float32, src []byte, add []float32) {
	// Values that have just been read are in the cache.
	stream := c.streamsValues(sums) && len(add) > 0 && &sums[0] != &add[0]
	scales, codes := c.split(src, len(add))
	for len(add) > 0 {
		n := min(c.Block, len(add))
		size := c.codesLen(n)
		if scale := scaleAt(scales); finite(scale) {
			c.addBlock(sums[:n], codes[:size], add[:n], scale, 1, stream)
		} else {
			c.dequantiseBlock(sums[:n], codes[:size], scale, stream) // not a number, whatever is added
		}
		scales, codes, sums, add = scales[scaleBytes:], codes[size:], sums[n:], add[n:]
	}
	if stream {
		endStream()
	}
}

// AddRequantise is the function of that name, in this format. If residual is
// not nil, residual[i] becomes the encoding error of value i, as in Quantise,
// divided by mul: with mul = 1/ranks it is the error of the sum, not of the
// mean. residual has the length of add and may be add.
func (f Format) AddRequantise(dst, src []byte, add []float32, mul float32, residual []float32) {
	c := f.coder(ringStep, len(add))
	if residual == nil {
		c.fused(dst, src, add, mul)
		return
	}
	inScales, inCodes := f.split(src, len(add))
	scales, codes := f.split(dst, len(add))
	var sums [MaxBlock]float32
	for len(add) > 0 {
		n := min(f.Block, len(add))
		b := f.codesLen(n)
		absmax := c.addBlock(sums[:n], inCodes[:b], add[:n], scaleAt(inScales), mul, false)
		c.encode(scales, codes, sums[:n], absmax, residual[:n], mul)
		inScales, inCodes, scales, codes = inScales[scaleBytes:], inCodes[b:], scales[scaleBytes:], codes[b:]
		add, residual = add[n:], residual[n:]
	}
}

// split cuts an encoding of n values into its scales and its codes.
func (f Format) split(b []byte, n int) (scales, codes []byte) {
	s := f.ScalesLen(n)
	return b[:s:s], b[s : s+f.codesLen(n)]
}

// encode writes one block: its scale to scale[:4], its codes to the front of
// codes, and their errors, divided by mul, to residual. values may be missing
// for a spoiled block.
func (c coder) encode(scale, codes []byte, values []float32, absmax uint32, residual []float32, mul float32) {
	codes = codes[:c.codesLen(len(values))]
	inverse, ok := c.putScale(scale, absmax)
	// Nothing is prefetched here: too much happens before the next block, and
	// pending loads from memory delay it.
	if ok && !c.quantiseBlock(codes, values, nil, inverse, false) {
		absmax = canonical
		_, ok = c.putScale(scale, absmax)
	}
	if !ok {
		clear(codes)
	}
	if absmax >= infinity {
		clear(residual) // a residual that is not a number would spoil all later rounds
		return
	}
	c.lose(residual, values, codes, scaleAt(scale), mul)
}

// lose writes (value - float32(code)×scale) / mul.
func (f Format) lose(residual, values []float32, codes []byte, scale, mul float32) {
	residual = residual[:len(values)]
	if f.Bits == 4 {
		for i, x := range values {
			residual[i] = (x - float32(half(codes, i)*scale)) / mul
		}
		return
	}
	codes = codes[:len(values)]
	for i, x := range values {
		residual[i] = (x - float32(float32(int8(codes[i]))*scale)) / mul
	}
}

// maxScale4 are the bits of the largest scale with a finite 7 × scale.
const maxScale4 = 0x7e124924

// The following functions do for codes of 4 bits, two to a byte, what loops in
// int8.go do for codes of 8. An odd last code is by itself.

// half is code i, as a number.
func half(codes []byte, i int) float32 {
	return float32(int8(codes[i/2]>>(4*(i&1))<<4) >> 4)
}

func quantiseHalves(codes []byte, src []float32, inverse float32) {
	codes = codes[:(len(src)+1)/2]
	for i := range codes {
		b := roundToCode(float32(src[2*i]*inverse)) & 0xf
		if 2*i+1 < len(src) {
			b |= roundToCode(float32(src[2*i+1]*inverse)) << 4
		}
		codes[i] = b
	}
}

func dequantiseHalves(dst []float32, codes []byte, scale float32) {
	codes = codes[:(len(dst)+1)/2]
	for i, b := range codes {
		dst[2*i] = float32(float32(int8(b<<4)>>4) * scale)
		if 2*i+1 < len(dst) {
			dst[2*i+1] = float32(float32(int8(b)>>4) * scale)
		}
	}
}

func addHalves(sums []float32, codes []byte, own []float32, scale, mul float32) (absmax uint32) {
	codes = codes[:(len(own)+1)/2]
	add := func(i int, code int8) {
		sum := float32(float32(float32(code)*scale)+own[i]) * mul
		sums[i] = sum
		absmax = max(absmax, math.Float32bits(sum)&signless)
	}
	for i, b := range codes {
		add(2*i, int8(b<<4)>>4)
		if 2*i+1 < len(own) {
			add(2*i+1, int8(b)>>4)
		}
	}
	return absmax
}
