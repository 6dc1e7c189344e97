package lighthouse

import (
	"slices"
	"strings"
	"time"

	"testbed/torchft"
)

// maxHistory is the number of quorum changes that the dashboard shows.
const maxHistory = 100

// history is the latest quorum ids with their changes, the oldest first.
type history []Change

// add notes a quorum. A quorum with the last id only raises its count.
func (h *history) add(at time.Time, i *torchft.Issue, before torchft.Quorum) {
	if n := len(*h); n > 0 && (*h)[n-1].QuorumID == i.Quorum.ID {
		last := &(*h)[n-1]
		last.Quorums++
		last.Last = at
		return
	}
	c := Change{QuorumID: i.Quorum.ID, First: at, Last: at, Quorums: 1, Participants: len(i.Quorum.Participants), Why: string(i.Rule)}
	if i.MinReplicas > 0 { // otherwise it is from the journal
		c.Why = i.Reason.String()
	}
	missing(&c.Came, i.Quorum.Participants, before.Participants)
	missing(&c.Gone, before.Participants, i.Quorum.Participants)
	for _, m := range i.Quorum.Participants {
		if m.CommitFailures > 0 {
			note(&c.Failed, m.ReplicaID)
		}
	}
	*h = append(*h, c)
	if len(*h) > maxHistory {
		*h = slices.Delete(*h, 0, len(*h)-maxHistory)
	}
}

// missing notes the members that are not among the others. Both lists are
// ordered by id.
func missing(n *Names, members, others []torchft.Member) {
	for _, m := range members {
		_, found := slices.BinarySearchFunc(others, m.ReplicaID, func(o torchft.Member, id string) int { return strings.Compare(o.ReplicaID, id) })
		if !found {
			note(n, m.ReplicaID)
		}
	}
}

// note keeps the first names, and only the beginning of long ones: so a history
// is small, whatever replicas call themselves.
func note(n *Names, id string) {
	const names, bytes = 20, 100
	if len(n.First) == names {
		n.More++
		return
	}
	n.First = append(n.First, strings.ToValidUTF8(strings.Clone(id[:min(len(id), bytes)]), ""))
}
