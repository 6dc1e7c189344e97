//go:build !purego

package int8

// In all of these, n is a positive multiple of 16.

// absmaxNEON returns the largest bit pattern of n values without their signs.
//
//go:noescape
func absmaxNEON(src *float32, n int) uint32

// quantiseNEON writes the codes of n values, round-half-even(value × inverse).
//
//go:noescape
func quantiseNEON(codes *byte, src *float32, n int, inverse float32)

// quantise4NEON is quantiseNEON with two codes to a byte.
//
//go:noescape
func quantise4NEON(codes *byte, src *float32, n int, inverse float32)

// dequantiseNEON writes float32(code) × scale for n codes.
//
//go:noescape
func dequantiseNEON(dst *float32, codes *byte, n int, scale float32)

// dequantise4NEON is dequantiseNEON with two codes to a byte.
//
//go:noescape
func dequantise4NEON(dst *float32, codes *byte, n int, scale float32)

// addNEON writes (float32(code) × scale + own) × mul to sums, each operation
// rounded, and returns the largest bit pattern of the sums without their signs.
//
//go:noescape
func addNEON(sums *float32, codes *byte, own *float32, n int, scale, mul float32) uint32

// add4NEON is addNEON with two codes to a byte.
//
//go:noescape
func add4NEON(sums *float32, codes *byte, own *float32, n int, scale, mul float32) uint32
