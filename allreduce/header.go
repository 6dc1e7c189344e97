package allreduce

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Limits of what a frame may claim. A receiver can size its buffers by them
// before it has read anything.
const (
	// MaxRanks is the largest ring.
	MaxRanks = 4096
	// MaxLength is the longest vector, in values.
	MaxLength = 1 << 36
	// MaxPieceValues is the largest piece, in values.
	MaxPieceValues = 1 << 20
)

// HeaderLen is the length of an encoded Header in bytes.
const HeaderLen = 52

const (
	headerMagic   = 0x54424152 // "TBAR"
	headerVersion = 4
)

// Coding is how a piece's quantised values are packed into a payload. Its
// values are the ones on the wire.
type Coding uint8

const (
	// Plain payloads are the quantised values as they are: scales, then codes.
	Plain Coding = 0
	// Huffman payloads have codes that package entropy has shortened, behind
	// scales that it leaves unchanged.
	Huffman Coding = 1
)

// ErrHeader is wrapped by every error that ParseHeader returns.
var ErrHeader = errors.New("malformed frame header")

// Header precedes every piece on the wire. All fields are big-endian:
//
//	offset  bytes  field
//	     0      4  magic "TBAR"
//	     4      1  version, 4
//	     5      1  phase, 1 reduce-scatter, 2 all-gather or 3 end
//	     6      1  algorithm, 0 ring, 1 direct or 2 hierarchical
//	     7      1  coding of the payload, 0 plain or 1 huffman
//	     8      8  epoch
//	    16      8  length of the whole vector, values
//	    24      4  round
//	    28      2  ranks
//	    30      2  step; ring: 0 … ranks-2, direct: 0, hierarchical: 0 inside or 1 between groups
//	    32      4  chunk, 0 … ranks-1
//	    36      4  piece within the chunk
//	    40      4  count of values in this piece
//	    44      2  block, values per scale
//	    46      1  bits of a value, one of Bits
//	    47      1  none defined: zero
//	    48      4  payload that follows, bytes; plain: ⌈count × bits/8⌉, and for codes 4 × ⌈count/block⌉
//
// A header of the phase end closes every stream. Its fields from coding on are
// zero. Only in the last such header of a peer, count is the number of streams
// that the peer has used.
type Header struct {
	Phase     Phase
	Algorithm Algorithm
	Coding    Coding
	Epoch     uint64
	Length    int64
	Round     uint32
	Ranks     uint16
	Step      uint16
	Chunk     uint32
	Piece     uint32
	Count     uint32
	Format    Format
	Payload   uint32
}

// FramesLen returns the bytes of the frames of that many values, in plain
// pieces of at most pieceValues, a multiple of block. It is for estimates,
// which have no limits: values may exceed the longest vector, and the bits of a
// code may be a fraction.
func FramesLen(values float64, pieceValues, block int, bits float64) float64 {
	pieces := max(1, math.Ceil(values/float64(pieceValues)))
	return HeaderLen*pieces + scaleLen*math.Ceil(values/float64(block)) + math.Ceil(values*bits/8)
}

// AppendHeader appends the HeaderLen bytes of h to dst. It does not validate:
// the fields are the sender's own.
func AppendHeader(dst []byte, h Header) []byte {
	be := binary.BigEndian
	dst = be.AppendUint32(dst, headerMagic)
	dst = append(dst, headerVersion, byte(h.Phase), byte(h.Algorithm), byte(h.Coding))
	dst = be.AppendUint64(dst, h.Epoch)
	dst = be.AppendUint64(dst, uint64(h.Length))
	dst = be.AppendUint32(dst, h.Round)
	dst = be.AppendUint16(dst, h.Ranks)
	dst = be.AppendUint16(dst, h.Step)
	dst = be.AppendUint32(dst, h.Chunk)
	dst = be.AppendUint32(dst, h.Piece)
	dst = be.AppendUint32(dst, h.Count)
	dst = be.AppendUint16(dst, uint16(h.Format.Block))
	dst = append(dst, byte(h.Format.Bits), 0)
	return be.AppendUint32(dst, h.Payload)
}

// ParseHeader reads a header from the first HeaderLen bytes of b and validates
// it against the limits of this package and against itself. A header that
// passes encodes back to the same bytes. The error wraps ErrHeader and says
// which field is wrong.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderLen {
		return Header{}, fmt.Errorf("%w: it has %d bytes, but a header has %d", ErrHeader, len(b), HeaderLen)
	}
	be := binary.BigEndian
	if magic := be.Uint32(b); magic != headerMagic {
		return Header{}, fmt.Errorf("%w: wrong magic number %#08x", ErrHeader, magic)
	}
	if b[4] != headerVersion {
		return Header{}, fmt.Errorf("%w: version %d, but this program uses version %d; use the same testbed on every host", ErrHeader, b[4], headerVersion)
	}
	h := Header{
		Phase:     Phase(b[5]),
		Algorithm: Algorithm(b[6]),
		Coding:    Coding(b[7]),
		Epoch:     be.Uint64(b[8:]),
		Round:     be.Uint32(b[24:]),
		Ranks:     be.Uint16(b[28:]),
		Step:      be.Uint16(b[30:]),
		Chunk:     be.Uint32(b[32:]),
		Piece:     be.Uint32(b[36:]),
		Count:     be.Uint32(b[40:]),
		Format:    Format{Bits: int(b[46]), Block: int(be.Uint16(b[44:]))},
		Payload:   be.Uint32(b[48:]),
		Length:    int64(be.Uint64(b[16:])),
	}
	if b[47] != 0 {
		return Header{}, fmt.Errorf("%w: unknown flags %#02x", ErrHeader, b[47])
	}
	if err := h.validate(); err != nil {
		return Header{}, err
	}
	return h, nil
}

func (h Header) validate() error {
	switch {
	case h.Phase != ReduceScatter && h.Phase != AllGather && h.Phase != End:
		return fmt.Errorf("%w: unknown phase %d", ErrHeader, uint8(h.Phase))
	case !slices.Contains(Algorithms, h.Algorithm):
		return fmt.Errorf("%w: unknown algorithm %d", ErrHeader, uint8(h.Algorithm))
	case h.Coding != Plain && h.Coding != Huffman:
		return fmt.Errorf("%w: unknown coding %d", ErrHeader, uint8(h.Coding))
	case h.Length < 0 || h.Length > MaxLength:
		return fmt.Errorf("%w: length %d is outside 0 to %d", ErrHeader, uint64(h.Length), int64(MaxLength))
	case h.Ranks < 2 || h.Ranks > MaxRanks:
		return fmt.Errorf("%w: the number of ranks, %d, is outside 2 to %d", ErrHeader, h.Ranks, MaxRanks)
	case h.Step > h.Algorithm.lastStep(h.Ranks):
		return fmt.Errorf("%w: step %d is beyond the last step of %d ranks", ErrHeader, h.Step, h.Ranks)
	case h.Chunk >= uint32(h.Ranks):
		return fmt.Errorf("%w: chunk %d is beyond the last chunk of %d ranks", ErrHeader, h.Chunk, h.Ranks)
	case h.Count > MaxPieceValues:
		return fmt.Errorf("%w: piece of %d values, but the limit is %d", ErrHeader, h.Count, MaxPieceValues)
	}
	if err := h.Format.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrHeader, err)
	}
	if h.Phase == End {
		if h.Coding != Plain || h.Step != 0 || h.Chunk != 0 || h.Piece != 0 || h.Payload != 0 {
			return fmt.Errorf("%w: the end of a stream has a coding, step, chunk, piece or payload other than 0", ErrHeader)
		}
		return nil
	}
	lo, hi := Chunk(int(h.Length), int(h.Ranks), int(h.Chunk))
	// Every piece but a chunk's only one holds at least one value.
	if int(h.Count) > hi-lo || int(h.Piece) > max(0, hi-lo-1) {
		return fmt.Errorf("%w: piece %d, with %d values, does not fit its chunk of %d values",
			ErrHeader, h.Piece, h.Count, hi-lo)
	}
	count, payload := int(h.Count), h.Payload
	plain, scales := uint32(h.Format.EncodedLen(count)), uint32(h.Format.ScalesLen(count))
	switch {
	case h.Coding == Plain && payload != plain:
		return fmt.Errorf("%w: payload of %d bytes, but %d values in blocks of %d take %d", ErrHeader, payload, h.Count, h.Format.Block, plain)
	case h.Coding == Huffman && !h.Format.HasCodes():
		return fmt.Errorf("%w: values of %d bits cannot be shortened, because they have no codes", ErrHeader, h.Format.Bits)
	case h.Coding == Huffman && (payload <= scales || payload >= plain):
		return fmt.Errorf("%w: shortened payload of %d bytes, outside %d to %d", ErrHeader, payload, scales+1, plain-1)
	}
	return nil
}
