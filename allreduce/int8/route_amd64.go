//go:build amd64 && !purego

package int8

import "golang.org/x/sys/cpu"

// routes are those that this machine has, the fastest last.
func routes() []route {
	all := []route{portable}
	if cpu.X86.HasAVX2 {
		all = append(all, avx2)
	}
	if cpu.X86.HasAVX2 && cpu.X86.HasAVX512F {
		all = append(all, avx512)
	}
	return all
}

// active is the route in use.
var active = routes()[len(routes())-1]

func absmaxVector(src []float32) uint32 {
	if active == avx512 {
		return absmaxAVX512(&src[0], len(src))
	}
	return absmaxAVX2(&src[0], len(src))
}

func quantiseVector(codes []byte, src, input []float32, inverse float32) {
	if active == avx512 {
		quantiseAVX512(&codes[0], &src[0], &input[0], len(src), inverse)
		return
	}
	quantiseAVX2(&codes[0], &src[0], &input[0], len(src), inverse)
}

func dequantiseVector(dst []float32, codes []byte, scale float32) {
	if active == avx512 {
		dequantiseAVX512(&dst[0], &codes[0], len(dst), scale)
		return
	}
	dequantiseAVX2(&dst[0], &codes[0], len(dst), scale)
}

func addVector(sums []float32, codes []byte, own []float32, scale, mul float32) uint32 {
	switch {
	case active == avx512 && mul == 1:
		return addAVX512(&sums[0], &codes[0], &own[0], len(own), scale)
	case active == avx512:
		return addMulAVX512(&sums[0], &codes[0], &own[0], len(own), scale, mul)
	case mul == 1:
		return addAVX2(&sums[0], &codes[0], &own[0], len(own), scale)
	}
	return addMulAVX2(&sums[0], &codes[0], &own[0], len(own), scale, mul)
}
