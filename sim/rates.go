package sim

import (
	"time"

	"testbed/allreduce"
	"testbed/shaping"
)

const (
	// streamData is the number of stream bytes in a full packet.
	streamData = allreduce.StreamData
	// ethernetFrame is a full packet as links count it.
	ethernetFrame = allreduce.PacketSize + shaping.UDPHeaders
	// initialWindow is the number of bytes that a new connection may have in
	// flight (quic-go's initial congestion window).
	initialWindow = 32 * allreduce.PacketSize
)

// byteCount is a number of bytes.
type byteCount int64

// byteRate is a rate; 0 is unlimited.
type byteRate int64

// goodput is the rate of stream data at a link rate, which counts Ethernet
// frames.
func goodput(r shaping.Rate) byteRate {
	return byteRate(int64(r) / 8 * streamData / ethernetFrame)
}

// limited is the lower of two rates.
func (r byteRate) limited(by byteRate) byteRate {
	if r == 0 || by != 0 && by < r {
		return by
	}
	return r
}

// serialisation is the time of so many bytes at the rate.
func (r byteRate) serialisation(bytes byteCount) time.Duration {
	if r == 0 {
		return 0
	}
	// Split, so that no product exceeds 64 bits.
	n, rate, second := int64(bytes), int64(r), int64(time.Second)
	return time.Duration(n/rate*second + int64(float64(n%rate)/float64(rate)*float64(second)))
}

// slowStart is the additional time that a new connection takes for so many
// bytes. Its window doubles with every round trip. Until the window holds the
// path's bandwidth-delay product, every window is followed by a wait.
func slowStart(bytes byteCount, rate byteRate, rtt time.Duration) time.Duration {
	var wait time.Duration
	window := byteCount(initialWindow)
	for sent := window; sent < bytes; sent += window {
		busy := rate.serialisation(window)
		if rate != 0 && busy >= rtt {
			break
		}
		wait += rtt - busy
		window *= 2
	}
	return wait
}
