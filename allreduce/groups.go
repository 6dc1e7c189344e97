package allreduce

import "slices"

// Steps of the phases of the direct and the hierarchical algorithm, which pass
// everything on at once. Their values are the ones on the wire.
const (
	// Inside is between ranks of one group.
	Inside = 0
	// Between is between the leaders of two groups.
	Between = 1
)

// Groups are the ranks that are connected well to each other, and the roles of
// ranks, in the hierarchical algorithm. In every group each chunk has a leader.
// In the group of rank c, the owner of chunk c, the leader is rank c itself. In
// the other groups the members take turns, so that all ranks' connections to
// other groups are used alike. The values of a chunk go to the leader inside
// the group, the leaders' sums go to the owner, and the mean returns along the
// same paths. With a single group, and with groups of one, this is the direct
// algorithm.
type Groups struct {
	of      []int   // by rank, counted in the order in which they appear
	members [][]int // by group, ascending
	leader  [][]int // by group and chunk
}

// NewGroups makes groups of the ranks with equal numbers, at least one.
func NewGroups(numbers []int) Groups {
	g := Groups{of: make([]int, len(numbers))}
	seen := make(map[int]int)
	for rank, number := range numbers {
		group, ok := seen[number]
		if !ok {
			group = len(seen)
			seen[number] = group
			g.members = append(g.members, nil)
		}
		g.of[rank] = group
		g.members[group] = append(g.members[group], rank)
	}
	g.leader = make([][]int, len(g.members))
	for group, members := range g.members {
		g.leader[group] = make([]int, len(numbers))
		foreign := 0
		for chunk := range numbers {
			if g.of[chunk] == group {
				g.leader[group][chunk] = chunk
				continue
			}
			g.leader[group][chunk] = members[foreign%len(members)]
			foreign++
		}
	}
	return g
}

// Len is the number of groups.
func (g Groups) Len() int { return len(g.members) }

// Of is the group of a rank.
func (g Groups) Of(rank int) int { return g.of[rank] }

// Members are the ranks of a group in ascending order. Their values are added
// in this order.
func (g Groups) Members(group int) []int { return g.members[group] }

// Leader is the rank that sums a chunk in a group.
func (g Groups) Leader(group, chunk int) int { return g.leader[group][chunk] }

// Sends reports whether a rank sends its frames of a chunk to another in the
// given step of a phase, Inside or Between.
func (g Groups) Sends(p Phase, step, from, to, chunk int) bool {
	inside := g.of[from] == g.of[to]
	if from == to || inside != (step == Inside) {
		return false
	}
	leads := func(rank int) bool { return g.leader[g.of[rank]][chunk] == rank }
	switch {
	case p == ReduceScatter && inside:
		return leads(to)
	case p == ReduceScatter:
		return leads(from) && to == chunk
	case inside:
		return leads(from)
	default:
		return from == chunk && leads(to)
	}
}

// Peers are the ranks that a rank sends to, in ascending order. It receives
// from the same ranks.
func (g Groups) Peers(rank int) []int {
	group := g.of[rank]
	peers := slices.Clone(g.members[group])
	for other := range g.members {
		peers = append(peers, g.leader[other][rank])
	}
	for chunk, leader := range g.leader[group] {
		if leader == rank {
			peers = append(peers, chunk)
		}
	}
	slices.Sort(peers)
	return slices.DeleteFunc(slices.Compact(peers), func(r int) bool { return r == rank })
}
