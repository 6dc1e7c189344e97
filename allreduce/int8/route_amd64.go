//go:build amd64 && !purego

package int8

import "golang.org/x/sys/cpu"

// forms are the forms of this machine.
func forms() []form {
	all := []form{{route: portable}}
	if cpu.X86.HasAVX2 {
		all = append(all, form{route: avx2}, form{route: avx2, stream: true})
	}
	if cpu.X86.HasAVX2 && cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ {
		all = append(all, form{route: avx512}, form{route: avx512, stream: true})
	}
	return all
}

// perTurn is the number of values in a turn of a kernel's main loop.
const perTurn = 64

// together reports whether the codes of a block may be written while the next
// one is added up.
func (c coder) together() bool { return c.route != portable && c.Block%perTurn == 0 }

// endStream orders writes past the caches before later writes, for other
// processors.
func endStream() { fence() }

// absmaxVector may miss a NaN if it returns minScaled or more.
func (c coder) absmaxVector(src []float32) uint32 {
	if c.route == avx512 {
		return c.notBlind(absmaxAVX512(&src[0], len(src)), src)
	}
	return absmaxAVX2(&src[0], len(src))
}

// quantiseVector reports whether no value is NaN. next is as in quantiseBlock.
func (c coder) quantiseVector(codes []byte, src, next []float32, inverse float32, stream bool) bool {
	if len(next) == 0 {
		next = src // it is in the cache already
	}
	to, from, ahead, n := &codes[0], &src[0], &next[0], len(src)
	wide, half := c.route == avx512, c.Bits == 4
	var nan uint32
	switch {
	case half && stream:
		nan = quantiseStream4AVX512(to, from, ahead, n, inverse)
	case stream:
		nan = quantiseStreamAVX512(to, from, ahead, n, inverse)
	case half && wide:
		nan = quantise4AVX512(to, from, ahead, n, inverse)
	case half:
		nan = quantise4AVX2(to, from, ahead, n, inverse)
	case wide:
		nan = quantiseAVX512(to, from, ahead, n, inverse)
	default:
		nan = quantiseAVX2(to, from, ahead, n, inverse)
	}
	return nan == 0
}

func (c coder) dequantiseVector(dst []float32, codes []byte, scale float32, stream bool) {
	to, from, n := &dst[0], &codes[0], len(dst)
	switch wide, half := c.route == avx512, c.Bits == 4; {
	case half && wide && stream:
		dequantiseStream4AVX512(to, from, n, scale)
	case half && stream:
		dequantiseStream4AVX2(to, from, n, scale)
	case wide && stream:
		dequantiseStreamAVX512(to, from, n, scale)
	case stream:
		dequantiseStreamAVX2(to, from, n, scale)
	case half && wide:
		dequantise4AVX512(to, from, n, scale)
	case half:
		dequantise4AVX2(to, from, n, scale)
	case wide:
		dequantiseAVX512(to, from, n, scale)
	default:
		dequantiseAVX2(to, from, n, scale)
	}
}

// addVector may miss a NaN like absmaxVector.
func (c coder) addVector(sums []float32, codes []byte, own []float32, scale, mul float32, stream bool) uint32 {
	to, from, add, n := &sums[0], &codes[0], &own[0], len(own)
	wide, half, plain := c.route == avx512, c.Bits == 4, mul == 1
	var top uint32
	switch {
	case half && stream:
		top = addStream4AVX512(to, from, add, n, scale)
	case stream:
		top = addStreamAVX512(to, from, add, n, scale)
	case half && wide && plain:
		top = add4AVX512(to, from, add, n, scale)
	case half && wide:
		top = add4MulAVX512(to, from, add, n, scale, mul)
	case half && plain:
		top = add4AVX2(to, from, add, n, scale)
	case half:
		top = add4MulAVX2(to, from, add, n, scale, mul)
	case wide && plain:
		top = addAVX512(to, from, add, n, scale)
	case wide:
		top = addMulAVX512(to, from, add, n, scale, mul)
	case plain:
		top = addAVX2(to, from, add, n, scale)
	default:
		top = addMulAVX2(to, from, add, n, scale, mul)
	}
	return c.notBlind(top, sums)
}

// addQuantiseVector adds up the whole blocks of own, to sums and lateSums in
// turn. It also writes the codes of the block before each, beginning with
// lateSums. It ends early at a block that needs special treatment. It returns
// the number of blocks added up, and the last one's absmax; ok is the result of
// quantiseVector for the block before the last one.
func (c coder) addQuantiseVector(sums, lateSums []float32, inScales, inCodes []byte, own []float32,
	scales, lateCodes []byte, inverse, mul float32, stream bool,
) (done int, absmax uint32, ok bool) {
	var nan uint32
	to, late, from, add := &sums[0], &lateSums[0], &inCodes[0], &own[0]
	scalesIn, scalesOut, codes := &inScales[0], &scales[0], &lateCodes[0]
	n, blocks := c.Block, len(own)/c.Block
	wide, half, plain := c.route == avx512, c.Bits == 4, mul == 1
	switch {
	case half && stream && plain:
		done, absmax, nan = addQuantiseStream4AVX512(to, late, scalesIn, from, add, scalesOut, codes, n, blocks, inverse)
	case half && stream:
		done, absmax, nan = addQuantiseStream4MulAVX512(to, late, scalesIn, from, add, scalesOut, codes, n, blocks, inverse, mul)
	case stream && plain:
		done, absmax, nan = addQuantiseStreamAVX512(to, late, scalesIn, from, add, scalesOut, codes, n, blocks, inverse)
	case stream:
		done, absmax, nan = addQuantiseStreamMulAVX512(to, late, scalesIn, from, add, scalesOut, codes, n, blocks, inverse, mul)
	case half && wide && plain:
		done, absmax, nan = addQuantise4AVX512(to, late, scalesIn, from, add, scalesOut, codes, n, blocks, inverse)
	case half && wide:
		done, absmax, nan = addQuantise4MulAVX512(to, late, scalesIn, from, add, scalesOut, codes, n, blocks, inverse, mul)
	case half && plain:
		done, absmax, nan = addQuantise4AVX2(to, late, scalesIn, from, add, scalesOut, codes, n, blocks, inverse)
	case half:
		done, absmax, nan = addQuantise4MulAVX2(to, late, scalesIn, from, add, scalesOut, codes, n, blocks, inverse, mul)
	case wide && plain:
		done, absmax, nan = addQuantiseAVX512(to, late, scalesIn, from, add, scalesOut, codes, n, blocks, inverse)
	case wide:
		done, absmax, nan = addQuantiseMulAVX512(to, late, scalesIn, from, add, scalesOut, codes, n, blocks, inverse, mul)
	case plain:
		done, absmax, nan = addQuantiseAVX2(to, late, scalesIn, from, add, scalesOut, codes, n, blocks, inverse)
	default:
		done, absmax, nan = addQuantiseMulAVX2(to, late, scalesIn, from, add, scalesOut, codes, n, blocks, inverse, mul)
	}
	if done%2 == 0 {
		sums = lateSums
	}
	return done, c.notBlind(absmax, sums[:n]), nan == 0
}

// notBlind returns top, the maximum that a kernel has found in values, unless
// the kernel may have missed a NaN and no quantisation follows that would find
// it.
func (c coder) notBlind(top uint32, values []float32) uint32 {
	if c.route == avx512 && top < minScaled {
		return absmaxAVX2(&values[0], len(values))
	}
	return top
}
