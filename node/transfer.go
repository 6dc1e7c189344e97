package node

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"testbed/allreduce/quicring"
	"testbed/node/identity"
	"testbed/worker"
)

// The state transfer: whoever needs the outer state opens a stream to a donor
// and asks in one line of JSON. The donor answers with a line that describes
// what follows: the quantised outcomes of the outer steps that the asker has
// missed, where those are few. Otherwise nothing follows yet: the asker then
// asks for the chunks of the state with the hash that the line names, a stretch
// at a time, of that donor and of others that hold the same. What it has got
// when a donor fails it keeps, and goes on from there with the next.
const (
	transferALPN  = "testbed-state/2"
	donorPatience = 30 * time.Second // for an outer step that is on its way
	transferIdle  = 30 * time.Second
	// chunkPatience bounds how long a stream of chunks may stand still. A donor
	// that is busy says so once in a keepAlivePeriod.
	chunkPatience   = 4 * time.Second
	keepAlivePeriod = time.Second
	maxHeader       = 64 << 10
	maxRequest      = 1 << 10
	servedStates    = 2
)

type stateRequest struct {
	OuterSteps int `json:"outer_steps"` // the least version wanted
	// Have is the version that the asker holds; absent, it holds none.
	Have *int `json:"have,omitempty"`
	// Hash names a state of which the asker has a part already, or wants
	// chunks From, From+1, … To-1.
	Hash string `json:"hash,omitempty"`
	From int    `json:"from,omitempty"`
	To   int    `json:"to,omitempty"`
}

type stateHeader struct {
	OuterSteps int                 `json:"outer_steps"`
	Parameters int                 `json:"parameters"`
	Hash       string              `json:"hash"`     // of the state, in the end
	Outcomes   []*quicring.Outcome `json:"outcomes"` // null: the whole state is needed
	Error      string              `json:"error,omitempty"`
}

func transferQUIC() *quic.Config {
	return &quic.Config{
		MaxIdleTimeout:                 transferIdle,
		KeepAlivePeriod:                transferIdle / 3,
		InitialPacketSize:              initialPacket,
		InitialStreamReceiveWindow:     4 << 20,
		MaxStreamReceiveWindow:         16 << 20,
		InitialConnectionReceiveWindow: 4 << 20,
		MaxConnectionReceiveWindow:     16 << 20,
		MaxIncomingStreams:             1,
		MaxIncomingUniStreams:          -1,
	}
}

// donor serves a model's outer state to the peers of the run.
type donor struct {
	transport *quic.Transport
	listener  *quic.Listener
	model     *model
	log       *slog.Logger
	// busy says whether the network is needed for something else: chunks wait
	// until then, so that a joiner does not hold a reduction up.
	busy  func() bool
	tasks sync.WaitGroup

	mu sync.Mutex
	// served are the states last asked for, at most servedStates: whoever fetches
	// one may need longer than it stays current.
	served []*state
}

func newDonor(conn net.PacketConn, tlsConfig *tls.Config, m *model, busy func() bool, tracing Tracing, log *slog.Logger) (*donor, error) {
	t := &quic.Transport{Conn: conn}
	l, err := t.Listen(identity.For(tlsConfig, transferALPN, ""), tracing.add(transferQUIC(), "state"))
	if err != nil {
		return nil, fmt.Errorf("listening for state fetches on %s: %w", conn.LocalAddr(), err)
	}
	return &donor{transport: t, listener: l, model: m, busy: busy, log: log}, nil
}

// serve answers until ctx ends or the donor is closed.
func (d *donor) serve(ctx context.Context) {
	for {
		conn, err := d.listener.Accept(ctx)
		if err != nil {
			return
		}
		d.tasks.Go(func() {
			for {
				stream, err := conn.AcceptStream(ctx)
				if err != nil {
					return // the peer has what it wanted, or is gone
				}
				if err := d.answer(ctx, conn, stream); err != nil {
					d.log.Warn("state transfer failed", "peer", identity.Peer(conn), "err", err)
					conn.CloseWithError(1, "bad request")
					return
				}
			}
		})
	}
}

func (d *donor) answer(ctx context.Context, conn *quic.Conn, stream *quic.Stream) error {
	defer stream.Close()
	stream.SetReadDeadline(time.Now().Add(chunkPatience))
	var req stateRequest
	dec := json.NewDecoder(io.LimitReader(stream, maxRequest))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil {
		stream.CancelRead(1)
		return fmt.Errorf("reading the request: %w", err)
	}
	stream.CancelRead(0) // whatever else it says
	ctx, cancel := context.WithTimeout(ctx, donorPatience)
	defer cancel()
	for {
		steps, changed := d.model.version()
		if steps >= req.OuterSteps {
			break
		}
		select {
		case <-changed:
		case <-conn.Context().Done():
			return context.Cause(conn.Context())
		case <-ctx.Done():
			return json.NewEncoder(stream).Encode(stateHeader{Error: fmt.Sprintf("the donor is at outer step %d, not yet at %d", steps, req.OuterSteps)})
		}
	}
	return d.deliver(conn.Context(), &patient{stream, chunkPatience}, req)
}

func (d *donor) deliver(ctx context.Context, w io.Writer, req stateRequest) error {
	if req.Have != nil {
		if outcomes, hash, ok := d.model.since(*req.Have); ok {
			header := stateHeader{OuterSteps: *req.Have + len(outcomes), Parameters: len(d.model.local), Hash: hash, Outcomes: outcomes}
			if err := json.NewEncoder(w).Encode(header); err != nil {
				return err
			}
			for _, o := range outcomes {
				if _, err := w.Write(o.Data); err != nil {
					return err
				}
			}
			return nil
		}
	}
	s := d.snapshot(req.Hash)
	if s == nil && req.To > 0 {
		return json.NewEncoder(w).Encode(stateHeader{Error: "the donor does not hold the state " + req.Hash})
	}
	if s == nil {
		s = d.snapshot("")
	}
	if req.From < 0 || req.To > chunks(len(s.outer)) {
		return fmt.Errorf("asked for chunks %d to %d of %d", req.From, req.To, chunks(len(s.outer)))
	}
	if err := json.NewEncoder(w).Encode(stateHeader{OuterSteps: s.steps, Parameters: len(s.outer), Hash: s.digest}); err != nil {
		return err
	}
	if req.From >= req.To {
		return nil
	}
	enc, err := newChunkWriter(w)
	if err != nil {
		return err
	}
	defer enc.close()
	for i := req.From; i < req.To; i++ {
		if err := d.waitIdle(ctx, enc); err != nil {
			return err
		}
		if err := enc.write(s.chunk(i)); err != nil {
			return err
		}
	}
	return nil
}

// waitIdle holds chunks back while the network is needed otherwise.
func (d *donor) waitIdle(ctx context.Context, w *chunkWriter) error {
	const pause = 5 * time.Millisecond
	for waited := pause; d.busy != nil && d.busy(); waited += pause {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if waited%keepAlivePeriod == 0 {
			if err := w.keepAlive(); err != nil {
				return err
			}
		}
	}
	return nil
}

// snapshot returns the state with that hash, or the current one, or nil.
func (d *donor) snapshot(hash string) *state {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.served {
		if s.digest == hash {
			return s
		}
	}
	current := d.model.stateHash()
	if hash != "" && current != hash {
		return nil
	}
	for _, s := range d.served {
		if s.digest == current {
			return s
		}
	}
	s := d.model.snapshot()
	s.digest = s.hash()
	if hash != "" && s.digest != hash { // an outer step has come between
		return nil
	}
	if len(d.served) == servedStates {
		d.served = slices.Delete(d.served, 0, 1) // a slice of the rest would keep it
	}
	d.served = append(d.served, s)
	return s
}

func (d *donor) close() error {
	err := errors.Join(d.listener.Close(), d.transport.Close(), d.transport.Conn.Close())
	d.tasks.Wait()
	return err
}

// patient is a stream on which nothing may stand still for long.
type patient struct {
	*quic.Stream
	patience time.Duration
}

func (p *patient) Read(b []byte) (int, error) {
	p.SetReadDeadline(time.Now().Add(p.patience))
	return p.Stream.Read(b)
}

// Write writes little by little: on a slow link a chunk may take longer than
// it may stand still.
func (p *patient) Write(b []byte) (n int, err error) {
	const piece = 8 << 10
	for err == nil && n < len(b) {
		p.SetWriteDeadline(time.Now().Add(p.patience))
		var m int
		m, err = p.Stream.Write(b[n:min(len(b), n+piece)])
		n += m
	}
	return n, err
}

// state is an outer state.
type state struct {
	outer, momentum []float32
	steps           int
	digest          string // if it has been computed
	// residual stands in the place of a state where a checkpoint has that.
	residual []float32
}

func (s *state) hash() string { return hashFloats(s.outer, s.momentum) }

// source is a peer to fetch from.
type source struct {
	name string
	addr netip.AddrPort
}

// partial is a state of which some chunks are still missing. It outlives a
// fetch that fails.
type partial struct {
	state

	mu    sync.Mutex
	have  []bool // by chunk
	asked []int  // by chunk: donors that have been asked for it and may still answer
	left  int    // chunks still missing
	bytes int64  // received, as compressed
}

func newPartial(h stateHeader) *partial {
	n := h.Parameters
	return &partial{
		state: state{outer: make([]float32, n), momentum: make([]float32, n), steps: h.OuterSteps, digest: h.Hash},
		have:  make([]bool, chunks(n)), asked: make([]int, chunks(n)), left: chunks(n),
	}
}

// take returns the beginning and end of a stretch to ask for: of chunks that
// nobody has been asked for, or else of some for which another donor has.
func (p *partial) take() (from, to int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for others := range 2 {
		for from = range p.have {
			for to = from; to < len(p.have) && to < from+stretch && !p.have[to] && p.asked[to] <= others; to++ {
				p.asked[to]++
			}
			if to > from {
				return from, to, true
			}
		}
	}
	return 0, 0, false
}

// put takes chunk i over, once, and reports whether the state is complete.
func (p *partial) put(i int, values []float32) (complete bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.have[i] {
		copy(p.chunk(i), values)
		p.have[i] = true
		p.left--
	}
	return p.left == 0
}

// settle ends the asking for a stretch.
func (p *partial) settle(from, to int, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes += bytes
	for i := from; i < to; i++ {
		p.asked[i]--
	}
}

// fetcher gets the outer state from a worker's peers. It reads the worker's
// model and leaves it to the caller to replace that.
type fetcher struct {
	transport *quic.Transport
	tls       *tls.Config
	model     *model
	tracing   Tracing
	log       *slog.Logger
	kept      *partial // what an earlier fetch has got
}

// fetch returns the outer state after outerSteps outer steps or more, or the
// older one that it already has a part of, and the bytes received of its chunks.
// The first source is asked what there is, the others help with a large state.
// current says that the model holds an outer state of the run, if an old one.
func (f *fetcher) fetch(ctx context.Context, sources []source, outerSteps int, current bool) (*state, int64, error) {
	first := sources[0]
	fail := func(err error) (*state, int64, error) {
		return nil, 0, fmt.Errorf("fetching the outer state from %s: %w", first.name, err)
	}
	conn, err := f.dial(ctx, first)
	if err != nil {
		return fail(err)
	}
	defer conn.CloseWithError(0, "")
	defer context.AfterFunc(ctx, func() { conn.CloseWithError(0, "aborted") })()
	req := stateRequest{OuterSteps: outerSteps}
	if current {
		have, _ := f.model.version()
		req.Have = &have
	}
	if f.kept != nil {
		req.Hash = f.kept.digest
	}
	in, h, err := ask(ctx, conn, req, donorPatience)
	if err != nil {
		return fail(err)
	}
	resumes := f.kept != nil && h.Hash == f.kept.digest
	switch {
	case h.Parameters != len(f.model.local):
		return fail(fmt.Errorf("it has %d parameters, this worker %d", h.Parameters, len(f.model.local)))
	case h.OuterSteps < outerSteps && !resumes:
		return fail(fmt.Errorf("it is at outer step %d, not yet at %d", h.OuterSteps, outerSteps))
	case h.Outcomes != nil && (req.Have == nil || h.OuterSteps != *req.Have+len(h.Outcomes)):
		return fail(errors.New("it sent outer steps that do not follow this worker's"))
	}
	if h.Outcomes != nil {
		s, err := receiveOutcomes(ctx, in, h, f.model)
		if err != nil {
			return fail(err)
		}
		if err := s.check(h.Hash); err != nil {
			return fail(err)
		}
		return s, 0, nil
	}
	if !resumes {
		f.kept = newPartial(h)
	}
	if err := f.collect(ctx, conn, sources); err != nil {
		return nil, 0, err
	}
	p := f.kept
	f.kept = nil
	if err := p.check(p.digest); err != nil {
		return fail(err)
	}
	return &p.state, p.bytes, nil
}

// check compares a state with the hash that was announced.
func (s *state) check(hash string) error {
	if got := s.hash(); got != hash {
		return fmt.Errorf("its hash is %s, not %s as announced", got, hash)
	}
	return nil
}

func (f *fetcher) dial(ctx context.Context, from source) (*quic.Conn, error) {
	return f.transport.Dial(ctx, net.UDPAddrFromAddrPort(from.addr), identity.For(f.tls, transferALPN, from.name), f.tracing.add(transferQUIC(), "state"))
}

// ask sends a request and reads the header of the answer, for which the donor
// may have to wait for longer than for the rest.
func ask(ctx context.Context, conn *quic.Conn, req stateRequest, longer time.Duration) (*answer, stateHeader, error) {
	var h stateHeader
	stream, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, h, err
	}
	if err := json.NewEncoder(stream).Encode(req); err != nil {
		return nil, h, err
	}
	stream.Close()
	defer context.AfterFunc(ctx, func() { stream.CancelRead(0) })()
	p := &patient{stream, longer + chunkPatience}
	in := bufio.NewReaderSize(p, maxHeader)
	line, err := in.ReadSlice('\n')
	if err != nil {
		return nil, h, err
	}
	p.patience = chunkPatience
	if err := json.Unmarshal(line, &h); err != nil {
		return nil, h, err
	}
	if h.Error != "" {
		return nil, h, errors.New(h.Error)
	}
	return &answer{in, stream}, h, nil
}

// answer is what follows a header.
type answer struct {
	*bufio.Reader
	stream *quic.Stream
}

// collect gets the missing chunks from whoever has them.
func (f *fetcher) collect(ctx context.Context, first *quic.Conn, sources []source) error {
	if f.kept.left <= stretch {
		sources = sources[:1] // a second connection is not worth it
	}
	// Whoever brings the last chunk ends the waiting for others.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	problems := make([]error, len(sources))
	var wg sync.WaitGroup
	for i, from := range sources {
		wg.Go(func() {
			conn, err := first, error(nil)
			if i > 0 {
				if conn, err = f.dial(ctx, from); err == nil {
					defer conn.CloseWithError(0, "")
				}
			}
			if err == nil {
				err = f.kept.collect(ctx, cancel, conn)
			}
			if err != nil && ctx.Err() == nil {
				problems[i] = fmt.Errorf("fetching chunks of the outer state from %s: %w", from.name, err)
				f.log.Warn("a donor failed", "err", problems[i])
			}
		})
	}
	wg.Wait()
	if f.kept.left > 0 {
		return cmp.Or(errors.Join(problems...), context.Cause(ctx))
	}
	return nil
}

// collect asks one donor for one stretch after the other until none is missing.
func (p *partial) collect(ctx context.Context, complete func(), conn *quic.Conn) error {
	for {
		from, to, ok := p.take()
		if !ok {
			return nil
		}
		bytes, err := p.receive(ctx, complete, conn, from, to)
		p.settle(from, to, bytes)
		if err != nil {
			return err
		}
	}
}

func (p *partial) receive(ctx context.Context, complete func(), conn *quic.Conn, from, to int) (bytes int64, err error) {
	in, h, err := ask(ctx, conn, stateRequest{Hash: p.digest, From: from, To: to}, 0)
	if err != nil {
		return 0, err
	}
	defer in.stream.CancelRead(0)
	defer context.AfterFunc(ctx, func() { in.stream.CancelRead(0) })()
	if h.Hash != p.digest {
		return 0, fmt.Errorf("asked for the state %s, got %s", p.digest, h.Hash)
	}
	r, err := newChunkReader(in)
	if err != nil {
		return 0, err
	}
	defer r.close()
	values := make([]float32, chunkValues)
	for i := from; i < to; i++ {
		v := values[:len(p.chunk(i))]
		if err := r.read(v); err != nil {
			return r.bytes, err
		}
		if p.put(i, v) {
			complete()
		}
	}
	return r.bytes, nil
}

// receiveOutcomes reads what the header announces and returns the state that it
// leads to. The model itself stays as it is.
func receiveOutcomes(ctx context.Context, in io.Reader, h stateHeader, m *model) (*state, error) {
	if len(h.Outcomes) > worker.KeptOutcomes || slices.Contains(h.Outcomes, nil) {
		return nil, errors.New("its list of outcomes is malformed")
	}
	s := m.snapshot()
	gradient := make([]float32, len(m.local))
	for _, o := range h.Outcomes {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err := o.Check(len(gradient)); err != nil {
			return nil, err
		}
		o.Data = make([]byte, o.EncodedLen())
		if _, err := io.ReadFull(in, o.Data); err != nil {
			return nil, fmt.Errorf("reading an outcome: %w", err)
		}
		if err := o.Decode(gradient); err != nil {
			return nil, err
		}
		s.step(gradient)
	}
	return s, nil
}
