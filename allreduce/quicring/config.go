package quicring

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/quic-go/quic-go"

	"testbed/allreduce"
	"testbed/allreduce/entropy"
)

const (
	// protocol begins the ALPN name: other QUIC speakers are refused in the
	// handshake. A link's name follows it, which distinguishes connections of a
	// former link from those of the present one, whatever order they come in.
	protocol = "testbed-ring/3/"
	// holdTime is how long a stream may wait for its reduction to begin here,
	// or for its first header to arrive.
	holdTime = time.Minute
	// closeTime is how long Close waits for the peers' confirmation that they have
	// everything.
	closeTime = 5 * time.Second
	// maxInbound is the number of peers whose connections are kept. A ring needs
	// one per endpoint, its predecessor, and the direct algorithm all.
	maxInbound = 64
	// maxIdle is the number of consecutive reductions without a link after which
	// it is closed. Otherwise a worker whose ring changes often would in the end
	// have links to and from every other worker.
	maxIdle = 8
	// maxReductions is the number of simultaneous reductions on one endpoint.
	maxReductions = 8
)

// quic is the configuration of the endpoint's connections.
func (c *Config) quic() *quic.Config {
	q := quicConfig(c.PacketSize)
	q.Tracer = c.Tracer
	q.HandshakeIdleTimeout, q.MaxIdleTimeout = c.patient(q.HandshakeIdleTimeout), c.patient(q.MaxIdleTimeout)
	return q
}

// patient converts a real time, at least the plan's patience, to the machine's
// clock.
func (c *Config) patient(d time.Duration) time.Duration {
	return time.Duration(float64(max(d, c.Patience)) * max(c.Dilation, 1))
}

// quicConfig sizes a link's first connection for 1 Gbit/s × 100 ms. QUIC's
// windows start at the initial values and grow to the bandwidth-delay product
// by themselves, up to the maximum.
func quicConfig(packetSize uint16) *quic.Config {
	const stream = 16 << 20 // 12.5 MB in flight, and room for the receiver to lag
	return &quic.Config{
		// The policy decides which workers are dead, with its own deadlines. QUIC
		// must be slower than any of them, and idle connections must survive long
		// rounds.
		HandshakeIdleTimeout: 30 * time.Second,
		MaxIdleTimeout:       60 * time.Second,
		KeepAlivePeriod:      10 * time.Second,
		// A bandwidth-delay product of 160 Mbit/s × 100 ms at once.
		InitialStreamReceiveWindow:     2 << 20,
		MaxStreamReceiveWindow:         stream,
		InitialConnectionReceiveWindow: 3 << 20,
		MaxConnectionReceiveWindow:     stream * 3 / 2,
		// One stream per reduction, plus those of aborted reductions that are being
		// closed.
		MaxIncomingStreams:    2 * maxReductions,
		MaxIncomingUniStreams: -1,
		// Starting with the largest packets leaves path MTU discovery nothing to
		// find, and its probes would only blur measurements. On a path with a smaller
		// MTU the handshake fails at once.
		InitialPacketSize:       packetSize,
		DisablePathMTUDiscovery: true,
	}
}

func (c *Config) check() error {
	switch {
	case c.Conn == nil:
		return errors.New("the configuration lacks a socket (Conn)")
	case c.TLS == nil || c.TLS.RootCAs == nil || c.TLS.ClientCAs == nil:
		// Nil would mean the system's authorities, which a ring must not trust.
		return errors.New("mutual TLS needs a configuration with RootCAs and ClientCAs")
	}
	if c.Format == (allreduce.Format{}) {
		c.Format = allreduce.DefaultFormat
	}
	if err := c.Format.Check(); err != nil {
		return err
	}
	if c.PieceValues < 0 || c.PieceValues > allreduce.MaxPieceValues || c.PieceValues%c.Format.Block != 0 {
		return fmt.Errorf("the piece size is %d values; it must be a multiple of the block size, %d, and at most %d",
			c.PieceValues, c.Format.Block, allreduce.MaxPieceValues)
	}
	if c.PacketSize == 0 {
		c.PacketSize = allreduce.PacketSize
	}
	if c.Entropy == "" {
		c.Entropy = entropy.Auto
	}
	if problem := c.Entropy.Problem(c.Format); problem != "" {
		return errors.New("entropy coding " + problem)
	}
	if c.Connections < 0 || c.Connections > allreduce.MaxConnections {
		return fmt.Errorf("the number of connections to each peer is %d: it must lie between 0 and %d", c.Connections, allreduce.MaxConnections)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

func (c *Config) serverTLS() *tls.Config {
	t := c.TLS.Clone()
	t.NextProtos = []string{protocol} // refuses those that the next line accepts
	t.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		for _, p := range hello.SupportedProtos {
			if strings.HasPrefix(p, protocol) {
				own := t.Clone()
				own.NextProtos = []string{p}
				return own, nil
			}
		}
		return nil, nil
	}
	t.MinVersion = tls.VersionTLS13
	t.ClientAuth = tls.RequireAndVerifyClientCert
	t.SessionTicketsDisabled = true // a resumed session would skip the check of names
	return t
}

// clientTLS is for a connection of the link with this name.
func (c *Config) clientTLS(peer, link string) *tls.Config {
	t := c.TLS.Clone()
	t.NextProtos = []string{protocol + link}
	t.MinVersion = tls.VersionTLS13
	t.ServerName = peer
	t.InsecureSkipVerify = false
	return t
}
