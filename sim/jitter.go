package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"testbed/shaping"
)

// Packets of a path do not overtake each other, so that what comes behind a slow
// one waits for it: on the average nothing happens to a message of one packet,
// and a burst takes about as long as its slowest packet.

// swelling is what the delay of a burst depends on.
type swelling struct {
	jitter       shaping.Duration
	distribution shaping.JitterDistribution
	packets      int
	spacing      time.Duration
}

// swell is by how much jitter puts off, on the average, the last packet of so
// many bytes that are sent at the rate of the access links.
func (n *network) swell(from, to int, bytes int64) time.Duration {
	p := n.plan.Paths[from][to]
	if p.Jitter == 0 {
		return 0
	}
	s := swelling{p.Jitter, p.JitterDistribution, int((bytes + quicData - 1) / quicData), on(quicData, n.access(from, to))}
	known, ok := n.swells[s]
	if !ok {
		known = s.mean()
		n.swells[s] = known
	}
	return known
}

// mean is the mean of the largest of packets draws, of which each earlier one
// counts spacing less than the next: that of a variable whose distribution is
// the product of theirs.
func (s swelling) mean() time.Duration {
	const step = 4 // of the table; finer ones change nothing
	table := s.distribution.Table()
	unit := float64(s.jitter) / shaping.JitterScale
	spacing := float64(s.spacing) / unit
	mean := float64(table[len(table)-1])
	for i := 0; i < len(table)-1; i += step {
		next := min(i+step, len(table)-1)
		below := 1.0 // the share of bursts whose last packet is not later
		for k := range s.packets {
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

// jitterWindow is about what a connection has in flight on a path whose jitter
// has ended its slow start.
const jitterWindow = 2 * firstWindow

// firstChoice is how many connections the ring chooses where one is stuck. Only
// where that helps much it goes on.
const firstChoice = 4

// stalls is how long so many bytes wait for windows that jitter keeps small.
// That the ring has to find out how many connections it needs, where that is its
// own choice (0), takes no time here.
func (n *network) stalls(from, to int, bytes, rate int64, connections int) time.Duration {
	if connections == 0 {
		connections = firstChoice
	}
	window := jitterWindow * int64(connections)
	if bytes <= window || !n.sways(from, to) {
		return 0
	}
	return time.Duration((bytes-1)/window) * max(0, n.rtt(from, to)-on(window, rate))
}

// sways says whether jitter looks like a queue to a sender that starts: quic-go
// ends its slow start when round trips are an eighth longer than the shortest,
// but not for less than 4 ms, and for 16 ms anyway (HyStart).
func (n *network) sways(from, to int) bool {
	there, back := n.plan.Paths[from][to], n.plan.Paths[to][from]
	if there.Jitter == 0 && back.Jitter == 0 {
		return false
	}
	shortest := time.Duration(there.Fastest() + back.Fastest())
	return n.rtt(from, to)-shortest > min(max(shortest/8, 4*time.Millisecond), 16*time.Millisecond)
}

// sway draws the jitter of a single packet.
func (n *network) sway(from, to int, rng *rand.Rand) time.Duration {
	p := n.plan.Paths[from][to]
	if p.Jitter == 0 {
		return 0
	}
	table := p.JitterDistribution.Table()
	return time.Duration(int64(p.Jitter) * int64(table[rng.IntN(len(table))]) / shaping.JitterScale)
}
