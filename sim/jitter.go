package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"testbed/allreduce/tuner"
	"testbed/shaping"
)

// burstDelay is the mean delay that jitter adds to the last packet of so many
// bytes, sent at the rate of the access links.
func (n *links) burstDelay(from, to int, bytes byteCount) time.Duration {
	p := n.plan.Paths[from][to]
	if p.Jitter == 0 {
		return 0
	}
	b := burst{jitter: p.Jitter, distribution: p.JitterDistribution,
		packets: int((bytes + streamData - 1) / streamData), spacing: n.access(from, to).serialisation(streamData)}
	known, ok := n.burstDelays[b]
	if !ok {
		known = b.meanDelay()
		n.burstDelays[b] = known
	}
	return known
}

// jitterWindow is about the number of bytes that a connection has in flight on
// a path whose jitter has ended its slow start.
const jitterWindow = 2 * initialWindow

// stalls is the time that so many bytes wait for windows that jitter keeps
// small. If the tuner chooses the number of connections (0), the number of its
// first step is used: finding out that more are needed takes the tuner several
// rounds. The tuner itself is not simulated here, unlike for losses (tuned): it
// takes this step by single round trips, and steady's samples have only their
// mean and bounds.
func (n *links) stalls(from, to int, bytes byteCount, rate byteRate, connections int) time.Duration {
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
	return time.Duration((bytes-1)/window) * max(0, n.rtt(from, to)-rate.serialisation(window))
}

// endsSlowStart reports whether a sender takes the path's jitter for a queue.
// quic-go ends its slow start (HyStart) when round trips are an eighth longer
// than the shortest. The excess must be at least 4 ms, and 16 ms is always
// enough.
func (n *links) endsSlowStart(from, to int) bool {
	if n.plan.Paths[from][to].Jitter == 0 && n.plan.Paths[to][from].Jitter == 0 {
		return false
	}
	shortest := n.minRTT(from, to)
	return n.rtt(from, to)-shortest > min(max(shortest/8, 4*time.Millisecond), 16*time.Millisecond)
}

// minRTT is the shortest round trip that jitter allows.
func (n *links) minRTT(a, b int) time.Duration {
	return time.Duration(n.plan.Paths[a][b].Fastest() + n.plan.Paths[b][a].Fastest())
}

// drawJitter draws the jitter of a single packet.
func (n *links) drawJitter(from, to int, rng *rand.Rand) time.Duration {
	p := n.plan.Paths[from][to]
	if p.Jitter == 0 {
		return 0
	}
	table := p.JitterDistribution.Table()
	return time.Duration(p.Jitter.Deviation(table[rng.IntN(len(table))]))
}

// burst is a sequence of packets sent one after the other on a path with
// jitter. Packets of a path do not overtake each other: those behind a slow
// packet wait for it. On average a message of one packet is not delayed, and a
// burst takes about as long as its slowest packet.
type burst struct {
	jitter       shaping.Duration
	distribution shaping.JitterDistribution
	packets      int
	spacing      time.Duration
}

// meanDelay is the mean of the maximum of one jitter draw for each packet,
// where each earlier packet's draw counts spacing less than the next one's. The
// distribution of the maximum is the product of theirs.
func (b burst) meanDelay() time.Duration {
	const step = 4 // of the table; a finer one changes nothing
	table := b.distribution.Table()
	unit := float64(b.jitter) / shaping.JitterScale
	spacing := float64(b.spacing) / unit
	mean := float64(table[len(table)-1])
	for i := 0; i < len(table)-1; i += step {
		next := min(i+step, len(table)-1)
		below := 1.0 // the share of bursts whose last packet is not later
		for k := range b.packets {
			at := float64(table[(i+next)/2]) + float64(float64(k)*spacing)
			higher, _ := slices.BinarySearchFunc(table, at, func(v int16, x float64) int {
				if float64(v) <= x {
					return -1
				}
				return 1
			})
			if higher == len(table) {
				break
			}
			if below *= float64(higher) / float64(len(table)); below < 1e-6 {
				break
			}
		}
		mean -= float64(below * float64(int(table[next])-int(table[i])))
	}
	return time.Duration(mean * unit)
}
