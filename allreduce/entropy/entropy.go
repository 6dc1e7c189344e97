// Package entropy shortens the codes of package int8 without loss. Codes of
// eight bits carry less than eight: those of Gaussian values 7.3, of
// heavy-tailed ones 5 to 6, because a thousand values share a scale and few of
// them are large. A Huffman code removes most of the difference at several
// hundred MB/s a core. Dictionary coders find no repetitions.
//
// The package also decides, from measurements, whether coding is worth it.
package entropy

import (
	"errors"
	"fmt"

	"github.com/klauspost/compress/huff0"
)

// MaxCodes is the largest number of code bytes that are coded together.
const MaxCodes = huff0.BlockSizeMax

// Coder shortens codes and restores them. It keeps its tables from call to
// call, so that nothing large is allocated; it is not safe for concurrent use.
// Its zero value is ready.
type Coder struct {
	encode, decode huff0.Scratch
	keys           []uint64 // sorts the stretches
	sorted         []byte   // codes, by class
}

// Encode appends the short form of codes to dst. It returns dst unchanged and
// false if that is not shorter than codes, or if there are more than MaxCodes.
//
// If all codes are equal, their short form is that byte. Any other form is a
// Huffman table and four bit streams as RFC 8878, sections 4.2.1 and 4.2.2,
// defines them, with up to 2^18-1 codes.
//
// 64 KiB of codes or more may be in classes: a byte has their number, 1 to 4.
// The form of one class is as above. With several classes, first come two bits
// for each 1 KiB of codes, from the lowest bits of a byte on, with its class,
// from 0 on. Then come the classes. Each has the number of bytes of its form as
// four bytes, big-endian, and the form of its codes. That form is as above or,
// if it is as long as the codes, the codes themselves.
func (c *Coder) Encode(dst, codes []byte) ([]byte, bool) {
	if len(codes) < 2 || len(codes) > MaxCodes {
		return dst, false
	}
	if len(codes) < 2*classCodes {
		return c.encodeOne(dst, codes)
	}
	k := c.classes(codes)
	short, ok := append(dst, byte(k)), true
	if k == 1 {
		short, ok = c.encodeOne(short, codes)
	} else {
		short = c.encodeClasses(short, codes, k)
	}
	if !ok || len(short)-len(dst) >= len(codes) {
		return dst, false
	}
	return short, true
}

// encodeOne is Encode with one table.
func (c *Coder) encodeOne(dst, codes []byte) ([]byte, bool) {
	// Each piece finds its receiver's tables empty: it may have come over another
	// connection than the piece before it.
	c.encode.Reuse = huff0.ReusePolicyNone
	c.encode.Out = dst[len(dst):]
	out, _, err := huff0.Compress4X(codes, &c.encode)
	switch {
	case errors.Is(err, huff0.ErrUseRLE):
		return append(dst, codes[0]), true
	case err != nil || len(out) >= len(codes):
		return dst, false // incompressible: the only error that huff0 can have here
	}
	if room := dst[len(dst):cap(dst)]; len(room) > 0 && &room[0] == &out[0] {
		return dst[:len(dst)+len(out)], true // the result is there
	}
	return append(dst, out...), true
}

// Decode restores codes from short, the output of Encode. The error says that
// short is not the form of exactly len(codes) codes; codes are then undefined.
// Any input is safe.
func (c *Coder) Decode(codes, short []byte) error {
	if len(short) >= len(codes) || len(codes) > MaxCodes {
		return fmt.Errorf("short form of %d codes has a length of %d bytes: it must be shorter than the codes, and there may be at most %d codes", len(codes), len(short), MaxCodes)
	}
	if len(codes) < 2*classCodes {
		return c.decodeOne(codes, short)
	}
	if len(short) == 0 {
		return fmt.Errorf("short form of %d codes has no bytes", len(codes))
	}
	switch k, short := int(short[0]), short[1:]; {
	case k == 1:
		return c.decodeOne(codes, short)
	case k >= 2 && k <= maxClasses:
		return c.decodeClasses(codes, short, k)
	default:
		return fmt.Errorf("short form has %d classes, outside 1 to %d", k, maxClasses)
	}
}

// decodeOne is Decode with one table.
func (c *Coder) decodeOne(codes, short []byte) error {
	switch len(short) {
	case 0:
		return fmt.Errorf("short form of %d codes has no bytes", len(codes))
	case 1:
		for i := range codes {
			codes[i] = short[0]
		}
		return nil
	}
	s, streams, err := huff0.ReadTable(short, &c.decode)
	if err != nil {
		return fmt.Errorf("huffman table: %w", err)
	}
	out, err := s.Decoder().Decompress4X(codes[:0:len(codes)], streams)
	if err != nil {
		return fmt.Errorf("huffman streams: %w", err)
	}
	if len(out) != len(codes) {
		return fmt.Errorf("huffman streams hold %d codes, expected %d", len(out), len(codes))
	}
	return nil
}
