package quicring

import (
	"time"

	"github.com/quic-go/quic-go"
)

// roundTrips finds the shortest of the recent round trips over a link, which
// QUIC itself keeps only since the beginning.
type roundTrips struct {
	// received is how many packets each connection had received: without new
	// ones its latest round trip is an old one.
	received map[*quic.Conn]uint64
	lowest   time.Duration // 0: there was none
}

// look takes in the latest round trip of every connection.
func (r *roundTrips) look(conns []*quic.Conn) {
	for _, c := range conns {
		stats := c.ConnectionStats()
		before, known := r.received[c]
		r.received[c] = stats.PacketsReceived
		if known && stats.PacketsReceived > before && (r.lowest == 0 || stats.LatestRTT < r.lowest) {
			r.lowest = stats.LatestRTT
		}
	}
}

// take returns the shortest round trip since it was taken last, 0 if there was
// none.
func (r *roundTrips) take() time.Duration {
	lowest := r.lowest
	r.lowest = 0
	return lowest
}
