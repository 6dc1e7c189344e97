package node

import (
	"math"
	"slices"

	"testbed/policy"
	"testbed/record"
)

// order is the ring's order of participants, which are in order of their ids.
func (c *coordinator) order(participants []policy.ID) []policy.ID {
	if !c.cfg.Ways.Known() {
		return participants
	}
	if c.ring == nil || !slices.Equal(slices.Sorted(slices.Values(c.ring.Order)), participants) {
		r, err := c.cfg.Ways.Order(participants)
		if err != nil {
			c.ring = nil
			c.cfg.Log.Warn("the ring could not be optimised: it stays in the order of the workers' ids", "err", err)
			return participants
		}
		const mbit = 1e6
		scenario := func(seconds float64) policy.Time {
			return policy.Time(math.Round(seconds * 1e6 / c.cfg.TimeScale))
		}
		c.ring = &record.Ring{
			Order: r.Order, Latency: scenario(r.Latency), NaiveLatency: scenario(r.NaiveLatency),
			RateMbit: float64(r.Rate) / mbit, NaiveRateMbit: float64(r.NaiveRate) / mbit,
		}
	}
	return c.ring.Order
}

// orderRing adds the ring's order to the record of a reduction's start.
func (c *coordinator) orderRing(e *record.Event) {
	if e.Type == record.ReduceStart && c.cfg.Ways.Known() {
		c.order(e.Participants)
		e.Ring = c.ring
	}
}
