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

// The state transfer: whoever needs the outer state opens a stream to a donor
// and asks in one line of JSON. The donor answers with a line that describes
// what follows: the quantised outcomes of the outer steps that the asker has
// missed, where those are few. Otherwise nothing follows yet: the asker then
// asks for the chunks of the state with the hash that the line names, a stretch
// at a time, of that donor and of others that hold the same. What it has got
// when a donor fails it keeps, and goes on from there with the next.
const (
	alpn          = "testbed-state/2"
	donorPatience = 30 * time.Second // for an outer step that is on its way
	transferIdle  = 30 * time.Second
	handshake     = 5 * time.Second // as quic-go has it
	// chunkPatience bounds how long a stream of chunks may stall. A donor
	// that is busy says so once in a keepAlivePeriod.
	chunkPatience   = 4 * time.Second
	keepAlivePeriod = time.Second
	maxHeader       = 64 << 10
	maxRequest      = 1 << 10
	servedStates    = 2
)

type request struct {
	OuterSteps int `json:"outer_steps"` // the least version wanted
	// Have is the version that the asker holds; absent, it holds none.
	Have *int `json:"have,omitempty"`
	// Base is the hash of what the asker holds, where there are regions.
	Base string `json:"base,omitempty"`
	// Agreed wants what all regions last agreed on.
	Agreed bool `json:"agreed,omitempty"`
	// Hash names a state of which the asker has a part already, or wants
	// chunks From, From+1, … To-1.
	Hash string `json:"hash,omitempty"`
	From int    `json:"from,omitempty"`
	To   int    `json:"to,omitempty"`
	// WhileBusy wants chunks while the donor needs its network for something else.
	WhileBusy bool `json:"beside,omitempty"`
}

type header struct {
	OuterSteps int              `json:"outer_steps"`
	Parameters int              `json:"parameters"`
	Hash       string           `json:"hash"`               // of the state, in the end
	Regional   bool             `json:"regional,omitempty"` // it is a region's, with what was last agreed on
	Outcomes   []*codec.Outcome `json:"outcomes"`           // null: the whole state is needed
	Error      string           `json:"error,omitempty"`
}

// Config is what an Endpoint is made of.
type Config struct {
	// Conn is the UDP socket. The Endpoint owns it from Listen on and closes it.
	Conn net.PacketConn
	// TLS is an identity of the run.
	TLS *tls.Config
	// Outer is the state that is served, and that fetched outer steps follow on.
	// It may be nil where nothing is served: then a fetch takes any.
	Outer *Outer
	// Busy says whether the network is needed for something else: chunks wait
	// until then, so that a joiner does not hold a reduction up. Nil: never.
	Busy func() bool
	// WhileBusy has donors send what is fetched while they are busy, too.
	WhileBusy bool
	// Dilation is how many times slower the network is by the machine's clock than
	// what is patient here is made for; 0 is 1.
	Dilation float64
	// Patience is how long, in real time, a healthy exchange may stall on the
	// slowest link: nothing here is less patient.
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

// Endpoint exchanges outer states with the peers of a run: it serves its own and
// fetches theirs.
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

// Close ends all connections and waits for what they have begun.
func (e *Endpoint) Close() error {
	err := errors.Join(e.listener.Close(), e.transport.Close(), e.transport.Conn.Close())
	e.donor.tasks.Wait()
	return err
}

// patient is a stream on which nothing may stall for long.
type patient struct {
	*quic.Stream
	patience time.Duration
}

func (p *patient) Read(b []byte) (int, error) {
	p.SetReadDeadline(time.Now().Add(p.patience))
	return p.Stream.Read(b)
}

// Write writes little by little: on a slow link a chunk may take longer than
// it may stall.
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
