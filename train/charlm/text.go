package charlm

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
)

// compressed is Jane Austen's novel Persuasion, published in 1817: in the public
// domain everywhere. The text is Project Gutenberg's (ebook 105) without its
// header and licence, as it was, line ends included.
//
//go:embed persuasion.txt.gz
var compressed []byte

// Text returns the text that comes with the program: Persuasion by Jane Austen,
// 466,854 bytes of 75 symbols, in the public domain.
func Text() []byte {
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		panic(err) // a test reads it
	}
	text, err := io.ReadAll(r)
	if err != nil {
		panic(err)
	}
	return text
}
