package lighthouse

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"testbed/policy"
	"testbed/torchft"

	"testbed/torchft/manager"
)

// view is the present content of the dashboard.
func (s *Server) view() View {
	s.mu.Lock()
	now := s.clock()
	why, replicas := s.core.Look(now)
	q, issued := s.core.Last()
	at, changes := s.issued, slices.Clone(s.history)
	s.mu.Unlock()

	v := View{Next: why.String(), Known: len(replicas), History: changes}
	slices.Reverse(v.History)
	beats := map[string]Heartbeat{}
	for _, r := range replicas {
		b := Heartbeat{ReplicaID: r.ReplicaID, Age: duration(now - r.Heartbeat), Old: !r.Healthy, Asking: r.Asking}
		beats[r.ReplicaID] = b
		v.Heartbeats = append(v.Heartbeats, b)
	}
	// If not all are shown, replicas with something to report come first.
	if len(v.Heartbeats) > MaxShown {
		slices.SortStableFunc(v.Heartbeats, func(a, b Heartbeat) int { return int(b.Age - a.Age) })
		v.Heartbeats = v.Heartbeats[:MaxShown]
	}
	if issued {
		v.QuorumID, v.Age, v.Participants = q.ID, time.Since(at), len(q.Participants)
		v.Members, v.MaxStep = members(&q, beats)
	}
	return v
}

func duration(t policy.Time) time.Duration { return time.Duration(t) * time.Microsecond }

// members returns the participants of a quorum, and their greatest step.
func members(q *torchft.Quorum, beats map[string]Heartbeat) (all []Member, maxStep int64) {
	for _, p := range q.Participants {
		maxStep = max(maxStep, p.Step)
	}
	for i, p := range q.Participants {
		b, known := beats[p.ReplicaID]
		b.Old = b.Old || !known
		all = append(all, Member{
			Rank: i, ReplicaID: p.ReplicaID, Address: p.Address, StoreAddress: p.StoreAddress,
			Step: p.Step, WorldSize: p.WorldSize, Healing: p.Step != maxStep, Heartbeat: b,
		})
	}
	if len(all) > MaxShown {
		slices.SortStableFunc(all, func(a, b Member) int { return boolInt(b.Healing) - boolInt(a.Healing) })
		all = all[:MaxShown]
	}
	for i := range all {
		m := &all[i]
		if !m.Healing {
			continue
		}
		if r, err := q.Results(m.ReplicaID, 0, false); err == nil && r.RecoverSrcReplicaRank != nil {
			m.HealsFromRank = *r.RecoverSrcReplicaRank
			m.HealsFrom = q.Participants[m.HealsFromRank].ReplicaID
		}
	}
	return all, maxStep
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// kill ends the manager of a participant of the last quorum.
func (s *Server) kill(ctx context.Context, id string) error {
	s.mu.Lock()
	q, _ := s.core.Last()
	s.mu.Unlock()
	i, found := slices.BinarySearchFunc(q.Participants, id, func(m torchft.Member, id string) int { return strings.Compare(m.ReplicaID, id) })
	if !found {
		return fmt.Errorf("replica %.100q is not in the last quorum", id)
	}
	if err := manager.Kill(ctx, q.Participants[i].Address, "killed from dashboard", s.cfg.KillToken); err != nil {
		return fmt.Errorf("killing replica %q: %w", id, err)
	}
	return nil
}
