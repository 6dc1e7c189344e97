package quicring

import "time"

// tuner decides how many connections a link should have. It is pure: the link
// tells it what it has measured.
//
// quic-go's windows grow as Reno's do: by doubling at first, until the round
// trip or a loss seems to say that the path is full, later by a packet in every
// round trip. Over a long path that takes minutes, or for ever: a window that
// loses one packet in 1/p settles at about 1.7/√p packets, 53 for a loss of
// 0.1 %, a sixteenth of 100 Mbit/s × 100 ms. Jitter ends the doubling wherever
// it happens to be. So where frames wait, the windows are used up and no longer
// double, and yet packets do not queue on the path, more connections are tried,
// each with a window of its own.
//
// A full path shows a queue, which lengthens every round trip; jitter lengthens
// most of them, but every now and then one is short, or at least they differ by
// more than the shortest is late. Both may be there, however, and a busy
// machine looks like jitter too: where the mean is long, and where no packet gets
// lost, it goes on only if the rate has risen. If it has not, something else is
// full, such as the path or a processor.
type tuner struct {
	last sample
	seen int     // samples in a row that asked for more
	peak float64 // bytes per second, the most there has been
	best float64 // the same, until there were last made more
	lost uint64  // packets, by then
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
	// ever; lowest and highest are those seen since the last sample, or 0.
	rtt, shortest, lowest, highest time.Duration
}

const (
	// nearRTT is below the distances at which windows grow slowly.
	nearRTT = 2 * time.Millisecond
	// minSamples is how many samples in a row are no accident.
	minSamples = 2
	// moreSamples is the same where round trips are longer than on an empty path.
	moreSamples = 4
	// minUse is the least share of the windows that has to be under way, and
	// minEmptyUse the same by the shortest round trip: jitter of a quarter of the
	// delay, ± 5 ms of 20 ms, leaves about 0.65.
	minUse, minEmptyUse = 0.7, 0.6
	// minLosses is how many packets lost since the last decision are none.
	minLosses = 2
	// minGain is by how much the rate has to rise above all before with more
	// connections, of which there are at least twice as many.
	minGain = 1.15
	// maxTuned is where it ends: each connection has a timer for every
	// millisecond, so that more of them cost processor time before they win any.
	maxTuned = 32
)

// resume takes in a first sample after a pause, in which nobody looked.
func (t *tuner) resume(s sample) {
	if s.bytes < t.last.bytes { // a connection has ended
		t.peak, t.best, t.lost = 0, 0, s.lost
	}
	t.last.bytes, t.last.window = s.bytes, s.window
}

// next returns how many connections there should be, at least those there are.
// Samples follow each other in about a round trip.
func (t *tuner) next(s sample) int {
	last, seen := t.last, t.seen
	t.resume(s)
	t.last, t.seen = s, 0
	if s.bytes < last.bytes {
		return s.connections
	}
	rate := float64(s.bytes-last.bytes) / s.elapsed.Seconds()
	t.peak = max(t.peak, rate)
	switch {
	case !s.waiting, s.shortest < nearRTT, s.lowest == 0,
		rate*s.rtt.Seconds() < minUse*float64(s.window),           // something else is slow
		rate*s.shortest.Seconds() < minEmptyUse*float64(s.window), // or most of it queues
		s.window > last.window+last.window/10:                     // still growing
		return s.connections
	}
	t.seen = seen + 1
	empty := s.shortest + s.shortest/8 + time.Millisecond // nothing queues up to here
	short := max(last.rtt, s.rtt) <= empty
	if t.seen < minSamples || !short && t.seen < moreSamples {
		return s.connections
	}
	risen := rate >= minGain*t.best
	lossy := short && s.lost >= t.lost+minLosses
	if queues(last, s, empty) || !risen && !lossy {
		return s.connections
	}
	t.seen, t.best, t.lost = 0, t.peak, s.lost
	if s.connections == 1 {
		return 4
	}
	return max(s.connections, min(2*s.connections, maxTuned))
}

// queues reports whether the round trips of two samples are those of a queue:
// none is as short as on an empty path, and they differ less than that. The
// shortest ever may have been a lucky one, which does not come again.
func queues(a, b sample, empty time.Duration) bool {
	lowest, highest := min(a.lowest, b.lowest), max(a.highest, b.highest)
	return lowest > empty && lowest-b.shortest > highest-lowest
}
