package sim

import (
	"math/rand/v2"
	"time"

	"testbed/allreduce/tuner"
)

// burstDelay is by how much jitter delays, on the average, the last packet of so
// many bytes that are sent at the rate of the access links.
func (n *Network) burstDelay(from, to int, bytes byteCount) time.Duration {
	p := n.Plan.Paths[from][to]
	if p.Jitter == 0 {
		return 0
	}
	b := Burst{Jitter: p.Jitter, Distribution: p.JitterDistribution,
		Packets: int((bytes + StreamData - 1) / StreamData), Spacing: n.access(from, to).Serialisation(StreamData)}
	known, ok := n.burstDelays[b]
	if !ok {
		known = b.MeanDelay()
		n.burstDelays[b] = known
	}
	return known
}

// jitterWindow is about what a connection has in flight on a path whose jitter
// has ended its slow start.
const jitterWindow = 2 * InitialWindow

// stalls is how long so many bytes wait for windows that jitter keeps small.
// Where the number of connections is the tuner's choice (0), it is that of its
// first step: finding out that more would do takes it several rounds. The tuner
// is not asked here, as it is about losses (tuned): it takes this step by single
// round trips, of which steady's samples know the mean and the bounds only.
func (n *Network) stalls(from, to int, bytes byteCount, rate byteRate, connections int) time.Duration {
	if bytes <= jitterWindow || !n.endsSlowStart(from, to) {
		return 0
	}
	if connections == 0 {
		connections = tuner.FirstStep
	}
	window := jitterWindow * byteCount(connections)
	if bytes <= window {
		return 0
	}
	return time.Duration((bytes-1)/window) * max(0, n.RTT(from, to)-rate.Serialisation(window))
}

// endsSlowStart says whether a sender takes the path's jitter for a queue: quic-go
// ends its slow start when round trips are an eighth longer than the shortest,
// but not for less than 4 ms, and for 16 ms anyway (HyStart).
func (n *Network) endsSlowStart(from, to int) bool {
	if n.Plan.Paths[from][to].Jitter == 0 && n.Plan.Paths[to][from].Jitter == 0 {
		return false
	}
	shortest := n.minRTT(from, to)
	return n.RTT(from, to)-shortest > min(max(shortest/8, 4*time.Millisecond), 16*time.Millisecond)
}

// minRTT is the shortest round trip that jitter allows.
func (n *Network) minRTT(a, b int) time.Duration {
	return time.Duration(n.Plan.Paths[a][b].Fastest() + n.Plan.Paths[b][a].Fastest())
}

// drawJitter draws the jitter of a single packet.
func (n *Network) DrawJitter(from, to int, rng *rand.Rand) time.Duration {
	p := n.Plan.Paths[from][to]
	if p.Jitter == 0 {
		return 0
	}
	table := p.JitterDistribution.Table()
	return time.Duration(p.Jitter.Deviation(table[rng.IntN(len(table))]))
}
