package state

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"testbed/node/identity"
	"testbed/policy/worker"
)

// Peer is a worker to fetch from: the name in its certificate, and where its
// Endpoint listens.
type Peer struct {
	Name string
	Addr netip.AddrPort
}

// fetcher gets the outer state from a worker's peers. It only reads the
// worker's own state, which the caller replaces.
type fetcher struct {
	Config
	transport *quic.Transport
	kept      *partial // the part that an earlier fetch has got
}

// Fetch returns the outer state after outerSteps outer steps or more, or an
// older one that it already has a part of, and the bytes received of its
// chunks. The first donor is asked for its version; the others help with a
// large state. current reports that Outer is a state of the run, though an old
// one. agreed reports that the donors are in other regions: then Fetch returns
// the last state that all regions agreed on. A failed Fetch leaves its part to
// the next one. There may be one Fetch at a time.
func (e *Endpoint) Fetch(ctx context.Context, donors []Peer, outerSteps int, current, agreed bool) (*Snapshot, int64, error) {
	return e.fetcher.fetch(ctx, donors, outerSteps, current, agreed)
}

func (f *fetcher) fetch(ctx context.Context, donors []Peer, outerSteps int, current, agreed bool) (*Snapshot, int64, error) {
	first := donors[0]
	fail := func(err error) (*Snapshot, int64, error) {
		return nil, 0, fmt.Errorf("fetching the outer state from %s: %w", first.Name, err)
	}
	conn, err := f.dial(ctx, first)
	if err != nil {
		return fail(err)
	}
	defer conn.CloseWithError(0, "")
	defer context.AfterFunc(ctx, func() { conn.CloseWithError(0, "aborted") })()
	req := request{OuterSteps: outerSteps, WhileBusy: f.WhileBusy, Agreed: agreed}
	if current {
		have, _ := f.Outer.Version()
		if req.Have = &have; f.Outer.rule != nil {
			req.Base = f.Outer.Hash()
		}
	}
	if f.kept != nil && f.kept.agreed != agreed {
		f.kept = nil
	}
	if f.kept != nil {
		req.Hash = f.kept.digest
	}
	in, h, err := f.ask(ctx, conn, req, donorPatience)
	if err != nil {
		return fail(err)
	}
	resumes := f.kept != nil && h.Hash == f.kept.digest
	switch {
	case f.Outer != nil && h.Parameters != f.Outer.parameters:
		return fail(fmt.Errorf("the donor has %d parameters, but this worker has %d", h.Parameters, f.Outer.parameters))
	case h.OuterSteps < outerSteps && !resumes:
		return fail(fmt.Errorf("the donor is at outer step %d, not yet at %d", h.OuterSteps, outerSteps))
	case h.Outcomes != nil && (req.Have == nil || !agreed && h.OuterSteps != *req.Have+len(h.Outcomes)):
		return fail(errors.New("the donor sent outer steps that do not follow this worker's outer steps"))
	}
	if h.Outcomes != nil {
		s, err := receiveOutcomes(ctx, in, h, f.Outer, agreed)
		if err != nil {
			return fail(err)
		}
		if err := s.check(h.Hash); err != nil {
			return fail(err)
		}
		return s, 0, nil
	}
	if !resumes {
		f.kept = newPartial(h, agreed)
	}
	if err := f.collect(ctx, conn, donors); err != nil {
		return nil, 0, err
	}
	p := f.kept
	f.kept = nil
	if err := p.check(p.digest); err != nil {
		return fail(err)
	}
	return &p.Snapshot, p.bytes, nil
}

func (f *fetcher) dial(ctx context.Context, from Peer) (*quic.Conn, error) {
	return f.transport.Dial(ctx, net.UDPAddrFromAddrPort(from.Addr), identity.For(f.TLS, alpn, from.Name), f.quic())
}

// ask sends a request and reads the header of the answer, which may take the
// donor longer than the rest.
func (c *Config) ask(ctx context.Context, conn *quic.Conn, req request, longer time.Duration) (*answer, header, error) {
	var h header
	stream, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, h, err
	}
	if err := json.NewEncoder(stream).Encode(req); err != nil {
		return nil, h, err
	}
	stream.Close()
	defer context.AfterFunc(ctx, func() { stream.CancelRead(0) })()
	p := &patient{stream, c.patience(longer + chunkPatience)}
	in := bufio.NewReaderSize(p, maxHeader)
	line, err := in.ReadSlice('\n')
	if err != nil {
		return nil, h, fmt.Errorf("reading the donor's answer: %w", err)
	}
	p.patience = c.patience(chunkPatience)
	if err := json.Unmarshal(line, &h); err != nil {
		return nil, h, fmt.Errorf("reading the donor's answer: %w", err)
	}
	if h.Error != "" {
		return nil, h, errors.New(h.Error)
	}
	return &answer{in, stream}, h, nil
}

// answer is the data after a header.
type answer struct {
	*bufio.Reader
	stream *quic.Stream
}

// collect gets the missing chunks from donors that have them.
func (f *fetcher) collect(ctx context.Context, first *quic.Conn, donors []Peer) error {
	if f.kept.left <= stretch {
		donors = donors[:1] // a second connection is not worth it
	}
	// The donor that delivers the last chunk ends the waiting for others.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	problems := make([]error, len(donors))
	var wg sync.WaitGroup
	for i, from := range donors {
		wg.Go(func() {
			conn, err := first, error(nil)
			if i > 0 {
				if conn, err = f.dial(ctx, from); err == nil {
					defer conn.CloseWithError(0, "")
				}
			}
			if err == nil {
				err = f.kept.collect(ctx, cancel, conn, &f.Config)
			}
			if err != nil && ctx.Err() == nil {
				problems[i] = fmt.Errorf("fetching chunks of the outer state from %s: %w", from.Name, err)
				f.Log.Warn("a donor did not send all chunks", "err", problems[i])
			}
		})
	}
	wg.Wait()
	if f.kept.left > 0 {
		return cmp.Or(errors.Join(problems...), context.Cause(ctx))
	}
	return nil
}

// receiveOutcomes reads the outcomes that the header announces and returns the
// state after them. The worker's own state stays as it is.
func receiveOutcomes(ctx context.Context, in io.Reader, h header, own *Outer, agreed bool) (*Snapshot, error) {
	if len(h.Outcomes) > worker.KeptOutcomes || slices.Contains(h.Outcomes, nil) {
		return nil, errors.New("the donor's list of outcomes is malformed")
	}
	s := own.snapshot(agreed)
	all := make([]float32, own.parameters)
	for _, o := range h.Outcomes {
		gradient := all[:own.next(&s).Len]
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err := o.Check(len(gradient)); err != nil {
			return nil, err
		}
		o.Data = make([]byte, o.EncodedLen())
		if _, err := io.ReadFull(in, o.Data); err != nil {
			return nil, fmt.Errorf("reading the outcome of an outer step: %w", err)
		}
		if err := o.Decode(gradient); err != nil {
			return nil, err
		}
		to := s.Steps + 1
		for agreed && !own.rule.Global(to) {
			to++
		}
		own.take(&s, gradient, to)
	}
	s.Steps = h.OuterSteps
	return &s, nil
}
