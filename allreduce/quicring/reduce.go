package quicring

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"testbed/allreduce"
	"testbed/allreduce/codec"
)

// Reduce writes the mean over all ranks of data into out, the same bytes on
// every rank, quantised by Config.Format. data is never modified; out has its
// length, does not overlap it, and is undefined after an error. A single worker
// gets its data back exactly. A block of codes with a value that is not finite
// on any rank is NaN on all.
//
// Cancelling ctx aborts at once; the error then wraps its cause, and the
// endpoint is ready for the next epoch. The neighbours' reductions fail too,
// and so on around the ring. A *PeerError names the peer at which it showed, which
// need not be the peer that caused it. A reduction may succeed on some ranks and
// fail on others, when its last frames are lost. After Close the error wraps
// net.ErrClosed.
func (e *Endpoint) Reduce(ctx context.Context, op Op, data, out []float32) (Result, error) {
	return e.Start(ctx, op, data, out).Wait()
}

// Reduction is a reduction that has been started.
type Reduction struct {
	done   chan struct{}
	result Result
	err    error
}

// Start begins a reduction like Reduce, and returns. Up to eight reductions run
// simultaneously; a further one fails. All workers must start them in the same
// order.
func (e *Endpoint) Start(ctx context.Context, op Op, data, out []float32) *Reduction {
	d := &Reduction{done: make(chan struct{})}
	start := time.Now()
	r, err := e.begin(op, data, out, start)
	if err != nil {
		d.err = fmt.Errorf("reduce epoch %d: %w", op.Epoch, err)
		close(d.done)
		return d
	}
	go func() {
		defer close(d.done)
		defer e.reducing.RUnlock()
		if d.result, err = r.run(ctx); err != nil {
			d.result, d.err = Result{}, fmt.Errorf("reduce epoch %d: %w", op.Epoch, err)
		}
	}()
	return d
}

// Wait returns when the reduction is over and data and out are the caller's
// again.
func (d *Reduction) Wait() (Result, error) {
	<-d.done
	return d.result, d.err
}

// begin opens the epoch. The caller finally unlocks e.reducing.
func (e *Endpoint) begin(op Op, data, out []float32, start time.Time) (r *run, err error) {
	if err := op.check(data, out); err != nil {
		return nil, err
	}
	if !e.reducing.TryRLock() {
		return nil, errClosed
	}
	defer func() {
		if err != nil {
			e.reducing.RUnlock()
		}
	}()
	if e.ctx.Err() != nil {
		return nil, errClosed
	}
	r = e.newRun(op, data, out, start)
	return r, e.inbox.begin(r.expected)
}

func (op Op) check(data, out []float32) error {
	switch {
	case len(op.Peers) == 0 || len(op.Peers) > allreduce.MaxRanks:
		return fmt.Errorf("the ring has %d peers, outside 1 to %d", len(op.Peers), allreduce.MaxRanks)
	case op.Rank < 0 || op.Rank >= len(op.Peers):
		return fmt.Errorf("rank %d is not in the ring (number of peers: %d)", op.Rank, len(op.Peers))
	case op.Round < 0 || op.Round > math.MaxUint32:
		return fmt.Errorf("round %d is outside 0 to %d", op.Round, uint32(math.MaxUint32))
	case !slices.Contains(allreduce.Algorithms, op.Algorithm):
		return fmt.Errorf("there is no algorithm %d", op.Algorithm)
	case op.Algorithm == allreduce.Hierarchical && len(op.Groups) != len(op.Peers):
		return fmt.Errorf("the number of ranks with a group is %d, but the ring has %d peers", len(op.Groups), len(op.Peers))
	case len(data) != len(out):
		return fmt.Errorf("the input has %d values, but the output has room for %d", len(data), len(out))
	case len(data) > allreduce.MaxLength:
		return fmt.Errorf("%d values exceed the limit of %d", len(data), int64(allreduce.MaxLength))
	case len(data) > 0 && &data[0] == &out[0]:
		return errors.New("input and output are the same slice")
	case op.Residual != nil && len(op.Residual) != len(data):
		return fmt.Errorf("the input has %d values, but the residual has %d", len(data), len(op.Residual))
	}
	names := make(map[string]bool, len(op.Peers))
	for i, p := range op.Peers {
		if p.Name == "" || names[p.Name] {
			return fmt.Errorf("peer %d needs a unique name, but is named %q", i, p.Name)
		}
		names[p.Name] = true
	}
	if op.Algorithm != allreduce.Ring {
		if n := len(op.groups().Peers(op.Rank)); n > maxInbound {
			return fmt.Errorf("with the %v algorithm, rank %d exchanges data with %d peers, above the limit of %d", op.Algorithm, op.Rank, n, maxInbound)
		}
	}
	return nil
}

// groups are the groups of the algorithm: one, unless it is hierarchical.
func (op Op) groups() allreduce.Groups {
	if op.Algorithm == allreduce.Hierarchical {
		return allreduce.NewGroups(op.Groups)
	}
	return allreduce.NewGroups(make([]int, len(op.Peers)))
}

// run is one reduction. Readers, one for every stream that arrives, do the
// arithmetic and queue the answers to frames. Senders, one for every connection
// of every flow, take jobs from the queues. Readers never wait for senders, so
// that frames are always consumed, whatever the order of arrival.
type run struct {
	e         *Endpoint
	op        Op
	start     time.Time
	data, out []float32
	layout    layout
	codec     codec.Codec
	outcome   *codec.Outcome
	algorithm algorithm
	flows     []*flow // one for every peer that is sent to
	expected  *expectation

	// aborted ends with the first error, if there is one. It never ends otherwise:
	// streams may deliver their last bytes after a success.
	aborted context.Context
	abort   context.CancelCauseFunc

	due           atomic.Int64 // frames not yet received
	inputs        []input      // by rank
	complete      chan struct{}
	readers       sync.WaitGroup
	received      atomic.Int64 // bytes
	reduceScatter atomic.Int64 // nanoseconds after start
	scratch       atomic.Int64 // bytes, of senders
	coding        atomic.Int64 // nanoseconds, of all readers and senders
}

// algorithm is a rank's part in a reduction. Several goroutines call its
// methods.
type algorithm interface {
	// claim returns where to store the codes of a frame from a rank, or false if
	// no such frame is due now. Every frame can be claimed once.
	claim(from int, h allreduce.Header) (codes []byte, ok bool)
	// arrived is called with every claimed frame, once its codes are there.
	// payload is the frame's payload; it belongs to the caller again afterwards.
	arrived(from int, h allreduce.Header, codes, payload []byte)
	// frame appends the frame of a job to b, which has room for it.
	frame(b []byte, j job, by *codec.Coder) []byte
	// buffers is the number of bytes held besides the outcome.
	buffers() int
}

// job is a frame to be sent.
type job struct {
	phase              allreduce.Phase
	step, chunk, piece int
	short              []byte // the payload, if it arrived or was made short
}

func (e *Endpoint) newRun(op Op, data, out []float32, start time.Time) *run {
	ranks := len(op.Peers)
	r := &run{
		e: e, op: op, start: start, data: data, out: out,
		codec:    codec.Codec{Format: e.cfg.Format, Residual: op.Residual, Short: e.shorten(op.Epoch)},
		complete: make(chan struct{}),
	}
	r.aborted, r.abort = context.WithCancelCause(context.Background())
	piece := e.cfg.PieceValues
	if piece == 0 {
		piece = allreduce.DefaultPieceValues(len(data), ranks, r.codec.Block, e.cfg.ShortPaths)
	}
	r.layout = newLayout(len(data), ranks, piece, r.codec.Format)
	r.expected = &expectation{epoch: op.Epoch, fail: r.abort, gone: r.gone}
	r.inputs = make([]input, ranks)
	if ranks == 1 {
		return r
	}
	r.outcome = &codec.Outcome{Length: len(data), Ranks: ranks, Piece: piece, Block: r.codec.Block, Bits: r.codec.Bits}
	r.outcome.Data = make([]byte, r.layout.offset[ranks])
	switch op.Algorithm {
	case allreduce.Ring:
		r.algorithm = newRingRank(r)
	default:
		r.algorithm = newGroupedRank(r, op.groups())
	}
	return r
}

// expect adds a rank that will send so many frames.
func (r *run) expect(rank, frames int) {
	r.expected.from = append(r.expected.from, r.op.Peers[rank])
	r.expected.ranks = append(r.expected.ranks, rank)
	r.due.Add(int64(frames))
	r.inputs[rank].due.Store(int64(frames))
}

// flowTo adds a rank that so many frames will be sent to.
func (r *run) flowTo(rank, frames int) *flow {
	f := &flow{r: r, to: r.op.Peers[rank], jobs: make(chan job, frames), frames: int64(frames), drained: make(chan struct{})}
	r.flows = append(r.flows, f)
	return f
}

func (r *run) run(ctx context.Context) (Result, error) {
	defer r.e.inbox.end(r.expected)
	r.e.mu.Lock()
	r.e.runs[r.op.Epoch] = r
	r.e.mu.Unlock()
	defer func() {
		r.e.mu.Lock()
		defer r.e.mu.Unlock()
		delete(r.e.runs, r.op.Epoch)
	}()
	abort := func() { r.abort(context.Cause(ctx)) }
	stop := context.AfterFunc(ctx, abort)
	stopClosed := context.AfterFunc(r.e.ctx, func() { r.abort(errClosed) })
	defer stopClosed()
	defer r.e.retire(r.op.Peers)
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	if r.algorithm == nil {
		stop()
		copy(r.out, r.data)
		clear(r.op.Residual) // nothing was quantised
		return Result{Total: time.Since(r.start)}, nil
	}

	r.e.due.Add(r.due.Load())
	defer func() { r.e.due.Add(-r.due.Load()) }() // of a failed reduction
	var flows sync.WaitGroup
	for _, f := range r.flows {
		flows.Go(f.run)
	}
	for receiving := true; receiving; {
		select {
		case <-r.expected.ready:
			for _, a := range r.e.inbox.fetch(r.expected) {
				r.read(a)
			}
		case <-r.complete:
			receiving = false
		case <-r.aborted.Done():
			receiving = false
		}
	}
	flows.Wait()
	if !stop() {
		abort() // the frame may only be on its way
	}
	if err := context.Cause(r.aborted); err != nil {
		r.readers.Wait()
		for _, f := range r.flows {
			f.suspect()
		}
		return Result{}, err
	}
	return r.result(), nil
}

func (r *run) result() Result {
	total := time.Since(r.start)
	scattered := time.Duration(r.reduceScatter.Load())
	result := Result{
		BytesReceived: r.received.Load(),
		ReduceScatter: scattered, AllGather: total - scattered, Total: total,
		BufferBytes: int64(len(r.outcome.Data)+r.algorithm.buffers()) + r.scratch.Load(),
		Coded:       r.codec.Short,
		Outcome:     r.outcome,
	}
	for _, f := range r.flows {
		result.BytesSent += f.sent.Load()
		result.Connections += int(f.used.Load())
	}
	r.e.note(r, total)
	return result
}

// scattered notes that this rank has finished its own chunk.
func (r *run) scattered() { r.reduceScatter.Store(int64(time.Since(r.start))) }

// header is the header of a job's frame.
func (r *run) header(j job) allreduce.Header {
	lo, hi := r.layout.values(j.chunk, j.piece)
	return allreduce.Header{
		Phase:     j.phase,
		Algorithm: r.op.Algorithm,
		Epoch:     r.op.Epoch,
		Length:    int64(len(r.data)),
		Round:     uint32(r.op.Round),
		Ranks:     uint16(len(r.op.Peers)),
		Step:      uint16(j.step),
		Chunk:     uint32(j.chunk),
		Piece:     uint32(j.piece),
		Count:     uint32(hi - lo),
		Format:    r.codec.Format,
		Payload:   uint32(r.codec.EncodedLen(hi - lo)),
	}
}

// endHeader is the header of a stream's end. For the last stream to its peer it
// has the number of streams, otherwise 0.
func (r *run) endHeader(streams int) allreduce.Header {
	h := r.header(job{phase: allreduce.End})
	h.Count, h.Payload = uint32(streams), 0
	return h
}

// codes are the piece's place in the outcome.
func (r *run) codes(chunk, piece int) []byte {
	at, n := r.layout.place(chunk, piece)
	return r.outcome.Data[at : at+n : at+n]
}

// layout has the positions of pieces, among the values and among the codes.
type layout struct {
	length, ranks, piece int
	format               allreduce.Format
	offset               []int // of every chunk's codes, and the end
	index                []int // of every chunk's first piece, and the end
}

func newLayout(length, ranks, piece int, f allreduce.Format) layout {
	l := layout{length: length, ranks: ranks, piece: piece, format: f, offset: make([]int, ranks+1), index: make([]int, ranks+1)}
	for i := range ranks {
		lo, hi := allreduce.Chunk(length, ranks, i)
		l.offset[i+1] = l.offset[i] + f.EncodedLen(hi-lo)
		l.index[i+1] = l.index[i] + allreduce.Pieces(hi-lo, piece)
	}
	return l
}

// pieces is the number of pieces of a chunk.
func (l *layout) pieces(chunk int) int { return l.index[chunk+1] - l.index[chunk] }

// values is the range of a piece's values in the vector.
func (l *layout) values(chunk, piece int) (lo, hi int) {
	base, end := allreduce.Chunk(l.length, l.ranks, chunk)
	lo, hi = allreduce.Piece(end-base, l.piece, piece)
	return base + lo, base + hi
}

// place is where a piece's codes begin in the outcome, and how many bytes they
// take. Pieces are whole blocks, except for the last of a chunk, so lengths add
// up.
func (l *layout) place(chunk, piece int) (at, n int) {
	base, _ := allreduce.Chunk(l.length, l.ranks, chunk)
	lo, hi := l.values(chunk, piece)
	return l.offset[chunk] + l.format.EncodedLen(lo-base), l.format.EncodedLen(hi - lo)
}

// largest is the number of bytes of the longest frame.
func (l *layout) largest() int {
	_, chunk := allreduce.Chunk(l.length, l.ranks, 0)
	return allreduce.HeaderLen + l.format.EncodedLen(min(l.piece, chunk))
}
