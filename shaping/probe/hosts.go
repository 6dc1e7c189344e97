package probe

import "time"

// Seen is one prober's observations of a step.
type Seen struct {
	Pairs []Saw // by place; of pairs to its nodes, and RTTs of pairs from them
	// Wall is its wall clock, which it uses for stamps, less its steady clock,
	// which the hosts of a network compare.
	Wall time.Duration
	// Stepped is the amount by which the wall clock was set meanwhile.
	Stepped time.Duration
}

// Clock returns the offset of one host's steady clock from another's, and the
// bound of its error.
type Clock func(host, other int) (offset, bound time.Duration)

// Merge combines the observations of pairs by the probers of all hosts. of is
// the host of a node.
func Merge(pairs []Pair, seen []Seen, of func(node int) int, clock Clock) []Saw {
	all := make([]Saw, len(pairs))
	for k, p := range pairs {
		from, to := of(p.From), of(p.To)
		all[k] = seen[to].Pairs[k]
		if from == to {
			continue
		}
		all[k].RTTs = seen[from].Pairs[k].RTTs
		offset, bound := clock(to, from)
		ahead := offset + seen[to].Wall - seen[from].Wall
		for i := range all[k].Delays {
			all[k].Delays[i] -= ahead
		}
		all[k].Clock = bound
	}
	return all
}
