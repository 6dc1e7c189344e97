package fidelity

import (
	"math"
	"time"

	"testbed/shaping"
)

// BusyLink follows a link with a rate. While packets wait for the link, it must
// space packets by their size divided by the rate: then it passes on exactly
// the rate. By this invariant Mininet-HiFi recognises an emulation that does
// not keep up. The zero value is ready to use.
type BusyLink struct {
	last Reading
	// Bytes passed on while the link was busy, and the bytes due at its rate.
	sent, due float64
	time      time.Duration
	// grain is the number of bytes in frames in which uninterrupted stretches
	// began or ended, if such frames take longer than the time between two
	// readings.
	grain float64
	busy  bool
}

// Reading is the state of a link's queue at a time since any epoch.
type Reading struct {
	At      time.Duration
	Rate    shaping.Rate // zero: unknown, or unlimited
	Bytes   uint64       // passed on so far
	Waiting uint64       // bytes
}

// Read takes the next reading. The link was busy since the last reading if more
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

// Skip reports a gap before the next reading.
func (b *BusyLink) Skip() { b.last, b.busy = Reading{}, false }

// Take returns the findings since the last call: the time for which the link
// was busy, and the share of its rate that it passed on meanwhile. A long frame
// at the beginning or end of a stretch counts wholly or not at all, so a
// difference of one frame is ignored: at 64 kbit/s a frame takes 190 ms.
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

// Busy records a link that was busy for that long, if it is the worst of the
// links that were busy long enough.
func (m *Measurements) Busy(link string, busy time.Duration, share float64) {
	if busy >= leastBusy && (m.BusyLink == "" || math.Abs(share-1) > math.Abs(m.BusyShare-1)) {
		m.BusyLink, m.BusyTime, m.BusyShare = link, busy, share
	}
}
