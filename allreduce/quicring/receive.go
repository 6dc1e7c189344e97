package quicring

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"testbed/allreduce"
)

// read starts a reader of an arrived stream. It no longer uses data and out
// once the reduction is complete, but still waits for the stream's end.
func (r *run) read(a *arrival) {
	stop := context.AfterFunc(r.aborted, func() { reset(a.stream, codeAborted) })
	r.readers.Add(1)
	r.e.unended.Add(1)
	r.e.tasks.Go(func() {
		defer r.e.unended.Done()
		defer r.readers.Done()
		code, err := r.readAll(a)
		if err == nil && stop() {
			// Closing this direction tells the peer that everything has arrived. An
			// error would only mean that it no longer wants to know.
			a.stream.Close()
			return
		}
		if err == nil {
			err = context.Cause(r.aborted)
		}
		select {
		case <-r.complete: // the peer can send nothing more that matters
		default:
			name := r.op.Peers[a.rank].Name
			r.abort(&PeerError{name, fmt.Errorf("receive from %s: %w", name, explain(err))})
		}
		reset(a.stream, code)
	})
}

// readAll handles the frames of a stream until its end. If it fails, the code
// is the reason for resetting the stream.
func (r *run) readAll(a *arrival) (quic.StreamErrorCode, error) {
	h := a.first
	var b [allreduce.HeaderLen]byte
	in := counted{a.stream, &r.e.received}
	by := r.e.coders.get()
	defer r.putBack(by)
	for {
		codes, err := r.claim(a.rank, h)
		if err != nil {
			return codeMalformed, err
		}
		payload := codes
		if h.Coding != allreduce.Plain {
			payload = by.Room(int(h.Payload))
		}
		if _, err := io.ReadFull(in, payload); err != nil {
			return codeAborted, truncated(err)
		}
		if h.Coding != allreduce.Plain {
			if err := r.codec.Restore(codes, payload, h, by); err != nil {
				return codeMalformed, fmt.Errorf("shortened codes: %w", err)
			}
		}
		r.received.Add(int64(len(b) + len(payload)))
		r.algorithm.arrived(a.rank, h, codes, payload)
		r.inputs[a.rank].due.Add(-1)
		r.e.due.Add(-1)
		if r.due.Add(-1) == 0 {
			close(r.complete)
			a.stream.SetReadDeadline(time.Now().Add(r.e.cfg.patient(holdTime)))
		}
		if _, err = io.ReadFull(in, b[:]); err != nil {
			return codeAborted, truncated(err)
		}
		if h, err = allreduce.ParseHeader(b[:]); err != nil {
			return codeMalformed, err
		}
		if h.Phase == allreduce.End {
			return r.ended(a, h)
		}
	}
}

// input is the traffic that is still to come from a rank.
type input struct {
	due atomic.Int64 // frames not yet received

	mu      sync.Mutex
	ended   int // streams
	streams int // in all; 0 until the end of the last one has arrived
}

// ended handles the end of a stream. Streams of one peer may begin and end in
// any order, on new connections too, so that only their number shows that no
// more will come.
func (r *run) ended(a *arrival, h allreduce.Header) (quic.StreamErrorCode, error) {
	if err := disagreement(h, r.endHeader(int(h.Count))); err != nil {
		return codeMalformed, err
	}
	if _, err := io.ReadFull(a.stream, make([]byte, 1)); err != io.EOF {
		return codeMalformed, errors.New("data follows the end of a stream")
	}
	s := &r.inputs[a.rank]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended++
	s.streams = max(s.streams, int(h.Count))
	if n := s.due.Load(); s.ended == s.streams && n > 0 {
		return codeMalformed, fmt.Errorf("all streams of the peer ended before its last frame (missing frames: %d)", n)
	}
	return 0, nil
}

// gone is called when all connections of a peer with streams have ended.
func (r *run) gone(rank int) {
	if n := r.inputs[rank].due.Load(); n > 0 {
		name := r.op.Peers[rank].Name
		r.abort(&PeerError{name, fmt.Errorf("receive from %s: all connections of the peer ended before its last frame (missing frames: %d)", name, n)})
	}
}

// counted counts the bytes read.
type counted struct {
	io.Reader
	n *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// claim returns the place for the codes of a frame that is due.
func (r *run) claim(from int, got allreduce.Header) ([]byte, error) {
	if got.Phase == allreduce.End {
		return nil, errors.New("a stream ended before its first frame")
	}
	want := got
	want.Epoch, want.Round, want.Ranks = r.op.Epoch, uint32(r.op.Round), uint16(len(r.op.Peers))
	want.Algorithm, want.Length = r.op.Algorithm, int64(len(r.data))
	want.Format = r.codec.Format
	if got == want && int(got.Piece) < r.layout.pieces(int(got.Chunk)) {
		want = r.header(job{phase: got.Phase, step: int(got.Step), chunk: int(got.Chunk), piece: int(got.Piece)})
		want.Coding, want.Payload = got.Coding, got.Payload // checked by the header's parser
	}
	if err := disagreement(got, want); err != nil {
		return nil, err
	}
	if int(got.Piece) < r.layout.pieces(int(got.Chunk)) {
		if codes, ok := r.algorithm.claim(from, got); ok {
			return codes, nil
		}
	}
	return nil, fmt.Errorf("frame out of order: %v, step %d, chunk %d, piece %d", got.Phase, got.Step, got.Chunk, got.Piece)
}

// truncated turns the regular end of a stream into an error, if the stream
// ended early.
func truncated(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// disagreement names the difference between a frame and its reduction,
// beginning with the settings that users configure.
func disagreement(got, want allreduce.Header) error {
	switch {
	case got == want:
		return nil
	case got.Epoch != want.Epoch:
		return fmt.Errorf("the peer's frame has the epoch %d, but this reduction has the epoch %d", got.Epoch, want.Epoch)
	case got.Round != want.Round:
		return fmt.Errorf("the peer reduces round %d, but this worker reduces round %d", got.Round, want.Round)
	case got.Ranks != want.Ranks:
		return fmt.Errorf("the peer's ring has %d ranks, but this worker's ring has %d", got.Ranks, want.Ranks)
	case got.Algorithm != want.Algorithm:
		return fmt.Errorf("the peer's algorithm is %v, but this worker's algorithm is %v", got.Algorithm, want.Algorithm)
	case got.Length != want.Length:
		return fmt.Errorf("the peer reduces %d values, but this worker reduces %d", got.Length, want.Length)
	case got.Format.Block != want.Format.Block:
		return fmt.Errorf("the peer's blocks have %d values, but this worker's blocks have %d", got.Format.Block, want.Format.Block)
	case got.Format.Bits != want.Format.Bits:
		return fmt.Errorf("the peer's values have %d bits, but this worker's values have %d", got.Format.Bits, want.Format.Bits)
	}
	return fmt.Errorf("the peer's pieces have %d values, but this worker's pieces have %d", got.Count, want.Count)
}
