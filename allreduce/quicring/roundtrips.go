package quicring

import (
	"time"

	"github.com/quic-go/quic-go"
)

// roundTrips finds the shortest and the longest of the recent round trips over a
// link. QUIC itself knows only the shortest since the beginning.
type roundTrips struct {
	// received is the number of packets that each connection had received: without
	// new ones its latest round trip is an old one.
	received map[*quic.Conn]uint64
	// 0: there was none.
	lowest, highest time.Duration
}

// read records the latest round trip of every connection.
func (r *roundTrips) read(conns []*quic.Conn) {
	for _, c := range conns {
		stats := c.ConnectionStats()
		before, known := r.received[c]
		r.received[c] = stats.PacketsReceived
		if !known || stats.PacketsReceived == before {
			continue
		}
		if r.lowest == 0 || stats.LatestRTT < r.lowest {
			r.lowest = stats.LatestRTT
		}
		r.highest = max(r.highest, stats.LatestRTT)
	}
}

// take returns the shortest and the longest round trip since the last call, 0
// if there was none.
func (r *roundTrips) take() (lowest, highest time.Duration) {
	lowest, highest = r.lowest, r.highest
	r.lowest, r.highest = 0, 0
	return lowest, highest
}
