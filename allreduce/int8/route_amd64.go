//go:build amd64 && !purego

package int8

import "golang.org/x/sys/cpu"

// routes are those that this machine has, the fastest last.
func routes() []route {
	all := []route{portable}
	if cpu.X86.HasAVX2 {
		all = append(all, avx2)
	}
	if cpu.X86.HasAVX2 && cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ {
		all = append(all, avx512)
	}
	return all
}

// active is the route in use.
var active = routes()[len(routes())-1]

// endStream makes other processors see what has gone past the caches before
// what is written later.
func endStream() { fence() }

// absmaxVector may pass over NaN where it returns minScaled or more.
func absmaxVector(src []float32) uint32 {
	if active == avx512 {
		return notBlind(absmaxAVX512(&src[0], len(src)), src)
	}
	return absmaxAVX2(&src[0], len(src))
}

// quantiseVector reports whether no value is NaN. next is as in quantiseBlock.
func quantiseVector(codes []byte, src, next []float32, inverse float32, stream bool) bool {
	if len(next) == 0 {
		next = src // which is there already
	}
	switch {
	case active == avx512 && stream:
		return quantiseStreamAVX512(&codes[0], &src[0], &next[0], len(src), inverse) == 0
	case active == avx512:
		return quantiseAVX512(&codes[0], &src[0], &next[0], len(src), inverse) == 0
	case stream:
		return quantiseStreamAVX2(&codes[0], &src[0], &next[0], len(src), inverse) == 0
	}
	return quantiseAVX2(&codes[0], &src[0], &next[0], len(src), inverse) == 0
}

func dequantiseVector(dst []float32, codes []byte, scale float32) {
	if active == avx512 {
		dequantiseAVX512(&dst[0], &codes[0], len(dst), scale)
		return
	}
	dequantiseAVX2(&dst[0], &codes[0], len(dst), scale)
}

// addVector passes over NaN as absmaxVector does.
func addVector(sums []float32, codes []byte, own []float32, scale, mul float32) uint32 {
	var top uint32
	switch {
	case active == avx512 && mul == 1:
		top = addAVX512(&sums[0], &codes[0], &own[0], len(own), scale)
	case active == avx512:
		top = addMulAVX512(&sums[0], &codes[0], &own[0], len(own), scale, mul)
	case mul == 1:
		top = addAVX2(&sums[0], &codes[0], &own[0], len(own), scale)
	default:
		top = addMulAVX2(&sums[0], &codes[0], &own[0], len(own), scale, mul)
	}
	return notBlind(top, sums)
}

// addQuantiseVector adds up the blocks of own that are whole, to sums and
// lateSums by turns, and writes the codes of each block that precedes one,
// beginning with those of lateSums. It ends early at a block that needs special
// care, and returns how many it has added up and the last one's absmax; ok is
// what quantiseVector reports of the block before the last one.
func addQuantiseVector(sums, lateSums []float32, inScales, inCodes []byte, own []float32,
	scales, lateCodes []byte, block int, inverse, mul float32,
) (done int, absmax uint32, ok bool) {
	var nan uint32
	sum, late, n := &sums[0], &lateSums[0], len(own)/block
	switch {
	case active == avx512 && mul == 1:
		done, absmax, nan = addQuantiseAVX512(sum, late, &inScales[0], &inCodes[0], &own[0], &scales[0], &lateCodes[0], block, n, inverse)
	case active == avx512:
		done, absmax, nan = addQuantiseMulAVX512(sum, late, &inScales[0], &inCodes[0], &own[0], &scales[0], &lateCodes[0], block, n, inverse, mul)
	case mul == 1:
		done, absmax, nan = addQuantiseAVX2(sum, late, &inScales[0], &inCodes[0], &own[0], &scales[0], &lateCodes[0], block, n, inverse)
	default:
		done, absmax, nan = addQuantiseMulAVX2(sum, late, &inScales[0], &inCodes[0], &own[0], &scales[0], &lateCodes[0], block, n, inverse, mul)
	}
	if done%2 == 0 {
		sums = lateSums
	}
	return done, notBlind(absmax, sums[:block]), nan == 0
}

// notBlind returns top, the maximum that a kernel has found of values, unless
// it may have passed over a NaN that quantising will not find because nothing
// is quantised.
func notBlind(top uint32, values []float32) uint32 {
	if active == avx512 && top < minScaled {
		return absmaxAVX2(&values[0], len(values))
	}
	return top
}
