// Package tuner decides over how many QUIC connections an all-reduce sends to a
// peer. The package is pure: the ring gives it its connections' measurements,
// and the simulator gives it the measurements that they would have on a planned
// path.
package tuner

import (
	"time"

	"testbed/allreduce"
)

// Tuner decides how many connections a link should have. Its zero value is
// ready, for a link with one connection.
//
// quic-go's windows grow as Reno's do. They double at first, until the round
// trip or a loss suggests that the path is full. Later they grow by a packet in
// every round trip. Over a long path that takes minutes, or for ever: a window
// that loses one packet in 1/p settles at about 1.7/√p packets, 53 for a loss
// of 0.1 %, a sixteenth of 100 Mbit/s × 100 ms. Jitter ends the doubling at any
// size. So the tuner tries more connections, each with a window of its own, if
// frames wait, the windows are used up and no longer double, and yet packets do
// not queue on the path.
//
// A full path has a queue, which lengthens every round trip. Jitter lengthens
// most of them, but now and then one is short, or at least they differ by more
// than the delay of the shortest. Both may occur together, however, and a busy
// machine looks like jitter too. So if the mean is long, and if no packet gets
// lost, the tuner goes on only if the rate has risen. If it has not, something
// else is full, such as the path or a processor.
type Tuner struct {
	last     Sample
	agreeing int     // samples in a row that asked for more connections
	peak     float64 // bytes per second, the highest so far
	before   float64 // peak when connections were last added
	lost     uint64  // packets, when connections were last added
}

// Sample has the joint measurements of a link's connections. Samples follow
// each other after about a round trip.
type Sample struct {
	Connections int
	// AppLimited reports that connections had no frames left to send.
	AppLimited       bool
	Elapsed          time.Duration // since the last sample
	BytesSent        uint64        // from the beginning
	PacketsLost      uint64        // from the beginning
	CongestionWindow uint64        // bytes, of all connections
	// SmoothedRTT is the mean over the connections. MinRTT is the shortest ever.
	// LowestRTT and HighestRTT are those since the last sample, or 0.
	SmoothedRTT, MinRTT, LowestRTT, HighestRTT time.Duration
}

const (
	// FirstStep is the number of connections after the first decision for more.
	// Doubling ends at MaxTuned: each connection has a timer for every
	// millisecond, so that further ones cost processor time before they gain any.
	FirstStep = 4
	MaxTuned  = 32
)

const (
	// minSamples is the number of consecutive samples that are no accident, and
	// minJitterySamples the number if round trips are longer than on an empty
	// path.
	minSamples, minJitterySamples = 2, 4
	// minUse is the least share of the windows that has to be under way, and
	// minEmptyUse the least share by the shortest round trip: jitter of a quarter
	// of the delay, ± 5 ms of 20 ms, leaves about 0.65.
	minUse, minEmptyUse = 0.7, 0.6
	// minLosses is the number of packets lost since the last decision that counts
	// as no loss.
	minLosses = 2
	// minGain is the factor by which the rate has to exceed all earlier rates with
	// more connections, at least twice as many.
	minGain = 1.15
)

// Resume takes a first sample after a pause without samples.
func (t *Tuner) Resume(s Sample) {
	if s.BytesSent < t.last.BytesSent { // a connection has ended
		t.peak, t.before, t.lost = 0, 0, s.PacketsLost
	}
	t.last.BytesSent, t.last.CongestionWindow = s.BytesSent, s.CongestionWindow
}

// Next returns the wanted number of connections, at least the present number.
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
		rate*s.MinRTT.Seconds() < minEmptyUse*float64(s.CongestionWindow),   // or most of it is queued
		s.CongestionWindow > last.CongestionWindow+last.CongestionWindow/10: // still growing
		return s.Connections
	}
	t.agreeing = agreeing + 1
	empty := s.MinRTT + s.MinRTT/8 + time.Millisecond // no queue up to here
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

// queues reports whether the round trips of two samples show a queue: none is
// as short as on an empty path, and they differ by less than that excess. The
// shortest round trip ever may have been a lucky one that does not recur.
func queues(a, b Sample, empty time.Duration) bool {
	lowest, highest := min(a.LowestRTT, b.LowestRTT), max(a.HighestRTT, b.HighestRTT)
	return lowest > empty && lowest-b.MinRTT > highest-lowest
}
