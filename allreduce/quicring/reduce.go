package quicring

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"testbed/allreduce"
	"testbed/allreduce/int8"
)

// Reduce writes the mean over all ranks of data into out, the same bytes on
// every rank, quantised as package int8 says. data is never modified; out has
// its length, does not overlap it, and is undefined after an error. A worker
// alone gets its data back exactly. A block with a value that is not finite on
// any rank is NaN on all.
//
// Cancelling ctx aborts at once; the error then wraps its cause, and the
// endpoint is ready for the next epoch. The neighbours' reductions fail too,
// and so on around the ring. A *PeerError names the peer at which it showed,
// which need not be the peer that caused it. A reduction may succeed on some ranks
// and fail on others, when its last frames are lost.
func (e *Endpoint) Reduce(ctx context.Context, op Op, data, out []float32) (Result, error) {
	result, err := e.reduce(ctx, op, data, out)
	if err != nil {
		return Result{}, fmt.Errorf("reduce epoch %d: %w", op.Epoch, err)
	}
	return result, nil
}

func (e *Endpoint) reduce(ctx context.Context, op Op, data, out []float32) (Result, error) {
	start := time.Now()
	if err := op.check(data, out); err != nil {
		return Result{}, err
	}
	if !e.reducing.TryLock() {
		if e.ctx.Err() != nil {
			return Result{}, errClosed
		}
		return Result{}, errors.New("another reduction is running on this endpoint")
	}
	defer e.reducing.Unlock()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.ctx, func() { cancel(errClosed) })()

	r := e.newRun(op, data, out, start)
	expected, err := e.inbox.begin(op.Epoch, r.from.Name, cancel)
	if err != nil {
		return Result{}, err
	}
	defer e.inbox.end()
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	if r.ranks == 1 {
		copy(out, data)
		return Result{Total: time.Since(start)}, nil
	}
	return r.run(ctx, cancel, expected)
}

func (op Op) check(data, out []float32) error {
	switch {
	case len(op.Peers) == 0 || len(op.Peers) > allreduce.MaxRanks:
		return fmt.Errorf("ring of %d peers is outside 1 to %d", len(op.Peers), allreduce.MaxRanks)
	case op.Rank < 0 || op.Rank >= len(op.Peers):
		return fmt.Errorf("rank %d in a ring of %d", op.Rank, len(op.Peers))
	case op.Round < 0 || op.Round > math.MaxUint32:
		return fmt.Errorf("round %d is outside 0 to %d", op.Round, uint32(math.MaxUint32))
	case len(data) != len(out):
		return fmt.Errorf("%d values to reduce, room for %d", len(data), len(out))
	case len(data) > allreduce.MaxLength:
		return fmt.Errorf("%d values are more than %d", len(data), int64(allreduce.MaxLength))
	case len(data) > 0 && &data[0] == &out[0]:
		return errors.New("input and output are the same slice")
	}
	names := make(map[string]bool, len(op.Peers))
	for i, p := range op.Peers {
		if p.Name == "" || names[p.Name] {
			return fmt.Errorf("peer %d has no name of its own: %q", i, p.Name)
		}
		names[p.Name] = true
	}
	return nil
}

// run is one reduction. Two goroutines share it: the receiver, which is the
// caller's, and the sender. Frames go from one to the other through queue.
//
// The queue holds one chunk's worth of frames, and the receiver stops reading
// while it is full. That cannot deadlock the ring. Suppose every worker is
// stuck: each receiver then has a frame in hand and a full queue before it,
// which is ranks × (one chunk + 1) frames. But each rank puts only one chunk
// of its own into the ring, every later frame replaces one received, and none
// is ever doubled: there are at most ranks × one chunk of frames. So some
// receiver reads on, its predecessor's sender gets on, and the queue behind
// that sender drains.
type run struct {
	e         *Endpoint
	op        Op
	start     time.Time
	data, out []float32
	ranks     int
	block     int
	piece     int // values
	from, to  Peer
	outcome   *Outcome
	buffers   *bufferPool
	queue     chan []byte

	sent          int64 // bytes; the sender's
	received      int64 // bytes; the receiver's
	reduceScatter time.Duration
}

func (e *Endpoint) newRun(op Op, data, out []float32, start time.Time) *run {
	ranks := len(op.Peers)
	r := &run{
		e: e, op: op, start: start, data: data, out: out,
		ranks: ranks,
		block: e.cfg.Block,
		piece: e.cfg.PieceValues,
		from:  op.Peers[(op.Rank+ranks-1)%ranks],
		to:    op.Peers[(op.Rank+1)%ranks],
	}
	if r.piece == 0 {
		r.piece = allreduce.DefaultPieceValues(len(data), ranks, r.block)
	}
	r.outcome = &Outcome{Length: len(data), Ranks: ranks, Piece: r.piece, Block: r.block}
	if ranks > 1 {
		r.outcome.Data = make([]byte, r.outcome.EncodedLen())
	}
	_, largest := allreduce.Chunk(len(data), ranks, 0)
	frames := allreduce.Pieces(largest, r.piece)
	values := min(r.piece, largest)
	r.queue = make(chan []byte, frames)
	// Two more: one in the receiver's hand, one in the sender's.
	r.buffers = e.poolFor(allreduce.HeaderLen+int8.EncodedLen(values, r.block), frames+2)
	return r
}

func (r *run) run(ctx context.Context, cancel context.CancelCauseFunc, expected *expectation) (Result, error) {
	sender := make(chan error, 1)
	go func() {
		err := r.send(ctx)
		if err != nil {
			err = &PeerError{r.to.Name, fmt.Errorf("send to %s: %w", r.to.Name, explain(err))}
			cancel(err)
		}
		sender <- err
	}()
	receiveErr := r.receive(ctx, expected)
	if receiveErr != nil {
		cancel(&PeerError{r.from.Name, fmt.Errorf("receive from %s: %w", r.from.Name, explain(receiveErr))})
	}
	close(r.queue)
	if sendErr := <-sender; sendErr != nil || receiveErr != nil {
		return Result{}, context.Cause(ctx) // the first thing that went wrong
	}
	total := time.Since(r.start)
	return Result{
		BytesSent: r.sent, BytesReceived: r.received,
		ReduceScatter: r.reduceScatter, AllGather: total - r.reduceScatter, Total: total,
		Outcome: r.outcome,
	}, nil
}

// header is that of piece i of the chunk which rank sends in a step.
func (r *run) header(p allreduce.Phase, rank, step, i int) (h allreduce.Header, lo, hi int) {
	chunk := allreduce.Sent(p, rank, r.ranks, step)
	base, end := allreduce.Chunk(len(r.data), r.ranks, chunk)
	lo, hi = allreduce.Piece(end-base, r.piece, i)
	return allreduce.Header{
		Phase:  p,
		Epoch:  r.op.Epoch,
		Length: int64(len(r.data)),
		Round:  uint32(r.op.Round),
		Ranks:  uint16(r.ranks),
		Step:   uint16(step),
		Chunk:  uint32(chunk),
		Piece:  uint32(i),
		Count:  uint32(hi - lo),
		Block:  uint32(r.block),
	}, base + lo, base + hi
}

// pieces is the number of frames that rank sends in a step.
func (r *run) pieces(p allreduce.Phase, rank, step int) int {
	lo, hi := allreduce.Chunk(len(r.data), r.ranks, allreduce.Sent(p, rank, r.ranks, step))
	return allreduce.Pieces(hi-lo, r.piece)
}

// frame returns a buffer with the header in place; the payload follows it.
func (r *run) frame(h allreduce.Header) []byte {
	b := r.buffers.get()
	allreduce.AppendHeader(b[:0], h)
	return b[:allreduce.HeaderLen+h.PayloadLen()]
}
