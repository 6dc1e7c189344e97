package node

import (
	"fmt"
	"math"
	"slices"

	"testbed/allreduce"
	"testbed/policy"
	"testbed/runlog"
)

// RingDelays are the one-way delays between workers that rings are ordered by,
// in seconds. Without workers, rings are in the order of the ids.
type RingDelays struct {
	Workers []policy.ID `json:"workers,omitempty"`
	Delays  [][]float64 `json:"delays,omitempty"` // from row to column, by index in Workers
}

// ring orders participants, which are in order of their ids.
func (d *RingDelays) ring(participants []policy.ID, scale float64) (*runlog.Ring, error) {
	costs := make([][]float64, len(participants))
	naive := make([]int, len(participants))
	for i, from := range participants {
		naive[i] = i
		row := slices.Index(d.Workers, from)
		for _, to := range participants {
			column := slices.Index(d.Workers, to)
			if row < 0 || column < 0 {
				return nil, fmt.Errorf("ring order: no delay from worker %d to worker %d", from, to)
			}
			costs[i] = append(costs[i], d.Delays[row][column])
		}
	}
	tour, err := allreduce.OrderRing(costs, allreduce.Sum)
	if err != nil {
		return nil, err
	}
	scenario := func(seconds float64) policy.Time { return policy.Time(math.Round(seconds * 1e6 / scale)) }
	r := &runlog.Ring{
		Latency:      scenario(allreduce.RingLatency(costs, tour.Order)),
		NaiveLatency: scenario(allreduce.RingLatency(costs, naive)),
	}
	for _, k := range tour.Order {
		r.Order = append(r.Order, participants[k])
	}
	return r, nil
}

// order is that of the ring of participants.
func (c *coordinator) order(participants []policy.ID) []policy.ID {
	if len(c.cfg.Delays.Workers) == 0 {
		return participants
	}
	if c.ring == nil || !slices.Equal(slices.Sorted(slices.Values(c.ring.Order)), participants) {
		var err error
		if c.ring, err = c.cfg.Delays.ring(participants, c.scenario.Real.TimeScale); err != nil {
			c.cfg.Log.Warn("the ring is in naive order", "err", err)
			return participants
		}
	}
	return c.ring.Order
}

// orderRing adds the ring's order to the record of a reduction's start.
func (c *coordinator) orderRing(e *runlog.Event) {
	if e.Type == runlog.ReduceStart && len(c.cfg.Delays.Workers) > 0 {
		c.order(e.Participants)
		e.Ring = c.ring
	}
}
