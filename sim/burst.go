package sim

// Packets of a path do not overtake each other, so that what comes behind a slow
// one waits for it: on the average nothing happens to a message of one packet,
// and a burst takes about as long as its slowest packet.

import (
	"slices"
	"time"

	"testbed/shaping"
)

// Burst is packets that are sent one after the other on a path with jitter.
type Burst struct {
	Jitter       shaping.Duration
	Distribution shaping.JitterDistribution
	Packets      int
	Spacing      time.Duration
}

// MeanDelay is the mean of the largest of as many draws of the jitter as the
// burst has packets, of which each earlier one counts spacing less than the
// next: that of a variable whose distribution is the product of theirs.
func (b Burst) MeanDelay() time.Duration {
	const step = 4 // of the table; finer ones change nothing
	table := b.Distribution.Table()
	unit := float64(b.Jitter) / shaping.JitterScale
	spacing := float64(b.Spacing) / unit
	mean := float64(table[len(table)-1])
	for i := 0; i < len(table)-1; i += step {
		next := min(i+step, len(table)-1)
		below := 1.0 // the share of bursts whose last packet is not later
		for k := range b.Packets {
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
