package state

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"testbed/policy/worker"

	"github.com/klauspost/compress/zstd"
)

// A state is sent in chunks of its values: parameters, then momentum and then,
// for a region's state, the last state that all regions agreed on. On the wire
// a chunk is a length and as many bytes: the values' first bytes, then their
// second ones and so on, because only the signs and exponents compress. zstd
// compresses them if that shortens them. A length of zero is a keep-alive
// instead of a chunk.
const (
	// chunkValues is the number of values in a chunk.
	chunkValues = 64 << 10
	// stretch is the number of chunks per request.
	stretch    = worker.RequestBytes / (4 * chunkValues)
	compressed = 1 << 31 // flag in a length
)

// ChunkValues is the number of values in a chunk, the same on all workers of a
// run. Tests, whose states are small, lower it before anything else.
var ChunkValues = chunkValues

// chunks returns the number of chunks of the state.
func (s *Snapshot) chunks() int {
	return vectorChunks(len(s.Parameters)) + vectorChunks(len(s.Momentum)) + vectorChunks(len(s.Agreed))
}

func vectorChunks(n int) int { return (n + ChunkValues - 1) / ChunkValues }

// chunk returns the values of chunk i.
func (s *Snapshot) chunk(i int) []float32 {
	v := s.Parameters
	n := vectorChunks(len(v))
	switch i / n {
	case 1:
		v = s.Momentum
	case 2:
		v = s.Agreed
	}
	i %= n
	return v[i*ChunkValues : min(len(v), (i+1)*ChunkValues)]
}

type chunkWriter struct {
	w          io.Writer
	zstd       *zstd.Encoder
	plain, out []byte
}

func newChunkWriter(w io.Writer) (*chunkWriter, error) {
	// Higher levels do not compress better: mantissas are noise. With a larger
	// window than a chunk (4 MiB by default), the encoder takes 8 MiB of memory
	// for nothing, and every fetch triggers the garbage collector.
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(256<<10))
	if err != nil {
		return nil, fmt.Errorf("compressing a chunk: %w", err)
	}
	return &chunkWriter{w: w, zstd: enc}, nil
}

func (c *chunkWriter) close() { c.zstd.Close() }

func (c *chunkWriter) write(v []float32) error {
	n := len(v)
	if len(c.plain) < 4*n {
		c.plain = make([]byte, 4*n)
	}
	plain := c.plain[:4*n]
	for i, f := range v {
		u := math.Float32bits(f)
		plain[i], plain[n+i], plain[2*n+i], plain[3*n+i] = byte(u>>24), byte(u>>16), byte(u>>8), byte(u)
	}
	c.out = c.zstd.EncodeAll(plain, append(c.out[:0], 0, 0, 0, 0))
	length := uint32(len(c.out)-4) | compressed
	if len(c.out)-4 >= len(plain) {
		c.out = append(c.out[:4], plain...)
		length = uint32(len(plain))
	}
	binary.BigEndian.PutUint32(c.out, length)
	_, err := c.w.Write(c.out)
	return err
}

// keepAlive announces that the next chunk takes a while.
func (c *chunkWriter) keepAlive() error {
	_, err := c.w.Write([]byte{0, 0, 0, 0})
	return err
}

type chunkReader struct {
	r         io.Reader
	zstd      *zstd.Decoder
	in, plain []byte
	bytes     int64 // read so far
}

func newChunkReader(r io.Reader) (*chunkReader, error) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<20))
	if err != nil {
		return nil, fmt.Errorf("decompressing a chunk: %w", err)
	}
	return &chunkReader{r: r, zstd: dec}, nil
}

func (c *chunkReader) close() { c.zstd.Close() }

// read fills v with the next chunk.
func (c *chunkReader) read(v []float32) error {
	n := len(v)
	var head [4]byte
	length := uint32(0)
	for length == 0 {
		if _, err := io.ReadFull(c.r, head[:]); err != nil {
			return fmt.Errorf("reading a chunk: %w", err)
		}
		length = binary.BigEndian.Uint32(head[:])
	}
	squeezed := length&compressed != 0
	length &^= compressed
	if length > uint32(4*n) || !squeezed && length != uint32(4*n) {
		return fmt.Errorf("reading a chunk: the chunk contains %d bytes for %d values", length, n)
	}
	if len(c.in) < int(length) {
		c.in = make([]byte, length)
	}
	plain := c.in[:length]
	if _, err := io.ReadFull(c.r, plain); err != nil {
		return fmt.Errorf("reading a chunk: %w", err)
	}
	c.bytes += int64(len(head)) + int64(length)
	if squeezed {
		var err error
		if c.plain, err = c.zstd.DecodeAll(plain, c.plain[:0]); err != nil {
			return fmt.Errorf("decompressing a chunk: %w", err)
		}
		if plain = c.plain; len(plain) != 4*n {
			return fmt.Errorf("decompressing a chunk: the chunk has %d bytes instead of %d", len(plain), 4*n)
		}
	}
	for i := range v {
		v[i] = math.Float32frombits(uint32(plain[i])<<24 | uint32(plain[n+i])<<16 | uint32(plain[2*n+i])<<8 | uint32(plain[3*n+i]))
	}
	return nil
}
