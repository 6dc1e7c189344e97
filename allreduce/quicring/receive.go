package quicring

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"testbed/allreduce"
	"testbed/allreduce/int8"
)

// receive waits for the predecessor's stream and works through it.
func (r *run) receive(ctx context.Context, expected *expectation) error {
	var a *arrival
	select {
	case a = <-expected.arrived:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	stop := context.AfterFunc(ctx, func() { reset(a.stream, codeAborted) })
	code, err := r.receiveAll(ctx, a)
	if stop() && err == nil {
		r.e.unended.Add(1)
		r.e.tasks.Go(func() {
			defer r.e.unended.Done()
			drain(a.stream)
		})
		// Closing this direction tells the predecessor that all is here. An
		// error would only mean that it no longer wants to know.
		a.stream.Close()
		return nil
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	reset(a.stream, code)
	return err
}

// receiveAll handles every frame of the schedule. The code is the reason to
// reset the stream with when it fails.
func (r *run) receiveAll(ctx context.Context, a *arrival) (quic.StreamErrorCode, error) {
	source := counted{a.stream, &r.e.received}
	in := r.buffers.get()
	defer func() { r.buffers.put(in) }()
	first := &a.first
	for _, phase := range []allreduce.Phase{allreduce.ReduceScatter, allreduce.AllGather} {
		for step := range r.ranks - 1 {
			for i := range r.pieces(phase, r.op.Rank-1, step) {
				want, lo, hi := r.header(phase, r.op.Rank-1, step, i)
				b := in[:allreduce.HeaderLen+want.PayloadLen()]
				if first == nil {
					if _, err := io.ReadFull(source, b[:allreduce.HeaderLen]); err != nil {
						return codeAborted, truncated(err)
					}
					h, err := allreduce.ParseHeader(b)
					if err != nil {
						return codeMalformed, err
					}
					first = &h
				}
				if err := disagreement(*first, want); err != nil {
					return codeMalformed, err
				}
				first = nil
				if _, err := io.ReadFull(source, b[allreduce.HeaderLen:]); err != nil {
					return codeAborted, truncated(err)
				}
				r.received += int64(len(b))

				answer := r.answer(phase, step, i, b, lo, hi)
				if answer == nil {
					continue
				}
				select {
				case r.queue <- answer:
				case <-ctx.Done():
					return codeAborted, context.Cause(ctx)
				}
			}
		}
		if phase == allreduce.ReduceScatter {
			r.reduceScatter = time.Since(r.start)
		}
	}
	return 0, nil
}

// answer does the arithmetic for a received frame, values [lo, hi), and
// returns the frame to send on, or nil for one whose way ends here.
func (r *run) answer(phase allreduce.Phase, step, i int, b []byte, lo, hi int) []byte {
	payload := b[allreduce.HeaderLen:]
	lastStep := step == r.ranks-2
	switch {
	case phase == allreduce.AllGather:
		int8.Dequantise(r.out[lo:hi], payload, r.block)
		r.outcome.keep(allreduce.Received(phase, r.op.Rank, r.ranks, step), lo, payload)
		if lastStep {
			return nil
		}
		h, _, _ := r.header(phase, r.op.Rank, step+1, i)
		next := r.frame(h)
		copy(next[allreduce.HeaderLen:], payload)
		return next
	case lastStep:
		// The owner finishes the chunk and keeps what all others will decode.
		h, _, _ := r.header(allreduce.AllGather, r.op.Rank, 0, i)
		next := r.frame(h)
		int8.AddRequantise(next[allreduce.HeaderLen:], payload, r.data[lo:hi], r.block, 1/float32(r.ranks))
		int8.Dequantise(r.out[lo:hi], next[allreduce.HeaderLen:], r.block)
		r.outcome.keep(int(h.Chunk), lo, next[allreduce.HeaderLen:])
		return next
	default:
		h, _, _ := r.header(phase, r.op.Rank, step+1, i)
		next := r.frame(h)
		int8.AddRequantise(next[allreduce.HeaderLen:], payload, r.data[lo:hi], r.block, 1)
		return next
	}
}

// counted counts what is read.
type counted struct {
	io.Reader
	n *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// truncated tells a stream that ended early from one that ended well.
func truncated(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// disagreement compares a header with the only one the schedule allows and
// says what differs, the things users configure first.
func disagreement(got, want allreduce.Header) error {
	switch {
	case got == want:
		return nil
	case got.Epoch != want.Epoch:
		return fmt.Errorf("frame of epoch %d", got.Epoch)
	case got.Round != want.Round:
		return fmt.Errorf("it reduces round %d, this worker round %d", got.Round, want.Round)
	case got.Ranks != want.Ranks:
		return fmt.Errorf("its ring has %d ranks, this worker's %d", got.Ranks, want.Ranks)
	case got.Length != want.Length:
		return fmt.Errorf("it reduces %d values, this worker %d", got.Length, want.Length)
	case got.Block != want.Block:
		return fmt.Errorf("its blocks have %d values, this worker's %d", got.Block, want.Block)
	case got.Phase != want.Phase || got.Step != want.Step || got.Chunk != want.Chunk || got.Piece != want.Piece:
		return fmt.Errorf("frame out of order: %v step %d chunk %d piece %d, expected %v step %d chunk %d piece %d",
			got.Phase, got.Step, got.Chunk, got.Piece, want.Phase, want.Step, want.Chunk, want.Piece)
	}
	return fmt.Errorf("its pieces have %d values, this worker's %d", got.Count, want.Count)
}
