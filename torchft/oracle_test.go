package torchft_test

import (
	"maps"
	"slices"

	"testbed/policy"
	"testbed/torchft"
)

// oracle is a second lighthouse: slow, obvious, and written from a description
// of torchft's, clause by clause.
type oracle struct {
	cfg          torchft.Config
	heartbeats   map[string]policy.Time
	participants map[string]participant
	calls        map[string][]torchft.Member // that wait, with what they asked
	prev         *torchft.Quorum
}

type participant struct {
	joined policy.Time
	member torchft.Member
}

func newOracle(cfg torchft.Config) *oracle {
	return &oracle{cfg: cfg, heartbeats: map[string]policy.Time{}, participants: map[string]participant{}, calls: map[string][]torchft.Member{}}
}

// verdict is what the oracle says of one look: a quorum, or the rule against.
type verdict struct {
	quorum *torchft.Quorum
	why    torchft.Reason
}

// step returns nil where the lighthouse does not look.
func (o *oracle) step(now policy.Time, e torchft.Event) *verdict {
	switch e := e.(type) {
	case torchft.Heartbeat:
		o.heartbeats[e.ReplicaID] = now
	case torchft.Request:
		id := e.Member.ReplicaID
		o.heartbeats[id] = now
		o.participants[id] = participant{now, e.Member}
		o.calls[id] = append(o.calls[id], e.Member)
		return o.tick(now)
	case torchft.Cancel:
		if n := len(o.calls[e.ReplicaID]); n > 1 {
			o.calls[e.ReplicaID] = o.calls[e.ReplicaID][1:]
		} else if n == 1 || !o.cfg.Compat {
			delete(o.calls, e.ReplicaID)
			if !o.cfg.Compat {
				delete(o.participants, e.ReplicaID)
			}
		}
	case torchft.Tick:
		return o.tick(now)
	}
	return nil
}

func (o *oracle) tick(now policy.Time) *verdict {
	candidates, why := o.decide(now)
	if candidates == nil {
		return &verdict{why: why}
	}
	next := &torchft.Quorum{ID: 1, Participants: candidates}
	if o.prev != nil {
		next.ID = o.prev.ID
		switch {
		case !slices.Equal(namesOf(o.prev.Participants), namesOf(candidates)):
			next.ID++
		case slices.ContainsFunc(candidates, func(m torchft.Member) bool { return m.CommitFailures > 0 }):
			next.ID++
		}
	}
	o.prev = next
	o.participants = map[string]participant{}
	for id, calls := range o.calls {
		if slices.Contains(namesOf(candidates), id) {
			delete(o.calls, id)
			continue
		}
		for _, m := range calls { // each asks again, the last of them last
			o.participants[id] = participant{now, m}
		}
	}
	return &verdict{next, why}
}

// decide returns nil and the rule against, or the members of a quorum, which
// only torchft leaves empty.
func (o *oracle) decide(now policy.Time) ([]torchft.Member, torchft.Reason) {
	healthy := map[string]bool{}
	for id, at := range o.heartbeats {
		if now-at < o.cfg.HeartbeatTimeout {
			healthy[id] = true
		}
	}
	ready := map[string]participant{}
	for id, p := range o.participants {
		if healthy[id] {
			ready[id] = p
		}
	}
	why := torchft.Reason{Healthy: len(healthy), Asking: len(o.participants), Ready: len(ready), MinReplicas: o.cfg.MinReplicas}
	for _, p := range ready {
		if p.member.ShrinkOnly {
			why.ShrinkOnly = true
		}
	}
	candidates := []torchft.Member{}
	for _, id := range slices.Sorted(maps.Keys(ready)) {
		if why.ShrinkOnly && o.prev != nil && !slices.Contains(namesOf(o.prev.Participants), id) {
			continue
		}
		candidates = append(candidates, ready[id].member)
	}
	accept := func(rule torchft.Rule) ([]torchft.Member, torchft.Reason) {
		why.Rule = rule
		if len(candidates) == 0 && !o.cfg.Compat {
			why.Rule = torchft.RuleEmptyQuorum
			return nil, why
		}
		return candidates, why
	}

	if o.prev != nil {
		fast := true
		for _, id := range namesOf(o.prev.Participants) {
			if _, ok := ready[id]; !ok {
				fast = false
			}
		}
		if fast {
			return accept(torchft.RuleFastQuorum)
		}
	}
	if len(ready) < o.cfg.MinReplicas {
		why.Rule = torchft.RuleMinReplicas
		return nil, why
	}
	if 2*len(ready) <= len(healthy) {
		why.Rule = torchft.RuleMajority
		return nil, why
	}
	if len(ready) != len(healthy) {
		var joined []policy.Time
		for _, p := range ready {
			joined = append(joined, p.joined)
		}
		if slices.Min(joined)+o.cfg.JoinTimeout > now {
			why.Rule, why.Until = torchft.RuleJoinTimeout, slices.Min(joined)+o.cfg.JoinTimeout
			return nil, why
		}
	}
	return accept(torchft.RuleValidQuorum)
}

func namesOf(members []torchft.Member) (names []string) {
	for _, m := range members {
		names = append(names, m.ReplicaID)
	}
	return names
}

// oracleResults is Quorum.Results again, with a set for each word of it.
func oracleResults(q torchft.Quorum, replicaID string, groupRank int, initSync bool) *torchft.Results {
	names := namesOf(q.Participants)
	me := slices.Index(names, replicaID)
	if me < 0 {
		return nil
	}
	maxStep, failures := q.Participants[0].Step, int64(0)
	for _, p := range q.Participants {
		maxStep, failures = max(maxStep, p.Step), max(failures, p.CommitFailures)
	}
	var atMax []int
	for i, p := range q.Participants {
		if p.Step == maxStep {
			atMax = append(atMax, i)
		}
	}
	primary := atMax[groupRank%len(atMax)]
	r := &torchft.Results{
		QuorumID: q.ID, ReplicaRank: me, ReplicaWorldSize: len(names), ReplicaIDs: names,
		MaxStep: maxStep, MaxWorldSize: len(atMax), StoreAddress: q.Participants[primary].StoreAddress, CommitFailures: failures,
	}
	if i := slices.Index(atMax, me); i >= 0 {
		r.MaxReplicaRank = &i
	}
	force := initSync && maxStep == 0
	var recovering, upToDate []int
	for i, p := range q.Participants {
		if p.Step != maxStep || force && i != primary {
			recovering = append(recovering, i)
		} else {
			upToDate = append(upToDate, i)
		}
	}
	for k, i := range recovering {
		source := upToDate[(k+groupRank)%len(upToDate)]
		if source == me {
			r.RecoverDstReplicaRanks = append(r.RecoverDstReplicaRanks, i)
		}
		if i == me {
			r.Heal, r.RecoverSrcReplicaRank, r.RecoverSrcManagerAddress = true, &source, q.Participants[source].Address
		}
	}
	return r
}
