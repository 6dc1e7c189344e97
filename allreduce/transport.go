package allreduce

import "time"

// Facts of the all-reduce over QUIC that every world goes by, the simulator as
// well as the real transport.
const (
	// PacketSize is the largest UDP payload, in bytes: 1480 or 1500 with IPv4 or
	// IPv6 headers, so that it fits Ethernet, and the most that quic-go sends.
	PacketSize = 1452
	// StreamData is what a full packet carries of a stream, in bytes: less the
	// short header, the STREAM frame's header and the AEAD's tag.
	StreamData = PacketSize - 32
	// MaxConnections is the number of connections to one peer, at most.
	MaxConnections = 64
	// ShortRTT is the round trip below which distance does not matter to a
	// transfer: windows grow fast enough.
	ShortRTT = 2 * time.Millisecond
)
