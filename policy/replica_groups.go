package policy

import (
	"fmt"
	"slices"
	"strings"
)

// NewReplicaGroups returns the rule of replica groups of so many ranks each, 2 or more: the first workers
// are the ranks of the first group, by their ids, and so on. Each rank has a part of
// the outer state, and reduces it with those of its number in the other groups,
// in every round.
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

// RingKind says what a ring that is not of all workers is called: by a region's name, or
// a rank's.
func RingKind(name string) string {
	if strings.HasPrefix(name, rankName) {
		return "rank"
	}
	return "region"
}

// Group returns the replica group of a worker, in the order of its ranks; nil: it
// is one by itself.
func (r *Grouping) Group(id ID) []ID {
	if r == nil || r.GroupSize == 0 {
		return nil
	}
	k, _ := slices.BinarySearch(r.Members, id)
	k -= k % r.GroupSize
	return r.Members[k : k+r.GroupSize]
}

// Regional reports whether workers are grouped by region, each with an outer state of
// its own between two rounds of all.
func (r *Grouping) Regional() bool { return r != nil && r.GroupSize == 0 }

// Together reports whether there is one ring of all in a round.
func (r *Grouping) Together(round int) bool { return r.Global(round) && (r == nil || r.GroupSize == 0) }
