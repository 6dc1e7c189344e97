package charlm

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
	"sync"
)

// compressed is Jane Austen's novel Persuasion, which appeared in December
// 1817, after her death: it is in the public domain everywhere. It is a
// transcription of the novel's text alone, without notes, header or licence. A
// test has its SHA-256.
//
//go:embed persuasion.txt.gz
var compressed []byte

// Text returns the text that comes with the program: Persuasion by Jane Austen,
// 466,854 bytes of 75 symbols, in the public domain. Nobody may change it.
func Text() []byte { return text() }

var text = sync.OnceValue(func() []byte {
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		panic(err) // a test reads it
	}
	text, err := io.ReadAll(r)
	if err != nil {
		panic(err)
	}
	return text
})
