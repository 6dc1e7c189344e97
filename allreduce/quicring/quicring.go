// Package quicring runs the quantised all-reduce of package allreduce between
// processes, over QUIC. It moves and adds numbers; who takes part, and
// when a slow or silent peer is given up, is its caller's to judge.
//
// # Connections and streams
//
// Every worker has one Endpoint on one UDP socket. It dials the workers that
// it sends to, and is dialled by those that send to it: in a ring its successor
// and its predecessor. All connections from one worker to another make a link.
// It is kept from round to round while the other takes part, and closed when
// eight reductions in a row had no use for it.
//
// A link has one connection where the path is clean. The congestion control of
// quic-go is Reno: packets lost at random keep its window small, whatever the
// path could carry, so a link over a lossy path grows more connections, each
// with a window of its own, while a reduction runs (see tuner).
//
// Every reduction opens at most one stream on every connection. Whichever can
// send takes the next frame, so that one connection's losses do not hold up
// the frames of the others, and the receiver takes frames in any order in which
// the schedule allows them. Every stream ends with a frame that says so, and the
// last of a peer's with the number of its streams: frames that are missing then
// fail the reduction, as do those of a peer whose connections have all ended.
// When the receiver has all of a stream it closes its
// own direction, and an endpoint that is being closed waits briefly for that
// sign, so that leaving right after a reduction does not take the last frames
// from a peer.
//
// # Trust
//
// Both sides present certificates. A stream counts as a peer's only if the
// certificate of its connection has the peer's DNS name; nothing in a frame
// can claim that. Every frame header is then compared with the schedule: it has
// to be one that is due from this peer now, and comes only once. The sizes of
// buffers come from the schedule, never from the wire.
//
// # Memory
//
// A piece on its way around the ring lies where its codes will be in the
// Outcome, from its arrival until it has been sent on: the mean of a piece
// cannot return to a rank that has not yet passed its sum on. So a reduction
// holds the Outcome, a quarter of the vector's size, and one piece for every
// connection it sends on. A rank that sums for others, as in the direct and the
// hierarchical algorithm, has room besides for the codes of those pieces that
// some have sent and others not yet: as much again at most. QUIC buffers at most
// the receive window of every connection. Result.BufferBytes says what a
// reduction took.
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

// Config is what an Endpoint is made of.
type Config struct {
	// Conn is the UDP socket. The Endpoint owns it from Listen on, also when
	// Listen fails, and closes it. A *net.UDPConn is fastest.
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
	// Format is how values go over the wire, the same on all workers. Zero:
	// allreduce.DefaultFormat, 8 bits in blocks of 1024. Smaller blocks are more
	// exact and cost 4 bytes each; 4 bits are half the bytes and 18 times the
	// error.
	Format allreduce.Format
	// PieceValues is the number of values per frame, a multiple of the format's
	// block. All workers of a ring need the same. Zero:
	// allreduce.DefaultPieceValues.
	PieceValues int
	// ShortPaths says, on all workers or on none, that all round trips between
	// them are shorter than allreduce.ShortRTT, and that no packets get lost: it
	// makes for longer pieces.
	ShortPaths bool
	// Dilation is how many times slower the network is by the machine's clock than
	// what waits here is made for. Zero: 1.
	Dilation float64
	// Patience is how long, in real time, a healthy exchange may stall on the
	// slowest link: nothing here is less patient.
	Patience time.Duration
	// PacketSize is the largest UDP payload in bytes. Zero:
	// allreduce.PacketSize.
	PacketSize uint16
	// Connections is the number of connections to every peer that this worker
	// sends to, 1 to allreduce.MaxConnections. Zero: as many as package tuner
	// says.
	Connections int
	// Entropy says whether this worker shortens its codes by entropy coding.
	// Empty: entropy.Auto. A format without codes leaves nothing to shorten, and
	// then it may not be On.
	Entropy entropy.Mode
}

// Peer is one worker of a ring.
type Peer struct {
	// Name is the DNS name that the peer's certificate must bear.
	Name string
	// Addr is where its endpoint listens.
	Addr netip.AddrPort
	// Incarnation tells its endpoint from earlier ones at the same address, which
	// connections may still lead to.
	Incarnation int
}

// Op is one attempt to reduce, the same on all its workers but for Rank.
type Op struct {
	// Epoch numbers the attempts of a run. Of every endpoint's reductions each
	// has a higher epoch than the one begun before, also after a failed one.
	Epoch uint64
	// Round is the outer step, 0 … 2^32-1. Peers must agree on it.
	Round int
	// Rank is this worker's place in Peers.
	Rank int
	// Peers are the workers in ring order.
	Peers []Peer
	// Algorithm is how to reduce. The zero value is the ring.
	Algorithm allreduce.Algorithm
	// Groups has a number for every rank: the hierarchical algorithm sums
	// inside groups of ranks with the same number first. The others ignore it.
	Groups []int
	// Residual, if it is not nil, is as long as the data and gets what
	// quantisation lost of it at this rank, in units of the sum. A caller that
	// adds it to its data of the next reduction loses nothing in the long run
	// (error feedback). Like the output it is undefined after an error.
	Residual []float32
}

// Result says what a reduction took. Times start when Reduce is called and so
// include dialling and waiting for a later predecessor.
type Result struct {
	// BytesSent and BytesReceived count frames, headers included, as written
	// to and read from streams: QUIC's own overhead is not in them, nor are the
	// ends of streams, which may arrive after the result is there.
	BytesSent, BytesReceived int64
	// ReduceScatter ends when this rank has finished its own chunk; AllGather
	// is the rest of Total.
	ReduceScatter, AllGather, Total time.Duration
	// Connections is the number of connections that the frames to the
	// successor went over; to all peers, where an algorithm has more of them.
	Connections int
	// Coded says that this rank shortened its codes.
	Coded bool
	// BufferBytes is the memory the reduction held beyond input and output, the
	// Outcome included, QUIC's own buffers not.
	BufferBytes int64
	// Outcome is the mean in its quantised form. A worker alone has none: its
	// mean is exact.
	Outcome *codec.Outcome
}
