package codec

import (
	"fmt"

	"testbed/allreduce"
)

// Outcome is the encoded result of a reduction. With codes of 8 bits it is a
// quarter of the size of the values. A worker that missed the reduction can
// decode it to exactly the participants' bytes.
type Outcome struct {
	Length int    `json:"length"` // values
	Ranks  int    `json:"ranks"`  // they are cut into as many chunks
	Piece  int    `json:"piece"`  // values in a piece
	Block  int    `json:"block"`  // fields of the Format, in this order, for
	Bits   int    `json:"bits"`   // peers that receive the outcome
	Data   []byte `json:"-"`      // the pieces' codes, in order of the values
}

// EncodedLen returns the length of Data.
func (o *Outcome) EncodedLen() int {
	sum := 0
	for c := range o.Ranks {
		lo, hi := allreduce.Chunk(o.Length, o.Ranks, c)
		sum += o.Format().EncodedLen(hi - lo)
	}
	return sum
}

// Format is the encoding of the values.
func (o *Outcome) Format() allreduce.Format { return allreduce.Format{Bits: o.Bits, Block: o.Block} }

// Check checks the sizes before Data is filled from a peer. length is the
// number of values expected.
func (o *Outcome) Check(length int) error {
	err := o.Format().Check()
	switch {
	case o.Length != length:
		return fmt.Errorf("the result of a reduction has %d values, but must have %d", o.Length, length)
	case o.Ranks < 2 || o.Ranks > allreduce.MaxRanks:
		return fmt.Errorf("the result of a reduction has %d ranks, but must have 2 to %d", o.Ranks, allreduce.MaxRanks)
	case err != nil:
		return fmt.Errorf("the result of a reduction: %w", err)
	case o.Piece < 1 || o.Piece%o.Block != 0:
		return fmt.Errorf("the result of a reduction has pieces of %d values, which is not a positive multiple of its block size, %d", o.Piece, o.Block)
	}
	return nil
}

// Decode writes the values that every participant of the reduction has.
func (o *Outcome) Decode(out []float32) error {
	if err := o.Check(len(out)); err != nil {
		return err
	}
	if len(o.Data) != o.EncodedLen() {
		return fmt.Errorf("the outcome has %d bytes of data instead of %d", len(o.Data), o.EncodedLen())
	}
	format, at := Codec{Format: o.Format()}, 0
	for c := range o.Ranks {
		base, end := allreduce.Chunk(o.Length, o.Ranks, c)
		for i := range allreduce.Pieces(end-base, o.Piece) {
			lo, hi := allreduce.Piece(end-base, o.Piece, i)
			n := format.EncodedLen(hi - lo)
			format.Dequantise(out[base+lo:base+hi], o.Data[at:at+n])
			at += n
		}
	}
	return nil
}
