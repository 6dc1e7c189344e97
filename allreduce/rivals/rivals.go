// Package rivals has the quantisers of other collectives, to be compared with
// package int8's on the same values. Each is written from a description of its
// computation, in the plainest way. Their errors and sizes are the rivals' own,
// their speeds are those of plain Go. Values are finite.
package rivals

import (
	"encoding/binary"
	"math"
)

// Codec is a rival's encoding of a chunk of values. Its functions allocate
// nothing.
type Codec struct {
	Name string
	// Source is the rival's name for it, and the rival.
	Source string
	// EncodedLen is the number of bytes of n values. block is the number of values
	// per scale, if each row has a scale.
	EncodedLen func(n, block int) int
	// Quantise encodes src into dst, which has EncodedLen(len(src)) bytes.
	Quantise func(dst []byte, src []float32, block int)
	// DequantiseAdd writes the decoded values of src plus add to sums, which may
	// be add. add may be nil, for zeros.
	DequantiseAdd func(sums []float32, src []byte, add []float32, block int)
}

// All are the rivals.
var All = []Codec{
	{
		Name: "prime", Source: "prime-diloco: uint8 with a codebook of the means of 256 equal bins over ±3σ of the chunk",
		EncodedLen: func(n, _ int) int { return 4*bins + n },
		Quantise:   primeQuantise, DequantiseAdd: primeAdd,
	},
	{
		Name: "pccl_minmax", Source: "PCCL's MinMax: uint8 between the chunk's least and largest value, truncated",
		EncodedLen: func(n, _ int) int { return 8 + n },
		Quantise:   minMaxQuantise, DequantiseAdd: minMaxAdd,
	},
	{
		Name: "pccl_zeropoint", Source: "PCCL's ZeroPointScale: int8 over ±6σ around the chunk's mean, rounded",
		EncodedLen: func(n, _ int) int { return 12 + n },
		Quantise:   zeroPointQuantise, DequantiseAdd: zeroPointAdd,
	},
	{
		Name: "torchft_fp8", Source: "torchft: float8 e4m3 with an absmax scale in front of each row",
		EncodedLen: func(n, block int) int { return n + 4*((n+block-1)/block) },
		Quantise:   fp8Quantise, DequantiseAdd: fp8Add,
	},
}

var le = binary.LittleEndian

func put(b []byte, x float32) { le.PutUint32(b, math.Float32bits(x)) }
func get(b []byte) float32    { return math.Float32frombits(le.Uint32(b)) }
func at(x []float32, i int) float32 {
	if x == nil {
		return 0
	}
	return x[i]
}

// bins is prime's number of bins.
const bins = 256

// primeQuantise follows prime-diloco's description: σ = ‖x‖ ÷ √(n−1), not
// centred, scale = 6σ ÷ 256, code = round(x ÷ scale) + 128 within 0 … 255. The
// codebook, which comes first, has the mean of each bin's values, 0 for an empty
// one. A chunk without spread, by which prime divides, has all codes 128.
func primeQuantise(dst []byte, src []float32, _ int) {
	var squares float64
	for _, x := range src {
		squares += float64(x) * float64(x)
	}
	inverse := float32(0)
	if squares > 0 {
		inverse = float32(bins / (6 * math.Sqrt(squares/float64(max(len(src)-1, 1)))))
	}
	var sums [bins]float64
	var counts [bins]int
	codes := dst[4*bins:][:len(src)]
	for i, x := range src {
		code := uint8(min(max(round(x*inverse)+bins/2, 0), bins-1))
		codes[i] = code
		sums[code] += float64(x)
		counts[code]++
	}
	for code, n := range counts {
		put(dst[4*code:], float32(sums[code]/float64(max(n, 1))))
	}
}

func primeAdd(sums []float32, src []byte, add []float32, _ int) {
	var codebook [bins]float32
	for code := range codebook {
		codebook[code] = get(src[4*code:])
	}
	for i, code := range src[4*bins:][:len(sums)] {
		sums[i] = codebook[code] + at(add, i)
	}
}

// minMaxQuantise follows PCCL's description: code = (x − min) ÷ (max − min) ×
// 255, truncated; min and max come first.
func minMaxQuantise(dst []byte, src []float32, _ int) {
	if len(src) == 0 {
		return
	}
	least, largest := src[0], src[0]
	for _, x := range src {
		least, largest = min(least, x), max(largest, x)
	}
	put(dst, least)
	put(dst[4:], largest)
	factor := float32(0)
	if spread := float64(largest) - float64(least); spread > 0 {
		factor = float32(255 / spread)
	}
	codes := dst[8:][:len(src)]
	for i, x := range src {
		codes[i] = uint8(min(int32((x-least)*factor), 255))
	}
}

func minMaxAdd(sums []float32, src []byte, add []float32, _ int) {
	if len(sums) == 0 {
		return
	}
	least := get(src)
	step := float32((float64(get(src[4:])) - float64(least)) / 255)
	for i, code := range src[8:][:len(sums)] {
		sums[i] = float32(float32(code)*step) + least + at(add, i)
	}
}

// zeroPointQuantise follows PCCL's description: code = round(x ÷ scale) + zero
// point within −128 … 127; scale, a float32, and the zero point, an int64, come
// first, and are derived from the values. The description does not say how: 255
// steps over ±6σ around the mean have PCCL's measured errors.
func zeroPointQuantise(dst []byte, src []float32, _ int) {
	var sum, squares float64
	for _, x := range src {
		sum += float64(x)
		squares += float64(x) * float64(x)
	}
	mean := sum / float64(max(len(src), 1))
	scale := 12 * math.Sqrt(max(squares/float64(max(len(src), 1))-mean*mean, 0)) / 255
	zero, inverse := int32(0), float32(0)
	if scale > 0 {
		zero, inverse = round(float32(min(max(-mean/scale, -1<<20), 1<<20))), float32(1/scale)
	}
	put(dst, float32(scale))
	le.PutUint64(dst[4:], uint64(int64(zero)))
	codes := dst[12:][:len(src)]
	for i, x := range src {
		codes[i] = byte(min(max(round(x*inverse)+zero, -128), 127))
	}
}

func zeroPointAdd(sums []float32, src []byte, add []float32, _ int) {
	scale, zero := get(src), int32(le.Uint64(src[4:]))
	for i, code := range src[12:][:len(sums)] {
		sums[i] = float32(float32(int32(int8(code))-zero)*scale) + at(add, i)
	}
}

// round rounds half to even, to at most ±2^21.
func round(x float32) int32 {
	const limit, magic = 1 << 21, 0x1.8p23 // numbers of magic's size are integers
	return int32(math.Float32bits(min(max(x, -limit), limit)+magic)) - 0x4b400000
}

// largest8 is the largest number of float8 e4m3, which has no infinity.
const largest8 = 448

// fp8Quantise follows torchft's description: a row of block values has the scale
// absmax ÷ 448 as a float32 in front of its codes, each value ÷ scale rounded to
// e4m3. A row of zeros has the scale 0.
func fp8Quantise(dst []byte, src []float32, block int) {
	for len(src) > 0 {
		row := src[:min(block, len(src))]
		var absmax float32
		for _, x := range row {
			absmax = max(absmax, x, -x)
		}
		put(dst, absmax/largest8)
		inverse := float32(0)
		if absmax >= 0x1p-115 { // division would be inexact otherwise
			inverse = largest8 / absmax
		}
		codes := dst[4:][:len(row)]
		for i, x := range row {
			codes[i] = toFP8(x * inverse)
		}
		dst, src = dst[4+len(row):], src[len(row):]
	}
}

func fp8Add(sums []float32, src []byte, add []float32, block int) {
	for from := 0; from < len(sums); from += block {
		row := sums[from:min(from+block, len(sums))]
		scale := get(src)
		for i, code := range src[4:][:len(row)] {
			row[i] = float32(fp8Values[code]*scale) + at(add, from+i)
		}
		src = src[4+len(row):]
	}
}

// toFP8 rounds to the nearest e4m3, half to even: a sign, four bits of exponent
// with a bias of 7, three bits of fraction; the largest is 0x7e.
func toFP8(x float32) byte {
	b := math.Float32bits(x)
	sign := byte(b >> 24 & 0x80)
	b &= 0x7fffffff
	if b < 0x3c800000 { // 2^-6: below, numbers are whole multiples of 2^-9
		return sign | byte(math.Float32bits(math.Float32frombits(b)+0x1p14))
	}
	const drop = 20 // bits of a float32's fraction that are lost
	b += 1<<(drop-1) - 1 + b>>drop&1
	return sign | byte(min(b>>drop-(127-7)<<3, 0x7e))
}

// fp8Values are the values of all codes; 0x7f and 0xff are NaN.
var fp8Values = func() (values [256]float32) {
	for code := range values {
		exponent, fraction := code>>3&0xf, code&7
		x := math.Ldexp(float64(8+fraction), exponent-7-3)
		switch {
		case exponent == 0:
			x = math.Ldexp(float64(fraction), -9)
		case code&0x7f == 0x7f:
			x = math.NaN()
		}
		if code >= 0x80 {
			x = -x
		}
		values[code] = float32(x)
	}
	return values
}()
