package allreduce

import (
	"errors"
	"fmt"
	"slices"
)

// Format is the encoding of values on the wire. With 8 or 4 bits, values are
// codes: signed whole numbers, with a float32 scale for every block of them.
// With 16 bits they are bfloat16, with 32 float32.
//
// The zero value is not a format; DefaultFormat is the usual one.
type Format struct {
	// Bits of a value on the wire: a code with a scale for each block (8, 4), bfloat16
	// (16) or float32 (32). 4 bits have 18 times the error of 8.
	Bits int `yaml:"bits" json:"bits"`
	// The number of values that share a scale of 4 bytes. Smaller blocks are more
	// exact. Pieces are whole blocks, even without scales.
	Block int `yaml:"block" json:"block"`
}

const (
	// DefaultBlock is the usual number of values per scale: 8.03 bits a value.
	DefaultBlock = 1024
	// MinBlock is the smallest block, and every block is a multiple of it.
	MinBlock = 16
	// MaxBlock is the largest block.
	MaxBlock = 4096
)

// scaleLen is the length of a block's scale in bytes.
const scaleLen = 4

// DefaultFormat is the format of callers that choose none.
var DefaultFormat = Format{Bits: 8, Block: DefaultBlock}

// Bits are the possible sizes of a value on the wire.
var Bits = []int{8, 4, 16, 32}

// Problem reports what is wrong with the format: the name of the field, bits or
// block, and the words that follow it in a message. Both are empty for a valid
// format.
func (f Format) Problem() (field, problem string) {
	switch {
	case !slices.Contains(Bits, f.Bits):
		return "bits", fmt.Sprintf("is %d: choose 8 or 4 for codes, 16 for bfloat16, or 32 for float32", f.Bits)
	case f.Block < MinBlock || f.Block > MaxBlock || f.Block%MinBlock != 0:
		return "block", fmt.Sprintf("is %d: it must be a multiple of %d from %d to %d", f.Block, MinBlock, MinBlock, MaxBlock)
	}
	return "", ""
}

// Check returns Problem as an error, nil if there is none.
func (f Format) Check() error {
	if field, problem := f.Problem(); field != "" {
		return errors.New(field + " " + problem)
	}
	return nil
}

// HasCodes reports whether values are codes, which have scales and can be
// shortened by entropy coding, and not floating-point numbers, which have no
// scales.
func (f Format) HasCodes() bool { return f.Bits <= 8 }

// Exact reports whether values arrive as they were sent.
func (f Format) Exact() bool { return f.Bits == 32 }

// EncodedLen returns the number of bytes that n values take.
func (f Format) EncodedLen(n int) int { return f.ScalesLen(n) + f.CodesLen(n) }

// ScalesLen returns how many bytes of the encoding of n values are scales, which
// come first.
func (f Format) ScalesLen(n int) int {
	if !f.HasCodes() {
		return 0
	}
	return scaleLen * ((n + f.Block - 1) / f.Block)
}

// CodesLen returns how many bytes n codes or floating-point numbers take.
func (f Format) CodesLen(n int) int { return (n*f.Bits + 7) / 8 }

// Name is the format in words, such as "int8 in blocks of 1024".
func (f Format) Name() string {
	switch f.Bits {
	case 32:
		return "float32"
	case 16:
		return "bfloat16"
	}
	return fmt.Sprintf("int%d in blocks of %d", f.Bits, f.Block)
}
