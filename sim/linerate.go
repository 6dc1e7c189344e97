package sim

import (
	"time"

	"testbed/allreduce"
	"testbed/shaping"
)

const (
	// StreamData is what a full packet has of the data of streams, in bytes.
	StreamData = allreduce.StreamData
	// ethernetFrame is a full packet as links count it.
	ethernetFrame = allreduce.PacketSize + shaping.UDPHeaders
	// InitialWindow is what a new connection may have in flight (quic-go's
	// initial congestion window), in bytes.
	InitialWindow = 32 * allreduce.PacketSize
)

// Bytes is a number of bytes.
type Bytes int64

// BytesPerSecond is a rate; 0 is unlimited.
type BytesPerSecond int64

// Goodput is what a rate, which counts Ethernet frames, leaves for the data of
// streams.
func Goodput(r shaping.Rate) BytesPerSecond {
	return BytesPerSecond(int64(r) / 8 * StreamData / ethernetFrame)
}

// Limited is the lower of two rates.
func (r BytesPerSecond) Limited(by BytesPerSecond) BytesPerSecond {
	if r == 0 || by != 0 && by < r {
		return by
	}
	return r
}

// Serialisation is how long so many bytes take at the rate.
func (r BytesPerSecond) Serialisation(bytes Bytes) time.Duration {
	if r == 0 {
		return 0
	}
	// Split, so that no product leaves 64 bits.
	n, rate, second := int64(bytes), int64(r), int64(time.Second)
	return time.Duration(n/rate*second + int64(float64(n%rate)/float64(rate)*float64(second)))
}

// SlowStart is by how much longer than its rate a new connection takes for so
// many bytes: its window doubles with every round trip, and until it holds the
// path's bandwidth-delay product, every window is followed by a wait.
func SlowStart(bytes Bytes, rate BytesPerSecond, rtt time.Duration) time.Duration {
	var wait time.Duration
	window := Bytes(InitialWindow)
	for sent := window; sent < bytes; sent += window {
		busy := rate.Serialisation(window)
		if rate != 0 && busy >= rtt {
			break
		}
		wait += rtt - busy
		window *= 2
	}
	return wait
}
