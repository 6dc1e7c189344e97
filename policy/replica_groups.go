package policy

import (
	"fmt"
	"slices"
	"strings"
)

// NewReplicaGroups returns the rule of replica groups of so many ranks each, 2
// or more. The first workers, by their ids, are the ranks of the first group,
// and so on. Each rank holds a part of the outer state. In every round it
// reduces this part with the ranks of the same number in the other groups.
func NewReplicaGroups(workers []ID, ranks int) *Grouping {
	r := &Grouping{Every: 1, Numbers: map[ID]int{}, GroupSize: ranks, Members: slices.Sorted(slices.Values(workers))}
	for k, id := range r.Members {
		r.Numbers[id] = k % ranks
	}
	for k := range ranks {
		r.Names = append(r.Names, fmt.Sprint(rankName, k))
	}
	return r
}

// rankName begins the name of a rank.
const rankName = "rank "

// RingKind returns what a ring that is not of all workers is called: region or
// rank.
func RingKind(name string) string {
	if strings.HasPrefix(name, rankName) {
		return "rank"
	}
	return "region"
}

// Group returns the replica group of a worker, in the order of its ranks, or
// nil if the worker is a group by itself.
func (r *Grouping) Group(id ID) []ID {
	if r == nil || r.GroupSize == 0 {
		return nil
	}
	k, _ := slices.BinarySearch(r.Members, id)
	k -= k % r.GroupSize
	return r.Members[k : k+r.GroupSize]
}

// Regional reports whether workers are grouped by region, each with an outer
// state of its own between two global rounds.
func (r *Grouping) Regional() bool { return r != nil && r.GroupSize == 0 }

// Together reports whether a round has a single ring of all workers.
func (r *Grouping) Together(round int) bool { return r.Global(round) && (r == nil || r.GroupSize == 0) }
