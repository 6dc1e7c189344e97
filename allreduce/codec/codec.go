// Package codec turns pieces of vectors into the payloads of frames and back:
// int8 or int4 codes with a scale for each block, shortened by entropy coding
// if possible, or floating-point numbers.
//
// Codes are those of package int8. Floating-point numbers lie one after the
// other, little-endian. A bfloat16 is rounded to the nearest, half to even, so
// that values beyond the largest become infinite. An infinity stays infinite,
// and any NaN becomes the canonical one, 0x7fc00000 or 0x7fc0. Unlike in a
// block of codes, other values are not affected. Sums are in float32, as with
// codes.
package codec

import (
	"slices"
	"time"

	"testbed/allreduce"
	"testbed/allreduce/entropy"
	"testbed/allreduce/int8"
)

// The kernels have no clock of their own. Every program that encodes gives them
// one here, and they measure themselves at the first use.
func init() {
	start := time.Now()
	int8.MeasureBy(func() time.Duration { return time.Since(start) })
}

// Codec turns pieces of values into codes and back. Codes are stored in the
// Outcome. AppendFrame and Restore convert them to and from the payloads of
// frames.
type Codec struct {
	allreduce.Format
	// Residual, unless nil, receives the quantisation error of this rank's values.
	Residual []float32
	// Short reports that frames carry shortened codes, if those are shorter. Only
	// formats with codes may set it.
	Short bool
}

// Residue is the place in the residual for values [lo, hi).
func (c *Codec) Residue(lo, hi int) []float32 {
	if c.Residual == nil {
		return nil
	}
	return c.Residual[lo:hi]
}

// Coder has the memory with which a reader or a sender shortens and restores
// codes. It is not safe for concurrent use.
type Coder struct {
	entropy.Coder
	Spent   time.Duration // time spent on that so far
	payload []byte
}

// Room returns n bytes for a shortened payload, until the next call.
func (c *Coder) Room(n int) []byte {
	c.payload = slices.Grow(c.payload[:0], n)[:n]
	return c.payload
}

// AppendFrame appends the header and the payload that carries codes.
func (c *Codec) AppendFrame(dst []byte, h allreduce.Header, codes []byte, by *Coder) []byte {
	at := len(dst)
	dst = allreduce.AppendHeader(dst, h)
	if !c.Short {
		return append(dst, codes...)
	}
	start := time.Now()
	scales := c.ScalesLen(int(h.Count))
	dst = append(dst, codes[:scales]...)
	short, ok := by.Encode(dst, codes[scales:])
	by.Spent += time.Since(start)
	if !ok {
		return append(dst, codes[scales:]...)
	}
	h.Coding, h.Payload = allreduce.Huffman, uint32(len(short)-at-allreduce.HeaderLen)
	allreduce.AppendHeader(short[:at], h)
	return short
}

// AppendShort appends the header and an already shortened payload.
func AppendShort(dst []byte, h allreduce.Header, payload []byte) []byte {
	h.Coding, h.Payload = allreduce.Huffman, uint32(len(payload))
	return append(allreduce.AppendHeader(dst, h), payload...)
}

// Restore writes the codes of a shortened payload.
func (c *Codec) Restore(codes, payload []byte, h allreduce.Header, by *Coder) error {
	start := time.Now()
	scales := c.ScalesLen(int(h.Count))
	copy(codes, payload[:scales])
	err := by.Decode(codes[scales:], payload[scales:])
	by.Spent += time.Since(start)
	return err
}
