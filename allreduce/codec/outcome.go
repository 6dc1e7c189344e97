package codec

import (
	"errors"
	"fmt"
	"slices"

	"testbed/allreduce"
)

// Outcome is the result of a reduction as it went over the wire: with codes of 8
// bits a quarter of the size of the values. Whoever missed the reduction can decode
// it to the very bytes that the participants hold.
type Outcome struct {
	Length int    `json:"length"` // values
	Ranks  int    `json:"ranks"`  // they are cut into as many chunks
	Piece  int    `json:"piece"`  // values in a piece
	Block  int    `json:"block"`  // values that share a scale
	Bits   int    `json:"bits"`   // of a value
	Data   []byte `json:"-"`      // the pieces' codes, in order of the values
}

// EncodedLen returns the length of Data.
func (o *Outcome) EncodedLen() int {
	sum := 0
	for c := range o.Ranks {
		lo, hi := allreduce.Chunk(o.Length, o.Ranks, c)
		sum += o.format().EncodedLen(hi - lo)
	}
	return sum
}

func (o *Outcome) format() Format { return Format{Bits: o.Bits, Block: o.Block} }

// Check reports whether the sizes make sense, before Data is filled from a
// peer. length is the number of values expected.
func (o *Outcome) Check(length int) error {
	switch {
	case o.Length != length:
		return fmt.Errorf("outcome of %d values, expected %d", o.Length, length)
	case o.Ranks < 2 || o.Ranks > allreduce.MaxRanks:
		return fmt.Errorf("outcome of %d ranks is outside 2 to %d", o.Ranks, allreduce.MaxRanks)
	case o.Block < 1 || o.Block > allreduce.MaxBlock:
		return fmt.Errorf("outcome with blocks of %d values is outside 1 to %d", o.Block, allreduce.MaxBlock)
	case !slices.Contains(allreduce.Bits, o.Bits):
		return fmt.Errorf("outcome with values of %d bits; there are %v", o.Bits, allreduce.Bits)
	case o.Piece < 1 || o.Piece%o.Block != 0:
		return fmt.Errorf("outcome with pieces of %d values, which are not whole blocks of %d", o.Piece, o.Block)
	}
	return nil
}

// Decode writes the values that every participant of the reduction got.
func (o *Outcome) Decode(out []float32) error {
	if err := o.Check(len(out)); err != nil {
		return err
	}
	if len(o.Data) != o.EncodedLen() {
		return errors.New("outcome is incomplete")
	}
	at := 0
	for c := range o.Ranks {
		base, end := allreduce.Chunk(o.Length, o.Ranks, c)
		for i := range allreduce.Pieces(end-base, o.Piece) {
			lo, hi := allreduce.Piece(end-base, o.Piece, i)
			n := o.format().EncodedLen(hi - lo)
			o.format().Dequantise(out[base+lo:base+hi], o.Data[at:at+n])
			at += n
		}
	}
	return nil
}
