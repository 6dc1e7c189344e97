//go:build linux

package monitor

import (
	"math"

	"testbed/shaping"
	"testbed/shaping/kernel"
)

// NetemExcess counts the packets that netem queues dropped in excess of planned
// losses: their limit was too small, or the machine too slow. Losses are
// random, so five standard errors are allowed.
func NetemExcess(plan *shaping.Plan, counts []kernel.QueueCount) uint64 {
	excess := 0.0
	for _, c := range counts {
		from, to := plan.Index(c.Node), plan.Index(c.Peer)
		if c.Kind != "netem" || from < 0 {
			continue
		}
		if to < 0 { // shared, because all paths from this node are equal
			to = (from + 1) % len(plan.Nodes)
		}
		if plan.Paths[from][to].Rate > 0 {
			continue // beyond the queue of the path's rate, as planned
		}
		n, p := float64(c.Packets+c.Lost), float64(plan.Paths[from][to].MeanLoss())
		excess += max(float64(c.Lost)-n*p-5*math.Sqrt(n*p*(1-p)*plan.Paths[from][to].Clumping()), 0)
	}
	return uint64(excess)
}
