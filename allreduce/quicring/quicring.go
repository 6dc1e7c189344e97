// Package quicring runs the quantised ring all-reduce of package allreduce
// between processes, over QUIC. It moves and adds numbers; who takes part, and
// when a slow or silent peer is given up, is its caller's to judge.
//
// # Connections and streams
//
// Every worker has one Endpoint on one UDP socket. It dials the next worker of
// the ring, its successor, and is dialled by the one before, its predecessor.
// The connection to the successor is kept from round to round while the
// successor stays the same. Every reduction opens one stream on it, which
// carries all of a rank's frames in the order of the schedule. When the
// receiver has everything it closes its own direction of the stream, and an
// endpoint that is being closed waits briefly for that sign, so that leaving
// right after a reduction does not take the last frames from the successor.
//
// # Trust
//
// Both sides present certificates. A stream counts as the predecessor's only
// if the certificate of its connection bears the predecessor's DNS name;
// nothing in a frame can claim that. Every field of every frame header is then
// compared with the only value that the schedule allows, and the sizes of
// buffers come from the schedule, never from the wire.
//
// # Memory
//
// A reduction holds at most one chunk of encoded values and a few pieces;
// beyond that, writes wait for QUIC's flow control. A connection buffers at
// most its receive window.
package quicring

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"time"
)

// Config is what an Endpoint is made of.
type Config struct {
	// Conn is the UDP socket. The Endpoint owns it from Listen on, also when
	// Listen fails, and closes it. A *net.UDPConn is fastest.
	Conn net.PacketConn
	// TLS holds this worker's certificate and the authorities it trusts, both
	// as a server (ClientCAs) and as a client (RootCAs). Client certificates
	// are always required and verified. The certificate bears the worker's
	// name as its DNS name. NextProtos and ServerName are set by quicring.
	TLS *tls.Config
	// Logger receives refused connections and streams; nil is silent.
	Logger *slog.Logger
	// PieceValues is the number of values per frame, a multiple of Block. All
	// workers of a ring need the same. Zero: allreduce.DefaultPieceValues.
	PieceValues int
	// Block is the number of values per scale, the same on all workers. Zero:
	// 1024. Smaller blocks are more exact and cost 4 bytes each.
	Block int
	// PacketSize is the largest UDP payload in bytes. Zero: 1452, for a path
	// of 1500-byte packets.
	PacketSize uint16
}

// Peer is one worker of a ring.
type Peer struct {
	// Name is the DNS name that the peer's certificate must bear.
	Name string
	// Addr is where its endpoint listens.
	Addr netip.AddrPort
}

// Op is one attempt to reduce, the same on all its workers but for Rank.
type Op struct {
	// Epoch numbers the attempts of a run. Of every endpoint's reductions each
	// has a higher epoch than the one before, also after a failed one.
	Epoch uint64
	// Round is the outer step, 0 … 2^32-1. Peers must agree on it.
	Round int
	// Rank is this worker's place in Peers.
	Rank int
	// Peers are the workers in ring order.
	Peers []Peer
}

// Result says what a reduction took. Times start when Reduce is called and so
// include dialling and waiting for a later predecessor.
type Result struct {
	// BytesSent and BytesReceived count frames, headers included, as written
	// to and read from streams: QUIC's own overhead is not in them.
	BytesSent, BytesReceived int64
	// ReduceScatter ends when this rank has finished its own chunk; AllGather
	// is the rest of Total.
	ReduceScatter, AllGather, Total time.Duration
	// Outcome is the mean in its quantised form. A worker alone has none: its
	// mean is exact.
	Outcome *Outcome
}
