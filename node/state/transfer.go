package state

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlogwriter"

	"testbed/allreduce/codec"
	"testbed/node/identity"
)

// The state transfer: a worker that needs the outer state opens a stream to a
// donor and sends a line of JSON. The donor answers with a line of JSON. If the
// asker has missed few outer steps, their quantised outcomes follow. Otherwise
// nothing follows yet: the asker requests the chunks of the state with the hash
// in the answer, a stretch at a time, from that donor and from others that hold
// the state. If a donor fails, the asker keeps the received chunks and
// continues with the next donor.
const (
	alpn          = "testbed-state/2"
	donorPatience = 30 * time.Second // wait for an outer step that is on its way
	transferIdle  = 30 * time.Second
	handshake     = 5 * time.Second // quic-go's
	// chunkPatience bounds how long a stream of chunks may stall. A busy donor
	// sends a keep-alive once in a keepAlivePeriod.
	chunkPatience   = 4 * time.Second
	keepAlivePeriod = time.Second
	maxHeader       = 64 << 10
	maxRequest      = 1 << 10
	servedStates    = 2
)

type request struct {
	OuterSteps int `json:"outer_steps"` // the least version wanted
	// Have is the version that the asker holds; absent if it holds none.
	Have *int `json:"have,omitempty"`
	// Base is the hash of the asker's state, with regions.
	Base string `json:"base,omitempty"`
	// Agreed asks for the last state that all regions agreed on.
	Agreed bool `json:"agreed,omitempty"`
	// Hash names a state of which the asker has a part already, or asks for chunks
	// From, From+1, … To-1.
	Hash string `json:"hash,omitempty"`
	From int    `json:"from,omitempty"`
	To   int    `json:"to,omitempty"`
	// WhileBusy asks for chunks even while the donor needs its network for
	// something else.
	WhileBusy bool `json:"beside,omitempty"`
}

type header struct {
	OuterSteps int              `json:"outer_steps"`
	Parameters int              `json:"parameters"`
	Hash       string           `json:"hash"`               // of the final state
	Regional   bool             `json:"regional,omitempty"` // a region's state, with the last agreed one
	Outcomes   []*codec.Outcome `json:"outcomes"`           // null: the whole state is needed
	Error      string           `json:"error,omitempty"`
}

// Config is the configuration of an Endpoint.
type Config struct {
	// Conn is the UDP socket. The Endpoint owns it from Listen on and closes it.
	Conn net.PacketConn
	// TLS is an identity of the run.
	TLS *tls.Config
	// Outer is the served state, to which fetched outer steps are applied. It may
	// be nil if nothing is served: then a fetch accepts any state.
	Outer *Outer
	// Busy reports whether the network is needed for something else. Chunks wait
	// for its end, so that a joiner does not delay a reduction. Nil: never.
	Busy func() bool
	// WhileBusy makes donors send requested chunks even while they are busy.
	WhileBusy bool
	// Dilation is the factor by which the network is slower by the machine's clock
	// than the waiting times here assume; 0 is 1.
	Dilation float64
	// Patience is how long, in real time, a healthy exchange may stall on the
	// slowest link. No waiting time here is shorter.
	Patience time.Duration
	// PacketSize is the largest UDP payload in bytes.
	PacketSize uint16
	// Tracer records connections, see quic.Config; nil records nothing.
	Tracer func(ctx context.Context, isClient bool, id quic.ConnectionID) qlogwriter.Trace
	Log    *slog.Logger
}

// patience is d by the machine's clock.
func (c *Config) patience(d time.Duration) time.Duration {
	return time.Duration(float64(max(d, c.Patience)) * max(c.Dilation, 1))
}

func (c *Config) quic() *quic.Config {
	return &quic.Config{
		MaxIdleTimeout:                 c.patience(transferIdle),
		HandshakeIdleTimeout:           c.patience(handshake),
		KeepAlivePeriod:                transferIdle / 3,
		InitialPacketSize:              c.PacketSize,
		InitialStreamReceiveWindow:     4 << 20,
		MaxStreamReceiveWindow:         16 << 20,
		InitialConnectionReceiveWindow: 4 << 20,
		MaxConnectionReceiveWindow:     16 << 20,
		MaxIncomingStreams:             1,
		MaxIncomingUniStreams:          -1,
		Tracer:                         c.Tracer,
	}
}

// Endpoint exchanges outer states with the peers of a run: it serves its own
// and fetches theirs.
type Endpoint struct {
	transport *quic.Transport
	listener  *quic.Listener
	donor     donor
	fetcher   fetcher
}

// Listen makes an Endpoint. Peers are answered while Serve runs.
func Listen(c Config) (*Endpoint, error) {
	t := &quic.Transport{Conn: c.Conn}
	l, err := t.Listen(identity.For(c.TLS, alpn, ""), c.quic())
	if err != nil {
		return nil, fmt.Errorf("listening for state fetches on %s: %w", c.Conn.LocalAddr(), err)
	}
	return &Endpoint{transport: t, listener: l, donor: donor{Config: c}, fetcher: fetcher{Config: c, transport: t}}, nil
}

// Serve answers peers until ctx ends or the Endpoint is closed.
func (e *Endpoint) Serve(ctx context.Context) {
	for {
		conn, err := e.listener.Accept(ctx)
		if err != nil {
			return
		}
		e.donor.tasks.Go(func() { e.donor.serve(ctx, conn) })
	}
}

// Close ends all connections and waits for their goroutines.
func (e *Endpoint) Close() error {
	err := errors.Join(e.listener.Close(), e.transport.Close(), e.transport.Conn.Close())
	e.donor.tasks.Wait()
	return err
}

// patient is a stream that must not stall for long.
type patient struct {
	*quic.Stream
	patience time.Duration
}

func (p *patient) Read(b []byte) (int, error) {
	p.SetReadDeadline(time.Now().Add(p.patience))
	return p.Stream.Read(b)
}

// Write writes in small parts: on a slow link a whole chunk may take longer
// than the allowed stall.
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
