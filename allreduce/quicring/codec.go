package quicring

import (
	"testbed/allreduce"
	"testbed/allreduce/int8"
)

// codec turns pieces of values into codes and back. Codes lie in the Outcome;
// what a frame carries of them is pack's and unpack's to say.
type codec struct {
	block int // values per scale
}

// encodedLen is the number of bytes that the codes of n values take.
func (c codec) encodedLen(n int) int { return int8.EncodedLen(n, c.block) }

// quantise encodes src into dst.
func (c codec) quantise(dst []byte, src []float32) { int8.Quantise(dst, src, c.block) }

// addRequantise adds own values to codes, multiplies by mul and encodes again,
// in place.
func (c codec) addRequantise(codes []byte, own []float32, mul float32) {
	int8.AddRequantise(codes, codes, own, c.block, mul)
}

// dequantise decodes codes into dst.
func (c codec) dequantise(dst []float32, codes []byte) { int8.Dequantise(dst, codes, c.block) }

// appendFrame appends the header and the payload that carries codes.
func (c codec) appendFrame(dst []byte, h allreduce.Header, codes []byte) []byte {
	return append(allreduce.AppendHeader(dst, h), codes...)
}
