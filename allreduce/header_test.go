package allreduce

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
)

func drawHeader(t *rapid.T) Header {
	ranks := rapid.IntRange(2, MaxRanks).Draw(t, "ranks")
	chunk := rapid.IntRange(0, ranks-1).Draw(t, "chunk")
	length := rapid.Int64Range(0, MaxLength).Draw(t, "length")
	lo, hi := Chunk(int(length), ranks, chunk)
	h := Header{
		Phase:     rapid.SampledFrom([]Phase{ReduceScatter, AllGather}).Draw(t, "phase"),
		Algorithm: rapid.SampledFrom(Algorithms).Draw(t, "algorithm"),
		Epoch:     rapid.Uint64().Draw(t, "epoch"),
		Length:    length,
		Round:     rapid.Uint32().Draw(t, "round"),
		Ranks:     uint16(ranks),
		Chunk:     uint32(chunk),
		Piece:     uint32(rapid.IntRange(0, max(0, min(hi-lo-1, math.MaxUint32))).Draw(t, "piece")),
		Count:     uint32(rapid.IntRange(0, min(hi-lo, MaxPieceValues)).Draw(t, "count")),
		Format:    Format{Block: MinBlock * rapid.IntRange(1, MaxBlock/MinBlock).Draw(t, "block/16"), Bits: rapid.SampledFrom(Bits).Draw(t, "bits")},
	}
	h.Step = uint16(rapid.IntRange(0, int(h.Algorithm.lastStep(h.Ranks))).Draw(t, "step"))
	if rapid.Bool().Draw(t, "end") {
		h.Phase, h.Step, h.Chunk, h.Piece = End, 0, 0, 0
		return h
	}
	plain := h.Format.EncodedLen(int(h.Count))
	h.Payload = uint32(plain)
	if least := h.Format.ScalesLen(int(h.Count)) + 1; h.Count > 0 && h.Format.HasCodes() && rapid.Bool().Draw(t, "short") && least < plain {
		h.Coding = Huffman
		h.Payload = uint32(rapid.IntRange(least, plain-1).Draw(t, "payload"))
	}
	return h
}

func TestHeaderRoundTrip(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		want := drawHeader(t)
		b := AppendHeader([]byte("before"), want)[len("before"):]
		if len(b) != HeaderLen {
			t.Fatalf("%d bytes", len(b))
		}
		got, err := ParseHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestHeaderRefusals(t *testing.T) {
	good := Header{Phase: ReduceScatter, Epoch: 7, Length: 1000, Round: 3, Ranks: 4, Step: 2, Chunk: 1, Count: 250, Format: DefaultFormat, Payload: 254}
	encoded := AppendHeader(nil, good)
	if _, err := ParseHeader(encoded); err != nil {
		t.Fatal(err)
	}
	put16 := func(off int, v uint16) func([]byte) { return func(b []byte) { binary.BigEndian.PutUint16(b[off:], v) } }
	put32 := func(off int, v uint32) func([]byte) { return func(b []byte) { binary.BigEndian.PutUint32(b[off:], v) } }
	put64 := func(off int, v uint64) func([]byte) { return func(b []byte) { binary.BigEndian.PutUint64(b[off:], v) } }
	for _, test := range []struct {
		says string
		edit func([]byte)
	}{
		{"magic", put32(0, 1)},
		{"version 1", func(b []byte) { b[4] = 1 }},
		{"phase 0", func(b []byte) { b[5] = 0 }},
		{"phase 4", func(b []byte) { b[5] = 4 }},
		{"the end of a stream has a coding, step, chunk, piece or payload", func(b []byte) { b[5] = 3 }},
		{"algorithm 3", func(b []byte) { b[6] = 3 }},
		{"step 2", func(b []byte) { b[6] = 1 }},
		{"step 2", func(b []byte) { b[6] = 2 }},
		{"coding 2", func(b []byte) { b[7] = 2 }},
		{"shortened payload of 254", func(b []byte) { b[7] = 1 }},
		{"shortened payload of 4", func(b []byte) { b[7], b[51] = 1, 4 }},
		{"bits", func(b []byte) { b[46] = 2 }},
		{"flags", func(b []byte) { b[47] = 1 }},
		{"payload of 254", func(b []byte) { b[46] = 4 }},
		{"250 values in blocks of 1024 take 500", func(b []byte) { b[46] = 16 }},
		{"250 values in blocks of 1024 take 1000", func(b []byte) { b[46] = 32 }},
		{"they have no codes", func(b []byte) { b[7], b[46] = 1, 16 }},
		{"length", put64(16, MaxLength+1)},
		{"length", put64(16, 1<<63)},
		{"ranks", put16(28, 1)},
		{"ranks", put16(28, MaxRanks+1)},
		{"step", put16(30, 3)},
		{"chunk", put32(32, 4)},
		{"does not fit", put32(36, 250)},
		{"does not fit", put32(40, 251)},
		{"piece of", put32(40, MaxPieceValues+1)},
		{"block", put16(44, 0)},
		{"block", put16(44, 24)},
		{"block", put16(44, MaxBlock+MinBlock)},
		{"payload", put32(48, 253)},
		{"payload", put32(48, 1<<31)},
	} {
		b := bytes.Clone(encoded)
		test.edit(b)
		_, err := ParseHeader(b)
		if !errors.Is(err, ErrHeader) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("want an error about %q, got %v", test.says, err)
		}
	}
	if _, err := ParseHeader(encoded[:HeaderLen-1]); !errors.Is(err, ErrHeader) {
		t.Errorf("short header: %v", err)
	}
}

func FuzzParseHeader(f *testing.F) {
	f.Add(AppendHeader(nil, Header{Phase: AllGather, Ranks: 2, Format: DefaultFormat}))
	f.Add(AppendHeader(nil, Header{Phase: ReduceScatter, Epoch: 9, Length: 4097, Ranks: 2, Chunk: 1, Count: 2048, Format: Format{4, 16}, Payload: 1024 + 4*128}))
	f.Add(AppendHeader(nil, Header{Phase: ReduceScatter, Length: 4097, Ranks: 2, Chunk: 1, Count: 2048, Format: Format{32, 16}, Payload: 8192}))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHeader(b)
		if err != nil {
			return
		}
		if h.Count > MaxPieceValues || h.Payload > 4*MaxPieceValues {
			t.Fatalf("accepted %+v", h)
		}
		if again := AppendHeader(nil, h); !bytes.Equal(again, b[:HeaderLen]) {
			t.Fatalf("%x encodes back to %x", b[:HeaderLen], again)
		}
	})
}

// TestFramesLenIsWhatAChunksFramesHave.
func TestFramesLenIsWhatAChunksFramesHave(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		values := rapid.IntRange(0, 300_000).Draw(t, "values")
		block := MinBlock * rapid.IntRange(1, MaxBlock/MinBlock).Draw(t, "blocks")
		piece := block * rapid.IntRange(1, 64).Draw(t, "blocks of a piece")
		bits := rapid.SampledFrom([]int{4, 8}).Draw(t, "bits")
		want := 0
		for p := range Pieces(values, piece) {
			lo, hi := Piece(values, piece, p)
			want += HeaderLen + Format{bits, block}.EncodedLen(hi-lo)
		}
		if got := FramesLen(float64(values), piece, block, float64(bits)); got != float64(want) {
			t.Fatalf("%v bytes, the frames have %d", got, want)
		}
	})
}
