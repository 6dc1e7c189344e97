package quicring

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/quic-go/quic-go"

	"testbed/allreduce"
	"testbed/allreduce/int8"
)

const (
	// protocol is the ALPN name: other QUIC speakers are refused in the
	// handshake.
	protocol = "testbed-ring/1"
	// holdTime is how long a stream may wait for its reduction to begin here,
	// or for its first header to arrive.
	holdTime = time.Minute
	// closeTime is how long Close waits for the successor to confirm that it
	// has everything.
	closeTime = 5 * time.Second
	// maxInbound is the number of connections kept from peers; an endpoint
	// needs one, from its predecessor, and former ones close theirs.
	maxInbound = 64
)

// quicConfig sizes a connection for 1 Gbit/s × 100 ms.
func quicConfig(packetSize uint16) *quic.Config {
	const stream = 16 << 20 // 12.5 MB in flight, and room for the receiver to lag
	return &quic.Config{
		// Policy decides who is dead, with its own deadlines, so QUIC must be
		// slower than any of them, and idle connections survive long rounds.
		HandshakeIdleTimeout: 30 * time.Second,
		MaxIdleTimeout:       60 * time.Second,
		KeepAlivePeriod:      10 * time.Second,
		// A bandwidth-delay product of 160 Mbit/s × 100 ms at once; the window
		// grows where the link is fatter.
		InitialStreamReceiveWindow:     2 << 20,
		MaxStreamReceiveWindow:         stream,
		InitialConnectionReceiveWindow: 3 << 20,
		MaxConnectionReceiveWindow:     stream * 3 / 2,
		// One stream per reduction, plus those of aborted ones on their way out.
		MaxIncomingStreams:    8,
		MaxIncomingUniStreams: -1,
		// 1452 bytes is quic-go's cap and 1480 or 1500 bytes with IPv4 or IPv6
		// headers: it fits Ethernet. Starting there leaves path MTU discovery
		// nothing to find, and its probes would only blur measurements. On a
		// path with a smaller MTU the handshake fails instead of limping.
		InitialPacketSize:       packetSize,
		DisablePathMTUDiscovery: true,
	}
}

func (c *Config) check() error {
	switch {
	case c.Conn == nil:
		return errors.New("no socket")
	case c.TLS == nil || c.TLS.RootCAs == nil || c.TLS.ClientCAs == nil:
		// Nil would mean the system's authorities: not what a ring trusts.
		return errors.New("mutual TLS needs a configuration with RootCAs and ClientCAs")
	}
	if c.Block == 0 {
		c.Block = int8.DefaultBlock
	}
	if err := int8.CheckBlock(c.Block); err != nil {
		return err
	}
	if c.PieceValues < 0 || c.PieceValues > allreduce.MaxPieceValues || c.PieceValues%c.Block != 0 {
		return fmt.Errorf("piece of %d values is no multiple of the block, %d, up to %d",
			c.PieceValues, c.Block, allreduce.MaxPieceValues)
	}
	if c.PacketSize == 0 {
		c.PacketSize = 1452
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

func (c *Config) serverTLS() *tls.Config {
	t := c.TLS.Clone()
	t.NextProtos = []string{protocol}
	t.MinVersion = tls.VersionTLS13
	t.ClientAuth = tls.RequireAndVerifyClientCert
	t.SessionTicketsDisabled = true // a resumed session would skip the check of names
	return t
}

func (c *Config) clientTLS(name string) *tls.Config {
	t := c.TLS.Clone()
	t.NextProtos = []string{protocol}
	t.MinVersion = tls.VersionTLS13
	t.ServerName = name
	t.InsecureSkipVerify = false
	return t
}
