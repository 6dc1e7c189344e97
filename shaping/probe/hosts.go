package probe

import "time"

// Seen is what one prober saw of a step.
type Seen struct {
	Pairs []Saw // by place; of pairs to its nodes, and RTTs of pairs from them
	// Wall is its wall clock, by which it stamps, less its steady one, which the
	// hosts of a network compare.
	Wall time.Duration
	// Stepped is by how much the wall clock was set meanwhile.
	Stepped time.Duration
}

// Clock says by how much the steady clock of one host is ahead of another's, and how
// wrong that may be.
type Clock func(host, other int) (offset, bound time.Duration)

// Merge puts together what the probers of all hosts saw of pairs. of is the host of a
// node.
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
