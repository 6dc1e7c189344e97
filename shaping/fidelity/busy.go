package fidelity

import (
	"math"
	"time"

	"testbed/shaping"
)

// BusyLink follows a link that has a rate. As long as packets wait for it, its
// packets must be spaced by their size divided by the rate: then it passes on
// exactly the rate. That is the invariant by which Mininet-HiFi tells whether
// an emulation keeps up. The zero value is ready to use.
type BusyLink struct {
	last Reading
	// Bytes passed on while the link was busy, and those of its rate.
	sent, due float64
	time      time.Duration
	// grain is the bytes of the frames in which stretches without a break began or
	// ended, where these take longer than the time between two readings.
	grain float64
	busy  bool
}

// Reading is the state of a link's queue at a time since any epoch.
type Reading struct {
	At      time.Duration
	Rate    shaping.Rate // zero: not known, or unlimited
	Bytes   uint64       // passed on so far
	Waiting uint64       // bytes
}

// Read takes the next reading. The link was busy since the one before if more
// waited then than it can have passed on at its rate.
func (b *BusyLink) Read(r Reading) {
	last, was := b.last, b.busy
	b.last, b.busy = r, false
	if last.Rate == 0 || last.Rate != r.Rate {
		return
	}
	due := float64(r.Rate) / 8 * (r.At - last.At).Seconds()
	if float64(last.Waiting) < due {
		return
	}
	if b.busy = true; !was && r.Rate.Sending(shaping.FrameSize) > r.At-last.At {
		b.grain += shaping.FrameSize
	}
	b.sent += float64(r.Bytes - last.Bytes)
	b.due += due
	b.time += r.At - last.At
}

// Skip says that the next reading does not follow on the last.
func (b *BusyLink) Skip() { b.last, b.busy = Reading{}, false }

// Take returns what was found since the last call: for how long the link was
// busy, and the share of its rate that it passed on meanwhile. A long frame that a
// stretch begins or ends in counts wholly or not at all, so as much is left out of the
// difference: at 64 kbit/s a frame takes 190 ms.
func (b *BusyLink) Take() (busy time.Duration, share float64) {
	busy, share = b.time, 1
	if b.due > 0 {
		share = b.sent / b.due
	}
	if b.grain > 0 {
		off := b.sent - b.due
		share = 1 + math.Copysign(max(math.Abs(off)-b.grain, 0), off)/b.due
	}
	b.sent, b.due, b.time = 0, 0, 0
	if b.grain > 0 && b.busy {
		b.grain = shaping.FrameSize // the stretch goes on
	} else {
		b.grain = 0
	}
	return busy, share
}

// Busy enters a link that was busy for that long, if it is the worst of those
// that were busy for long enough.
func (m *Measurements) Busy(link string, busy time.Duration, share float64) {
	if busy >= leastBusy && (m.BusyLink == "" || math.Abs(share-1) > math.Abs(m.BusyShare-1)) {
		m.BusyLink, m.BusyTime, m.BusyShare = link, busy, share
	}
}
