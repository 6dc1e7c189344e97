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
	"time"

	"github.com/quic-go/quic-go"
)

// The state transfer: whoever needs the outer state opens a stream to a donor,
// asks in one line of JSON, and gets a line that describes the state, then the
// parameters and the momentum as little-endian float32.
const (
	transferALPN  = "testbed-state/1"
	donorPatience = 30 * time.Second // for an outer step that is on its way
	transferIdle  = 30 * time.Second
)

type stateRequest struct {
	OuterSteps int `json:"outer_steps"` // the least version wanted
}

type stateHeader struct {
	OuterSteps int    `json:"outer_steps"`
	Parameters int    `json:"parameters"`
	Hash       string `json:"hash"`
	Error      string `json:"error,omitempty"`
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
	outer, momentum, steps := d.model.snapshot()
	header := stateHeader{OuterSteps: steps, Parameters: len(outer), Hash: hashFloats(outer, momentum)}
	if err := json.NewEncoder(stream).Encode(header); err != nil {
		return err
	}
	if err := writeFloats(stream, outer); err != nil {
		return err
	}
	return writeFloats(stream, momentum)
}

func (d *donor) close() error {
	err := d.listener.Close()
	return errors.Join(err, d.transport.Close(), d.transport.Conn.Close())
}

// state is a fetched outer state.
type state struct {
	outer, momentum []float32
	steps           int
	hash            string
}

// fetchState gets the outer state of a peer.
func fetchState(ctx context.Context, transport *quic.Transport, tlsConfig *tls.Config, name string, addr netip.AddrPort, outerSteps, parameters int) (*state, error) {
	wrap := func(err error) error { return fmt.Errorf("fetching the outer state from %s: %w", name, err) }
	conn, err := transport.Dial(ctx, net.UDPAddrFromAddrPort(addr), withALPN(tlsConfig, transferALPN, name), transferQUIC())
	if err != nil {
		return nil, wrap(err)
	}
	defer conn.CloseWithError(0, "")
	stop := context.AfterFunc(ctx, func() { conn.CloseWithError(0, "aborted") })
	defer stop()
	stream, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, wrap(err)
	}
	if err := json.NewEncoder(stream).Encode(stateRequest{OuterSteps: outerSteps}); err != nil {
		return nil, wrap(err)
	}
	in := bufio.NewReaderSize(stream, 64<<10)
	text, err := in.ReadSlice('\n')
	if err != nil {
		return nil, wrap(err)
	}
	var h stateHeader
	if err := json.Unmarshal(text, &h); err != nil {
		return nil, wrap(err)
	}
	switch {
	case h.Error != "":
		return nil, wrap(errors.New(h.Error))
	case h.Parameters != parameters:
		return nil, wrap(fmt.Errorf("it has %d parameters, this worker %d", h.Parameters, parameters))
	case h.OuterSteps < outerSteps:
		return nil, wrap(fmt.Errorf("it is at outer step %d, not yet at %d", h.OuterSteps, outerSteps))
	}
	s := &state{outer: make([]float32, parameters), momentum: make([]float32, parameters), steps: h.OuterSteps}
	for _, v := range [][]float32{s.outer, s.momentum} {
		if err := readFloats(in, v); err != nil {
			return nil, wrap(err)
		}
	}
	if s.hash = hashFloats(s.outer, s.momentum); s.hash != h.Hash {
		return nil, wrap(fmt.Errorf("its hash is %s, not %s as announced", s.hash, h.Hash))
	}
	return s, nil
}
