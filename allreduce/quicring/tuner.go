package quicring

import "time"

// tuner decides how many connections a link should have. It is pure: the link
// tells it what it has measured.
//
// quic-go's windows grow as Reno's do: by doubling at first, until the round
// trip or a loss seems to say that the path is full, later by a packet in every
// round trip. Over a long path that takes minutes, or for ever: a window that
// loses one packet in 1/p settles at about 1.7/√p packets, 53 for a loss of
// 0.1 %, a sixteenth of 100 Mbit/s × 100 ms. So where frames wait, the windows
// are used up and no longer double, and yet packets do not queue on the path,
// which would lengthen the round trip, more connections are tried, each with a
// window of its own. A full path shows a queue. If no packet gets lost and the
// rate does not rise either, something else is full, such as a processor.
type tuner struct {
	bytes, window uint64  // of the last sample
	seen          int     // samples in a row that asked for more
	rate          float64 // bytes per second, when there were last made more
	lost          uint64  // packets, by then
}

// sample is what a link's connections have measured together.
type sample struct {
	connections int
	waiting     bool          // there were frames that no connection could take
	elapsed     time.Duration // since the last sample
	bytes       uint64        // sent, from the beginning
	lost        uint64        // packets, from the beginning
	window      uint64        // bytes, all congestion windows
	// rtt is smoothed, the mean over the connections; shortest is the shortest
	// ever.
	rtt, shortest time.Duration
}

const (
	// nearRTT is below the distances at which windows grow slowly.
	nearRTT = 2 * time.Millisecond
	// minSamples is how many samples in a row are no accident.
	minSamples = 2
	// minLosses is how many packets lost since the last decision are none.
	minLosses = 2
	// minGain is by how much the rate has to rise with more connections, of
	// which there are at least twice as many.
	minGain = 1.15
	// maxTuned is where it ends: each connection has a timer for every
	// millisecond, so that more of them cost processor time before they win any.
	maxTuned = 32
)

// next returns how many connections there should be, at least those there are.
// Samples follow each other in about a round trip.
func (t *tuner) next(s sample) int {
	last := *t
	t.bytes, t.window, t.seen = s.bytes, s.window, 0
	if s.bytes < last.bytes { // a connection has ended
		t.rate, t.lost = 0, s.lost
		return s.connections
	}
	rate := float64(s.bytes-last.bytes) / s.elapsed.Seconds()
	switch {
	case !s.waiting, s.shortest < nearRTT,
		s.rtt > s.shortest+s.shortest/8+time.Millisecond, // a queue
		rate*s.rtt.Seconds() < 0.7*float64(s.window),     // something else is slow
		s.window > last.window+last.window/10:            // still growing
		return s.connections
	}
	t.seen = last.seen + 1
	if t.seen < minSamples || rate < minGain*t.rate && s.lost < t.lost+minLosses {
		return s.connections
	}
	t.seen, t.rate, t.lost = 0, rate, s.lost
	if s.connections == 1 {
		return 4
	}
	return max(s.connections, min(2*s.connections, maxTuned))
}
