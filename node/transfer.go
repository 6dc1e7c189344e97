package node

import (
	"bufio"
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
	"time"

	"github.com/quic-go/quic-go"

	"testbed/allreduce/quicring"
)

// The state transfer: whoever needs the outer state opens a stream to a donor
// and asks in one line of JSON. The donor answers with a line that describes
// what follows: the quantised outcomes of the outer steps that the asker has
// missed, where those are few, and otherwise the whole state, parameters and
// momentum as little-endian float32.
const (
	transferALPN  = "testbed-state/1"
	donorPatience = 30 * time.Second // for an outer step that is on its way
	transferIdle  = 30 * time.Second
	maxHeader     = 64 << 10
)

type stateRequest struct {
	OuterSteps int `json:"outer_steps"` // the least version wanted
	// Have is the version that the asker holds; absent, it holds none.
	Have *int `json:"have,omitempty"`
}

type stateHeader struct {
	OuterSteps int                 `json:"outer_steps"`
	Parameters int                 `json:"parameters"`
	Hash       string              `json:"hash"`     // of the state, in the end
	Outcomes   []*quicring.Outcome `json:"outcomes"` // null: the whole state follows
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
	}
}

// donor serves a model's outer state to the peers of the run.
type donor struct {
	transport *quic.Transport
	listener  *quic.Listener
	model     *model
	log       *slog.Logger
}

func newDonor(conn net.PacketConn, tlsConfig *tls.Config, m *model, log *slog.Logger) (*donor, error) {
	t := &quic.Transport{Conn: conn}
	l, err := t.Listen(withALPN(tlsConfig, transferALPN, ""), transferQUIC())
	if err != nil {
		return nil, fmt.Errorf("listening for state fetches on %s: %w", conn.LocalAddr(), err)
	}
	return &donor{transport: t, listener: l, model: m, log: log}, nil
}

// serve answers until ctx ends.
func (d *donor) serve(ctx context.Context) {
	for {
		conn, err := d.listener.Accept(ctx)
		if err != nil {
			return
		}
		go func() {
			if err := d.answer(ctx, conn); err != nil {
				d.log.Warn("state transfer failed", "peer", peerName(conn), "err", err)
			}
		}()
	}
}

func (d *donor) answer(ctx context.Context, conn *quic.Conn) error {
	stream, err := conn.AcceptStream(ctx)
	if err != nil {
		return err
	}
	defer stream.Close()
	var req stateRequest
	if err := json.NewDecoder(io.LimitReader(stream, 1024)).Decode(&req); err != nil {
		conn.CloseWithError(1, "bad request")
		return fmt.Errorf("reading the request: %w", err)
	}
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
	return d.deliver(stream, req)
}

func (d *donor) deliver(w io.Writer, req stateRequest) error {
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
	s := d.model.snapshot()
	header := stateHeader{OuterSteps: s.steps, Parameters: len(s.outer), Hash: s.hash()}
	if err := json.NewEncoder(w).Encode(header); err != nil {
		return err
	}
	return errors.Join(writeFloats(w, s.outer), writeFloats(w, s.momentum))
}

func (d *donor) close() error {
	err := d.listener.Close()
	return errors.Join(err, d.transport.Close(), d.transport.Conn.Close())
}

// state is an outer state.
type state struct {
	outer, momentum []float32
	steps           int
}

func (s *state) hash() string { return hashFloats(s.outer, s.momentum) }

// fetchState brings the model up to date from a peer, to outerSteps or beyond.
// current says that the model holds an outer state of the run, if an old one.
func fetchState(ctx context.Context, transport *quic.Transport, tlsConfig *tls.Config, name string, addr netip.AddrPort, m *model, outerSteps int, current bool) error {
	wrap := func(err error) error { return fmt.Errorf("fetching the outer state from %s: %w", name, err) }
	conn, err := transport.Dial(ctx, net.UDPAddrFromAddrPort(addr), withALPN(tlsConfig, transferALPN, name), transferQUIC())
	if err != nil {
		return wrap(err)
	}
	defer conn.CloseWithError(0, "")
	stop := context.AfterFunc(ctx, func() { conn.CloseWithError(0, "aborted") })
	defer stop()
	stream, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return wrap(err)
	}
	req := stateRequest{OuterSteps: outerSteps}
	if current {
		have, _ := m.version()
		req.Have = &have
	}
	if err := json.NewEncoder(stream).Encode(req); err != nil {
		return wrap(err)
	}
	in := bufio.NewReaderSize(stream, maxHeader)
	text, err := in.ReadSlice('\n')
	if err != nil {
		return wrap(err)
	}
	var h stateHeader
	if err := json.Unmarshal(text, &h); err != nil {
		return wrap(err)
	}
	switch {
	case h.Error != "":
		return wrap(errors.New(h.Error))
	case h.Parameters != len(m.local):
		return wrap(fmt.Errorf("it has %d parameters, this worker %d", h.Parameters, len(m.local)))
	case h.OuterSteps < outerSteps:
		return wrap(fmt.Errorf("it is at outer step %d, not yet at %d", h.OuterSteps, outerSteps))
	case h.Outcomes != nil && (req.Have == nil || h.OuterSteps != *req.Have+len(h.Outcomes)):
		return wrap(errors.New("it sent outer steps that do not follow this worker's"))
	}
	s, err := receiveState(ctx, in, h, m)
	if err != nil {
		return wrap(err)
	}
	if hash := s.hash(); hash != h.Hash {
		return wrap(fmt.Errorf("its hash is %s, not %s as announced", hash, h.Hash))
	}
	m.replace(s)
	return nil
}

// receiveState reads what the header announces and returns the state that it
// leads to. The model itself stays as it is.
func receiveState(ctx context.Context, in io.Reader, h stateHeader, m *model) (*state, error) {
	n := len(m.local)
	if h.Outcomes == nil {
		s := &state{outer: make([]float32, n), momentum: make([]float32, n), steps: h.OuterSteps}
		return s, errors.Join(readFloats(in, s.outer), readFloats(in, s.momentum))
	}
	if len(h.Outcomes) > keptOutcomes || slices.Contains(h.Outcomes, nil) {
		return nil, errors.New("its list of outcomes is malformed")
	}
	s := m.snapshot()
	gradient := make([]float32, n)
	for _, o := range h.Outcomes {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err := o.Check(n); err != nil {
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
