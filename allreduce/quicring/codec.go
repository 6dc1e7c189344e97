package quicring

import (
	"slices"
	"time"

	"testbed/allreduce"
	"testbed/allreduce/entropy"
	"testbed/allreduce/int8"
)

// codec turns pieces of values into codes and back. Codes lie in the Outcome;
// what a frame carries of them is appendFrame's and decode's to say.
type codec struct {
	int8.Format
	// residual gets what encoding loses of this rank's values, or is nil.
	residual []float32
	// short says that frames carry codes shortened, where that makes them
	// shorter.
	short bool
}

// lost is the place in the residual for values [lo, hi).
func (c *codec) lost(lo, hi int) []float32 {
	if c.residual == nil {
		return nil
	}
	return c.residual[lo:hi]
}

// coder is what a reader or a sender needs to shorten and restore codes.
type coder struct {
	entropy.Coder
	spent   time.Duration
	payload []byte
}

// room returns n bytes for a shortened payload, until the next call.
func (c *coder) room(n int) []byte {
	c.payload = slices.Grow(c.payload[:0], n)[:n]
	return c.payload
}

// appendFrame appends the header and the payload that carries codes.
func (c *codec) appendFrame(dst []byte, h allreduce.Header, codes []byte, by *coder) []byte {
	at := len(dst)
	dst = allreduce.AppendHeader(dst, h)
	if !c.short {
		return append(dst, codes...)
	}
	start := time.Now()
	scales := c.ScalesLen(int(h.Count))
	dst = append(dst, codes[:scales]...)
	short, ok := by.Encode(dst, codes[scales:])
	by.spent += time.Since(start)
	if !ok {
		return append(dst, codes[scales:]...)
	}
	h.Coding, h.Payload = allreduce.Huffman, uint32(len(short)-at-allreduce.HeaderLen)
	allreduce.AppendHeader(short[:at], h)
	return short
}

// appendShort appends the header and a payload that came shortened.
func appendShort(dst []byte, h allreduce.Header, payload []byte) []byte {
	h.Coding, h.Payload = allreduce.Huffman, uint32(len(payload))
	return append(allreduce.AppendHeader(dst, h), payload...)
}

// restore writes the codes that a shortened payload carries.
func (c *codec) restore(codes, payload []byte, h allreduce.Header, by *coder) error {
	start := time.Now()
	scales := c.ScalesLen(int(h.Count))
	copy(codes, payload[:scales])
	err := by.Decode(codes[scales:], payload[scales:])
	by.spent += time.Since(start)
	return err
}
