package quicring

import (
	"context"

	"github.com/quic-go/quic-go"

	"testbed/allreduce"
	"testbed/allreduce/int8"
)

// send writes this rank's own chunk and then whatever the receiver queues.
func (r *run) send(ctx context.Context) error {
	link, err := r.e.connect(ctx, r.to)
	if err != nil {
		return err
	}
	stream, err := link.conn.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { reset(stream, codeAborted) })
	err = r.sendAll(ctx, stream)
	if stop() && err == nil {
		return link.finish(stream, &r.e.tasks)
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	reset(stream, codeAborted)
	link.doubt()
	return err
}

func (r *run) sendAll(ctx context.Context, stream *quic.Stream) error {
	for i := range r.pieces(allreduce.ReduceScatter, r.op.Rank, 0) {
		h, lo, hi := r.header(allreduce.ReduceScatter, r.op.Rank, 0, i)
		b := r.frame(h)
		int8.Quantise(b[allreduce.HeaderLen:], r.data[lo:hi], r.block)
		if err := r.write(stream, b); err != nil {
			return err
		}
	}
	for {
		select {
		case b, more := <-r.queue:
			if !more {
				return context.Cause(ctx)
			}
			if err := r.write(stream, b); err != nil {
				return err
			}
		case <-stream.Context().Done():
			// The successor gave up. Heeding it also when there is nothing to
			// write lets an abort travel all the way back around the ring; the
			// other way it can get lost, because a reset overtakes the data and
			// with it the header that says which reduction it is about.
			return context.Cause(stream.Context())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (r *run) write(stream *quic.Stream, b []byte) error {
	n, err := stream.Write(b)
	r.sent += int64(n)
	r.buffers.put(b)
	return err
}
