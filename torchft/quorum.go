// Package torchft makes the decisions of torchft's lighthouse and managers:
// which groups take part in a step, which heal from which, and whether a
// replica group commits.
//
// A replica group is a data-parallel copy of the model on one or more ranks. It
// has a manager, which speaks for its ranks: before every step, or outer step,
// the manager asks the job's one lighthouse for a quorum.
//
//	ranks ──RankRequest──► Manager ──Ask──► Lighthouse ◄── other managers
//	      ◄───Answer──────         ◄─Issue─
//
// The package is pure: it reads no clock, does no I/O, starts no goroutine and
// uses no randomness. A server, a simulator and a replay drive the same
// machines.
package torchft

import "fmt"

// Member is a replica group as it describes itself to the lighthouse.
type Member struct {
	ReplicaID      string // of one life of the group: a restarted group has another
	Address        string // of its manager
	StoreAddress   string // rendezvous of its ranks with those of the other groups
	Step           int64  // steps it has committed
	WorldSize      uint64 // ranks in the group
	ShrinkOnly     bool   // no group may join with this quorum
	Data           string // JSON of the user's, passed on
	CommitFailures int64  // failed commits since the last one that succeeded
}

// size returns the bytes of a member's strings.
func (m *Member) size() int {
	return len(m.ReplicaID) + len(m.Address) + len(m.StoreAddress) + len(m.Data)
}

// Quorum is the groups that take part in a step. Its participants are ordered
// by replica id, and the index is the replica rank.
type Quorum struct {
	// ID changes if the participants do, or if one of them failed to commit: then
	// process groups have to be configured again.
	ID           int64
	Participants []Member
}

// Results is the outcome of a quorum for one rank of one of its participants.
type Results struct {
	QuorumID         int64
	ReplicaRank      int // among all participants
	ReplicaWorldSize int
	ReplicaIDs       []string // by replica rank

	// Of the participants at the greatest step.
	MaxStep        int64
	MaxReplicaRank *int // nil: this group is behind
	MaxWorldSize   int
	StoreAddress   string // of the primary, where this group rank's stores meet

	Heal                     bool // fetch the state of MaxStep
	RecoverSrcReplicaRank    *int // donor; nil unless Heal
	RecoverSrcManagerAddress string
	RecoverDstReplicaRanks   []int // groups that fetch it from this group

	CommitFailures int64 // the largest of all participants
}

// Results returns the quorum's outcome for the rank groupRank of the group
// replicaID. The groups that heal are spread over the groups that hold the
// state. The spread differs by group rank, so that no group serves all of them.
// With initSync the groups of a job at step 0 take the primary's state, since
// each has initialised its own.
func (q *Quorum) Results(replicaID string, groupRank int, initSync bool) (*Results, error) {
	if groupRank < 0 {
		return nil, fmt.Errorf("results of quorum %d: group rank %d is negative", q.ID, groupRank)
	}
	me := -1
	r := &Results{QuorumID: q.ID, ReplicaWorldSize: len(q.Participants), ReplicaIDs: make([]string, 0, len(q.Participants))}
	for i := range q.Participants {
		p := &q.Participants[i]
		if p.ReplicaID == replicaID {
			me = i
		}
		if i == 0 || p.Step > r.MaxStep {
			r.MaxStep = p.Step
		}
		r.CommitFailures = max(r.CommitFailures, p.CommitFailures)
		r.ReplicaIDs = append(r.ReplicaIDs, p.ReplicaID)
	}
	if me < 0 {
		return nil, fmt.Errorf("results of quorum %d: replica %q does not take part", q.ID, replicaID)
	}
	r.ReplicaRank = me

	var atMax []int // replica ranks
	for i := range q.Participants {
		if q.Participants[i].Step == r.MaxStep {
			if i == me {
				r.MaxReplicaRank = ref(len(atMax))
			}
			atMax = append(atMax, i)
		}
	}
	r.MaxWorldSize = len(atMax)
	primary := atMax[groupRank%len(atMax)]
	r.StoreAddress = q.Participants[primary].StoreAddress

	sources := atMax
	if initSync && r.MaxStep == 0 {
		sources = []int{primary}
	}
	q.assign(r, sources, groupRank)
	return r, nil
}

// assign gives every participant that needs to heal a source, in turn.
func (q *Quorum) assign(r *Results, sources []int, groupRank int) {
	healing, next := 0, 0 // healing groups so far; the next of the sources in order
	for i := range q.Participants {
		if next < len(sources) && sources[next] == i {
			next++
			continue
		}
		src := sources[(healing+groupRank%len(sources))%len(sources)]
		healing++
		if src == r.ReplicaRank {
			r.RecoverDstReplicaRanks = append(r.RecoverDstReplicaRanks, i)
		}
		if i == r.ReplicaRank {
			r.Heal, r.RecoverSrcReplicaRank = true, ref(src)
			r.RecoverSrcManagerAddress = q.Participants[src].Address
		}
	}
}

func ref(n int) *int { return &n }
