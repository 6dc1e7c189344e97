// Package quicring runs the quantised all-reduce of package allreduce between
// processes, over QUIC. It moves and adds numbers. The caller decides which
// workers take part, and when to give up a slow or silent peer.
//
// # Connections and streams
//
// Every worker has one Endpoint on one UDP socket. It dials the workers that it
// sends to, and is dialled by those that send to it: in a ring its successor
// and its predecessor. All connections from one worker to another make a link.
// A link is kept from round to round while the other worker takes part. It is
// closed after eight consecutive reductions that did not use it.
//
// A link has one connection if the path is lossless. The congestion control of
// quic-go is Reno: packets lost at random keep its window small, whatever the
// path could carry, so a link over a lossy path grows more connections, each
// with a window of its own, while a reduction runs (see tuner).
//
// Every reduction opens at most one stream on every connection. The first
// connection that can send takes the next frame, so that one connection's
// losses do not hold up the frames of the others, and the receiver takes frames
// in any order in which the schedule allows them. Every stream ends with an end
// frame. The end frame of a peer's last stream has the number of its streams.
// Missing frames then fail the reduction, as they do when all connections of a
// peer have ended. When the receiver has a whole stream, it closes its own
// direction. An endpoint that is being closed waits briefly for this, so that
// leaving right after a reduction does not take the last frames from a peer.
//
// # Trust
//
// Both sides present certificates. A stream counts as a peer's only if the
// certificate of its connection has the peer's DNS name; nothing in a frame can
// claim that. Every frame header is then compared with the schedule: the frame
// must be due from this peer now, and comes only once. The sizes of buffers
// come from the schedule, never from the wire.
//
// # Memory
//
// A piece on its way around the ring is stored at the place of its codes in the
// Outcome, from its arrival until it has been passed on. The mean of a piece
// cannot return to a rank that has not yet passed on its sum. So a reduction
// holds the Outcome, a quarter of the vector's size, and one piece for every
// connection it sends on. A rank that sums for others, as in the direct and the
// hierarchical algorithm, also has room for the codes of incomplete pieces,
// which some ranks have sent and others have not: as much again at most. QUIC
// buffers at most the receive window of every connection. Result.BufferBytes
// has the memory of a reduction.
package quicring

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlogwriter"

	"testbed/allreduce"
	"testbed/allreduce/codec"
	"testbed/allreduce/entropy"
)

// Config is the configuration of an Endpoint.
type Config struct {
	// Conn is the UDP socket. The Endpoint owns it from Listen on, even if Listen
	// fails, and closes it. A *net.UDPConn is fastest.
	Conn net.PacketConn
	// TLS holds this worker's certificate and the authorities it trusts, both
	// as a server (ClientCAs) and as a client (RootCAs). Client certificates
	// are always required and verified. The certificate has the worker's
	// name as its DNS name. NextProtos and ServerName are set by quicring.
	TLS *tls.Config
	// Logger receives refused connections and streams; nil is silent.
	Logger *slog.Logger
	// Tracer records connections, see quic.Config; nil records nothing.
	Tracer func(ctx context.Context, isClient bool, id quic.ConnectionID) qlogwriter.Trace
	// Format is the encoding of values on the wire, the same on all workers. Zero:
	// allreduce.DefaultFormat, 8 bits in blocks of 1024. Smaller blocks are more
	// exact and cost 4 bytes each; 4 bits are half the bytes and 18 times the
	// error.
	Format allreduce.Format
	// PieceValues is the number of values per frame, a multiple of the format's
	// block. All workers of a ring need the same. Zero:
	// allreduce.DefaultPieceValues.
	PieceValues int
	// ShortPaths reports that all round trips between the workers are shorter than
	// allreduce.ShortRTT, and that no packets get lost. It must be set on all
	// workers or on none. It makes pieces longer.
	ShortPaths bool
	// Dilation is the factor by which the network is slower by the machine's clock
	// than the waiting times here assume. Zero: 1.
	Dilation float64
	// Patience is how long, in real time, a healthy exchange may stall on the
	// slowest link. No waiting time here is shorter.
	Patience time.Duration
	// PacketSize is the largest UDP payload in bytes. Zero:
	// allreduce.PacketSize.
	PacketSize uint16
	// Connections is the number of connections to every peer that this worker
	// sends to, 1 to allreduce.MaxConnections. Zero: as many as package tuner
	// chooses.
	Connections int
	// Entropy determines whether this worker shortens its codes by entropy coding.
	// Empty: entropy.Auto. For a format without codes it may not be On.
	Entropy entropy.Mode
}

// Peer is one worker of a ring.
type Peer struct {
	// Name is the DNS name in the peer's certificate.
	Name string
	// Addr is where its endpoint listens.
	Addr netip.AddrPort
	// Incarnation distinguishes its endpoint from earlier ones at the same
	// address, which old connections may still lead to.
	Incarnation int
}

// Op is one attempt to reduce, the same on all its workers except for Rank.
type Op struct {
	// Epoch numbers the attempts of a run. On every endpoint, each reduction has a
	// higher epoch than the one begun before, even after a failed one.
	Epoch uint64
	// Round is the outer step, 0 … 2^32-1. Peers must agree on it.
	Round int
	// Rank is this worker's place in Peers.
	Rank int
	// Peers are the workers in ring order.
	Peers []Peer
	// Algorithm is the algorithm. The zero value is the ring.
	Algorithm allreduce.Algorithm
	// Groups has a number for every rank: the hierarchical algorithm sums
	// inside groups of ranks with the same number first. The others ignore it.
	Groups []int
	// Residual, if it is not nil, is as long as the data and receives its
	// quantisation error at this rank, in units of the sum. A caller that adds it
	// to its data of the next reduction loses nothing in the long run (error
	// feedback). Like the output it is undefined after an error.
	Residual []float32
}

// Result has the costs of a reduction. Times start when Reduce is called, so
// they include dialling and waiting for a later predecessor.
type Result struct {
	// BytesSent and BytesReceived count frames, including headers, as written to
	// and read from streams. They exclude QUIC's own overhead, and the ends of
	// streams, which may arrive after the result is there.
	BytesSent, BytesReceived int64
	// ReduceScatter ends when this rank has finished its own chunk; AllGather
	// is the rest of Total.
	ReduceScatter, AllGather, Total time.Duration
	// Connections is the number of connections that carried frames to the
	// successor or, in an algorithm with more peers, to all peers.
	Connections int
	// Coded reports that this rank shortened its codes.
	Coded bool
	// BufferBytes is the memory of the reduction beyond input and output,
	// including the Outcome, excluding QUIC's own buffers.
	BufferBytes int64
	// Outcome is the mean in its quantised form. A single worker has none: its
	// mean is exact.
	Outcome *codec.Outcome
}
