package kernel

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"time"

	"testbed/shaping"
)

// netem is a path in the units of the kernel's netem queue.
type netem struct {
	oneWayDelay, jitter time.Duration
	// Probabilities in netem's unit: 2³²−1 is certain.
	loss, duplicate, reorder, corrupt uint32
	burst                             burst  // the zero value: loss counts
	rate                              uint64 // bytes per second: the path's, or keepOrderRate
	seed                              uint64 // read back since Linux 6.7
	// distribution cannot be read back at all.
	distribution shaping.JitterDistribution
	cut          bool // the loss is a cut
}

// burst has the parameters of netem's gemodel in the kernel's units.
type burst struct{ enter, leave, deliveredInside, lossOutside uint32 }

// keepOrderRate is a rate so high that it delays nothing. With any rate
// netem sends in the order of arrival; without one, jitter reorders packets,
// and so does a change to a shorter delay.
const keepOrderRate = 125e9 // bytes per second

// netemOf converts the path from node i to node j to the kernel's units.
func netemOf(plan *shaping.Plan, i, j int) *netem {
	p := plan.Paths[i][j]
	n := &netem{
		oneWayDelay: time.Duration(p.OneWayDelay), jitter: time.Duration(p.Jitter),
		loss: chance(p.Loss), duplicate: chance(p.Duplicate), reorder: chance(p.Reorder), corrupt: chance(p.Corrupt),
		rate: cmp.Or(uint64(p.Rate/8), keepOrderRate), seed: pathSeed(plan, i, j), distribution: p.JitterDistribution,
	}
	if b := p.LossBurst; b != (shaping.LossBurst{}) {
		n.burst = burst{chance(b.Enter), chance(b.Leave), ^chance(b.LossInside), chance(b.LossOutside)}
	}
	if p.Cut {
		// netem would let a duplicate make up for a loss. On a cut path it must not.
		n.loss, n.burst, n.duplicate, n.cut = chance(1), burst{}, 0, true
	}
	return n
}

// pathSeed depends on names and not on positions, so that a pair keeps its
// pattern when other nodes join the scenario.
func pathSeed(plan *shaping.Plan, i, j int) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s %s", plan.Seed, plan.Nodes[i].Name, plan.Nodes[j].Name)
	return h.Sum64()
}

func chance(p shaping.Probability) uint32 { return uint32(float64(p) * (1<<32 - 1)) }

// text describes the queue, with its seed if the kernel reports it.
func (n *netem) text(limit uint32, withSeed bool) string {
	line := fmt.Sprintf("netem limit %d packets one_way_delay %v jitter %v loss %08x", limit, n.oneWayDelay, n.jitter, n.loss)
	if b := n.burst; b != (burst{}) {
		line += fmt.Sprintf(" bursts %08x %08x %08x %08x", b.enter, b.leave, b.deliveredInside, b.lossOutside)
	}
	for _, f := range []struct {
		name  string
		value uint32
	}{{"duplicate", n.duplicate}, {"reorder", n.reorder}, {"corrupt", n.corrupt}} {
		if f.value != 0 {
			line += fmt.Sprintf(" %s %08x", f.name, f.value)
		}
	}
	if n.rate != keepOrderRate {
		line += fmt.Sprintf(" rate %d B/s", n.rate)
	}
	if withSeed {
		line += fmt.Sprintf(" seed %016x", n.seed)
	}
	return line
}
