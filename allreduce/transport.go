package allreduce

import "time"

// Constants of the all-reduce over QUIC, for the simulator as well as for the
// real transport.
const (
	// PacketSize is the largest UDP payload, in bytes: 1480 or 1500 with IPv4 or
	// IPv6 headers, so that it fits Ethernet. It is also the largest payload that
	// quic-go sends.
	PacketSize = 1452
	// StreamData is the number of stream bytes in a full packet: PacketSize less
	// the short header, the STREAM frame's header and the AEAD's tag.
	StreamData = PacketSize - 32
	// MaxConnections is the number of connections to one peer, at most.
	MaxConnections = 64
	// ShortRTT is the round trip below which distance does not matter to a
	// transfer: windows grow fast enough.
	ShortRTT = 2 * time.Millisecond
)
