// Package tuner decides over how many QUIC connections an all-reduce sends to a
// peer. It is pure: the ring feeds it what its connections measure, and the
// simulator what they would measure on a planned path.
package tuner

import (
	"time"

	"testbed/allreduce"
)

// Tuner decides how many connections a link should have. Its zero value is
// ready, for a link with one connection.
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
// lost, the tuner goes on only if the rate has risen. If it has not, something
// else is full, such as the path or a processor.
type Tuner struct {
	last     Sample
	agreeing int     // samples in a row that asked for more connections
	peak     float64 // bytes per second, the most there has been
	before   float64 // peak when connections were last added
	lost     uint64  // packets, when connections were last added
}

// Sample is what a link's connections have measured together. Samples follow
// each other in about a round trip.
type Sample struct {
	Connections int
	// AppLimited says that connections had no frames left to send.
	AppLimited       bool
	Elapsed          time.Duration // since the last sample
	BytesSent        uint64        // from the beginning
	PacketsLost      uint64        // from the beginning
	CongestionWindow uint64        // bytes, of all connections
	// SmoothedRTT is the mean over the connections; MinRTT is the shortest
	// ever; LowestRTT and HighestRTT are those seen since the last sample, or 0.
	SmoothedRTT, MinRTT, LowestRTT, HighestRTT time.Duration
}

const (
	// FirstStep is how many connections there are after the first decision for
	// more of them, and MaxTuned where doubling ends: each connection has a timer
	// for every millisecond, so that more of them cost processor time before they
	// win any.
	FirstStep = 4
	MaxTuned  = 32
)

const (
	// minSamples is how many samples in a row are no accident, and
	// minJitterySamples where round trips are longer than on an empty path.
	minSamples, minJitterySamples = 2, 4
	// minUse is the least share of the windows that has to be under way, and
	// minEmptyUse the least by the shortest round trip: jitter of a quarter of the
	// delay, ± 5 ms of 20 ms, leaves about 0.65.
	minUse, minEmptyUse = 0.7, 0.6
	// minLosses is how many packets lost since the last decision are none.
	minLosses = 2
	// minGain is by how much the rate has to rise above all before with more
	// connections, of which there are at least twice as many.
	minGain = 1.15
)

// Resume takes in a first sample after a pause, in which nothing was sampled.
func (t *Tuner) Resume(s Sample) {
	if s.BytesSent < t.last.BytesSent { // a connection has ended
		t.peak, t.before, t.lost = 0, 0, s.PacketsLost
	}
	t.last.BytesSent, t.last.CongestionWindow = s.BytesSent, s.CongestionWindow
}

// Next returns how many connections there should be, at least those there are.
func (t *Tuner) Next(s Sample) int {
	last, agreeing := t.last, t.agreeing
	t.Resume(s)
	t.last, t.agreeing = s, 0
	if s.BytesSent < last.BytesSent {
		return s.Connections
	}
	rate := float64(s.BytesSent-last.BytesSent) / s.Elapsed.Seconds()
	t.peak = max(t.peak, rate)
	switch {
	case s.AppLimited, s.MinRTT < allreduce.ShortRTT, s.LowestRTT == 0,
		rate*s.SmoothedRTT.Seconds() < minUse*float64(s.CongestionWindow),   // something else is slow
		rate*s.MinRTT.Seconds() < minEmptyUse*float64(s.CongestionWindow),   // or most of it queues
		s.CongestionWindow > last.CongestionWindow+last.CongestionWindow/10: // still growing
		return s.Connections
	}
	t.agreeing = agreeing + 1
	empty := s.MinRTT + s.MinRTT/8 + time.Millisecond // nothing queues up to here
	short := max(last.SmoothedRTT, s.SmoothedRTT) <= empty
	if t.agreeing < minSamples || !short && t.agreeing < minJitterySamples {
		return s.Connections
	}
	risen := rate >= minGain*t.before
	lossy := short && s.PacketsLost >= t.lost+minLosses
	if queues(last, s, empty) || !risen && !lossy {
		return s.Connections
	}
	t.agreeing, t.before, t.lost = 0, t.peak, s.PacketsLost
	if s.Connections == 1 {
		return FirstStep
	}
	return max(s.Connections, min(2*s.Connections, MaxTuned))
}

// queues reports whether the round trips of two samples are those of a queue:
// none is as short as on an empty path, and they differ less than that. The
// shortest ever may have been a lucky one, which does not come again.
func queues(a, b Sample, empty time.Duration) bool {
	lowest, highest := min(a.LowestRTT, b.LowestRTT), max(a.HighestRTT, b.HighestRTT)
	return lowest > empty && lowest-b.MinRTT > highest-lowest
}
