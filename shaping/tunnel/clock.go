package tunnel

import "time"

const (
	// windowTime is the length of a window, whose shortest round trip counts.
	windowTime = time.Second
	// drift is the largest rate at which two clocks diverge: quartz is off by 50
	// parts in a million at most.
	drift = 100e-6
)

// Clock estimates another host's clock from four timestamps. The shorter the
// round trip, the smaller the possible error.
type Clock struct {
	Offset time.Duration // this host's clock less the other one
	Bound  time.Duration // of the error of Offset, when it was measured
	known  bool
	at     time.Duration // time of that measurement

	began time.Duration // of the window
	best  reading
}

// reading is one round trip.
type reading struct {
	rtt, offset time.Duration
	some        bool
}

// take takes a round trip: asked and answered are by this host's clock, heard
// and replied by the other one's.
func (c *Clock) take(asked, heard, replied, answered time.Duration) (rtt time.Duration) {
	rtt = max((answered-asked)-(replied-heard), 0)
	r := reading{rtt, ((asked - heard) + (answered - replied)) / 2, true}
	if answered-c.began > windowTime {
		if c.best.some {
			c.adopt(answered)
		}
		c.began, c.best = answered, reading{}
	}
	if !c.best.some || r.rtt < c.best.rtt {
		c.best = r
	}
	if !c.known {
		c.adopt(answered)
		c.known = false // until the first window is over, every shorter one counts
	}
	return rtt
}

// adopt adopts the best round trip of a window, unless the present estimate is
// still better: under load all round trips are long.
func (c *Clock) adopt(now time.Duration) {
	stale := c.Bound + time.Duration(drift*float64(now-c.at))
	if c.known && stale < c.best.rtt/2 {
		return
	}
	c.Offset, c.Bound, c.at, c.known = c.best.offset, c.best.rtt/2, now, true
}

// settle ends the first window.
func (c *Clock) settle() { c.known = true }
