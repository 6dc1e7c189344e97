package quicring

import "time"

// tuner decides how many connections a link should have. It is pure: the link
// tells it what it has measured.
//
// A Reno window that loses one packet in 1/p settles at about 1.7/√p packets,
// however much more the path could carry: 53 for a loss of 0.1 %, a sixteenth
// of 100 Mbit/s × 100 ms. But losses alone prove nothing: a full path loses
// packets too, and there more connections win nothing. What tells the two
// apart is the queue. Before a full path loses packets, they wait, and the
// round trip becomes longer; a path that loses packets at its shortest round
// trip has room for more connections.
type tuner struct {
	sent, lost uint64 // packets, at the last decision
	seen       int    // samples since, in which frames waited
}

// sample is what a link's connections have counted together.
type sample struct {
	connections int
	waiting     bool   // there were frames that no connection could take
	sent, lost  uint64 // packets, from the beginning
	// rtt is smoothed, the mean over the connections; shortest is the shortest
	// ever.
	rtt, shortest time.Duration
}

const (
	// nearRTT is below the distances at which Reno's recovery, a packet more in
	// every round trip, is slow.
	nearRTT = 2 * time.Millisecond
	// minLosses is how many lost packets are no accident.
	minLosses = 2
	// minSamples is how many samples a decision needs.
	minSamples = 2
)

// next returns how many connections there should be, at least those there are.
func (t *tuner) next(s sample) int {
	if s.sent < t.sent || s.lost < t.lost { // a connection has ended
		*t = tuner{sent: s.sent, lost: s.lost}
	}
	if !s.waiting {
		// Nobody waits for this link: it would not help if it were faster.
		*t = tuner{sent: s.sent, lost: s.lost}
		return s.connections
	}
	if s.shortest < nearRTT || s.rtt > s.shortest+s.shortest/8+time.Millisecond {
		// Near, or full.
		*t = tuner{sent: s.sent, lost: s.lost}
		return s.connections
	}
	t.seen++
	if t.seen < minSamples || s.lost-t.lost < minLosses {
		return s.connections
	}
	*t = tuner{sent: s.sent, lost: s.lost}
	if s.connections == 1 {
		return 4
	}
	return min(2*s.connections, maxConnections)
}
