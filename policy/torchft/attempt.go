package torchft

import (
	"slices"

	"testbed/policy"
	"testbed/torchft"
)

// attempt is the outer step of a quorum. It heals the members that are behind
// and reduces. It ends when all participants have voted, or when no other
// participant can succeed any more.
type attempt struct {
	house        *house
	from         state
	lineage      *lineage // that the outer step extends
	participants []*member
	size         int           // including members that are gone by now
	why          policy.Reason // of the close of the round
	issued       policy.Time
	held         policy.Time   // for members that were behind
	epoch        policy.Epoch  // of its reduction, once that has begun
	against      policy.Reason // of the last participant that voted against it
}

// vote is a participant's vote on the running reduction. A group's vote is for
// itself: it takes the outer step, or keeps its state.
type vote int

const (
	pending vote = iota
	inFavour
	against
)

// reason converts the lighthouse's reason to the terms of all policies: all
// live members have asked, the join timeout is over, or enough have asked.
func (h *house) reason(now policy.Time, a *torchft.Issue) policy.Reason {
	why := policy.Reason{Rule: policy.RuleQuorum, Members: a.Healthy, Arrived: a.Ready, Needed: max(a.MinReplicas, a.Healthy/2+1), QuorumID: a.Quorum.ID, Deadline: h.deadline}
	switch {
	case a.Ready == a.Healthy:
		why.Rule = policy.RuleAllArrived
	case a.Reason.Rule == torchft.RuleFastQuorum:
		why.Needed, why.Deadline = len(a.Quorum.Participants), nil
	case h.deadline != nil && now >= h.deadline.At:
		why.Rule = policy.RuleDeadline
	}
	return why
}

// issued begins the outer step of a quorum.
func (m *Machine) issued(now policy.Time, h *house, a *torchft.Issue) {
	var in []*member
	for _, p := range a.Quorum.Participants {
		if w := m.replica(p.ReplicaID); w != nil {
			in = append(in, w)
		}
	}
	from, rule := m.startsFrom(now, in)
	if rule != "" {
		m.finish(false, policy.Reason{Rule: rule, Members: a.Healthy, Arrived: len(in), Needed: a.MinReplicas, QuorumID: a.Quorum.ID})
		return
	}
	r := &attempt{house: h, from: from, participants: in, size: len(in), why: h.reason(now, a), issued: now}
	h.deadline, h.hasFirst = nil, false
	for _, w := range in {
		for _, k := range w.ranks {
			k.work, k.vote = ready, pending
		}
		if w.sidelined {
			for _, k := range w.ranks {
				m.emit(&policy.Rejoin{ID: k.id, Round: from.steps + 1, Reason: policy.Reason{Rule: policy.RuleOnTime, Misses: w.misses, QuorumID: r.why.QuorumID}})
			}
			w.sidelined, w.misses = false, 0
		}
	}
	m.heal(r, a)
	if !r.contributions() {
		m.beginAnew(in)
		return
	}
	r.lineage = m.extends(from)
	m.attempts = append(m.attempts, r)
	for _, w := range in {
		w.in = r
	}
	m.reduce(now, r)
}

// startsFrom returns the newest state in a quorum, or the rule by which the run
// ends. The run ends if the quorum would go back behind a newer state that no
// live worker holds. It also ends if the quorum has two states of the same
// outer steps, which torchft takes for one.
func (m *Machine) startsFrom(now policy.Time, in []*member) (from state, end policy.Rule) {
	from.steps = -1
	for _, w := range in {
		if w.step > from.steps {
			from = state{w.lineage, w.step}.plain()
		}
	}
	for _, w := range in {
		if w.step == from.steps && w.step >= 0 && (state{w.lineage, w.step}).plain() != from {
			return from, policy.RuleSplitBrain
		}
	}
	if from.of != nil && from.steps == from.of.steps {
		return from, ""
	}
	lives := slices.ContainsFunc(m.members, func(w *member) bool {
		newer := state{w.lineage, w.step}
		return w.lineage != nil && w.step > from.steps && m.alive(now, w) && (from.of == nil || from.leadsTo(newer))
	})
	switch {
	case !lives && len(m.houses) == 1: // another lighthouse does not know the newer state
		return from, policy.RuleStateLost
	case from.of != nil:
		return from, ""
	}
	// No worker here holds a state. They begin with the initial state, held by a
	// process that has not held another.
	first := slices.IndexFunc(in, func(w *member) bool { return w.initial })
	if first < 0 {
		return from, policy.RuleSplitBrain
	}
	from = state{m.root(0), 0}
	m.moves(in[first], from)
	return from, ""
}

// heal makes members that are behind fetch the state, each rank from the rank
// with the same number in the group that the quorum assigns. With InitSync, at
// step 0, those that are not behind do so too, but for the first of them.
func (m *Machine) heal(r *attempt, a *torchft.Issue) {
	primary := slices.IndexFunc(r.participants, func(w *member) bool { return w.step == r.from.steps })
	for _, w := range r.participants {
		behind := w.step != r.from.steps
		if !behind && !(m.policy.InitSync && r.from.steps == 0) {
			continue
		}
		for number, k := range w.ranks {
			results, err := a.Quorum.Results(w.replica, number, m.policy.InitSync)
			if err != nil || !behind && !results.Heal {
				continue
			}
			why := policy.Reason{Rule: policy.RuleResync, Misses: w.misses, QuorumID: results.QuorumID}
			switch {
			case w.step < 0:
				why.Rule = policy.RuleJoin
			case !behind:
				why.Rule = policy.RuleInitSync
			}
			from := r.participants[primary]
			if results.Heal { // otherwise all are at the beginning
				from = m.replica(results.ReplicaIDs[*results.RecoverSrcReplicaRank])
			}
			k.work, k.donor, k.fetches, k.contributes = fetching, from.ranks[number], r.from, false
			if k.repeats = k.donor; !k.donor.contributes {
				k.repeats = k.donor.repeats
			}
			whole := !behind || (k.holds.of != nil || k.foreign || len(m.lineages) > 1) && !k.holds.leadsTo(r.from)
			m.emit(&policy.Fetch{ID: k.id, From: k.donor.id, Round: r.from.steps + 1, OuterSteps: r.from.steps, Whole: whole, Reason: why})
		}
	}
}

// contributions reports whether anybody contributes. A ring of one rank of all
// groups may be without contributions: with InitSync the group whose values all
// have differs by rank, and may be gone.
func (r *attempt) contributions() bool {
	return slices.ContainsFunc(r.participants, (*member).contributes)
}

// beginAnew makes the members of a quorum that has nothing to reduce do the
// inner steps of its round. Members that are behind fetch the state first.
func (m *Machine) beginAnew(in []*member) {
	for _, w := range in {
		if w.begins = w.anyIs(fetching); !w.begins {
			m.begin([]*member{w}, policy.RuleState)
		}
	}
}

// reduce begins the reduction once all participants hold the state. The mean of those
// that have kept a process group counts the others as zeros: a manager divides by the
// participants of the quorum.
func (m *Machine) reduce(now policy.Time, r *attempt) {
	if slices.ContainsFunc(r.participants, func(w *member) bool { return w.anyIs(fetching) }) {
		return
	}
	r.held = now - r.issued
	m.close(now, r)
	m.epoch++
	r.epoch = m.epoch
	apart, broken := r.configure()
	var zero []policy.ID
	var repeated []policy.Repeat
	for _, w := range r.participants {
		fails := broken == nil && slices.Contains(apart, w)
		for _, k := range w.ranks {
			if k.contributes && !fails {
				continue
			}
			zero = append(zero, k.id)
			if fails {
				k.vote, r.against = against, policy.Reason{Rule: policy.RuleReduceFailed, Lost: &k.id}
			} else if of := k.repeats; m.policy.Sync && of != nil && of.contributes && of.of.in == r {
				repeated = append(repeated, policy.Repeat{ID: k.id, Donor: of.id})
			}
		}
	}
	m.emit(&policy.Reduce{Round: r.from.steps + 1, Epoch: r.epoch, Lineage: r.lineage.number, Participants: ids(r.participants), Zero: zero, Repeated: repeated,
		Reason: policy.Reason{Rule: r.why.Rule, Members: r.why.Members, Arrived: r.why.Arrived, QuorumID: r.why.QuorumID}})
	if broken != nil {
		m.decide(now, r, policy.Reason{Rule: policy.RuleReduceFailed, Lost: &broken.workers[0]})
	}
}

// close records the participants, and the live workers that do not take part.
func (m *Machine) close(now policy.Time, r *attempt) {
	round := r.from.steps + 1
	var late []*member
	for _, w := range m.members {
		if w.begun && m.alive(now, w) && w.in == nil && w.house == r.house && w.lineage == r.lineage {
			late = append(late, w)
		}
	}
	if r.held > 0 && r.why.Rule == policy.RuleDeadline {
		r.why.Rule = policy.RuleQuorum // the deadline came before
	}
	m.emit(&policy.Close{Round: round, Lineage: r.lineage.number, Participants: ids(r.participants), Late: ids(late), Held: r.held, Reason: r.why})
	for _, w := range late {
		if w.missed != round { // a step that is tried again counts once
			w.missed, w.misses = round, w.misses+1
		}
		w.sidelined = true
		why := r.why
		why.Rule, why.Misses = policy.RuleLate, w.misses
		for _, k := range w.ranks {
			m.emit(&policy.Sideline{ID: k.id, Round: round, Reason: why})
		}
	}
}

// reduceFailed takes note that a reduction has failed at a participant. The
// other participants fail too, unless they hold the outcome or need nothing
// more from this one.
func (m *Machine) reduceFailed(now policy.Time, k *rank, e policy.ReduceFailed) {
	why := policy.Reason{Rule: policy.RuleReduceFailed, Lost: &k.id, Peer: e.Peer}
	if k.vote = against; e.Alone {
		m.votes(now, k, against, why)
		return
	}
	m.decide(now, k.of.in, why)
}

// votes counts the vote of a participant. The last one decides.
func (m *Machine) votes(now policy.Time, k *rank, v vote, why policy.Reason) {
	r := k.of.in
	if k.vote = v; v == against {
		r.against = why
	}
	if !slices.ContainsFunc(r.participants, func(w *member) bool { return w.voted() == pending }) {
		m.decide(now, r, r.against)
	}
}

// decide ends an outer step. The participants that voted for it have taken it,
// unless they are too few by the lighthouse's rule. why is the reason why no
// other participant can take it. The others keep their state and their
// contributions, and ask again. Their failure to commit gives the next quorum
// another id.
func (m *Machine) decide(now policy.Time, r *attempt, why policy.Reason) {
	m.attempts = slices.DeleteFunc(m.attempts, func(other *attempt) bool { return other == r })
	var took, failed []*member
	for _, w := range r.participants {
		if w.in = nil; w.voted() == inFavour && r.size >= m.policy.MinReplicas {
			took = append(took, w)
		} else {
			failed = append(failed, w)
		}
	}
	if r.size < m.policy.MinReplicas && why.Rule == "" {
		why = policy.Reason{Rule: policy.RuleReduceFailed, Arrived: r.size, Needed: m.policy.MinReplicas}
	}
	if len(took) > 0 {
		m.commit(r, took)
	} else {
		m.abandon(r.lineage)
	}
	why.QuorumID = r.why.QuorumID
	for _, w := range failed {
		w.failures++
		why.Misses = max(why.Misses, int(w.failures))
	}
	// A member that let the time-out pass may hang, and not ask again.
	confirm := r.epoch > 0 && why.Rule == policy.RuleTimeout
	if r.epoch > 0 && len(took) < max(1, len(r.participants)) {
		m.emit(&policy.Abort{Round: r.from.steps + 1, Epoch: r.epoch, Lineage: r.lineage.number, Confirm: confirm, Participants: ids(failed), Reason: why})
	}
	if len(took) > 0 && m.outerSteps == m.cfg.TargetOuterSteps {
		m.finish(true, policy.Reason{Rule: policy.RuleTarget})
		return
	}
	if len(took) > 0 {
		m.begin(took, policy.RuleNextRound)
	}
	for _, w := range failed {
		if most := m.policy.MaxRetries; most > 0 && w.failures > int64(most) && !m.finished {
			m.dies(now, w.ranks[0], policy.Reason{Rule: policy.RuleReduceFailed, Misses: int(w.failures), Limit: most})
			continue
		}
		for _, k := range w.ranks {
			switch {
			case k.work != ready: // its fetch goes on
			case confirm:
				k.work, k.confirms = unsaid, r.epoch
			case now-k.lastHeartbeat >= 2*m.cfg.HeartbeatPeriod:
				k.work = unheard
			}
		}
		m.ask(now, w, ready)
	}
}

// commit makes the participants that voted for it take an outer step.
func (m *Machine) commit(r *attempt, by []*member) {
	r.lineage.steps, m.taken = r.from.steps+1, true
	m.outerSteps = max(m.outerSteps, r.lineage.steps)
	for _, w := range by {
		w.hold(state{r.lineage, r.lineage.steps})
		w.failures = 0
	}
	m.emit(&policy.OuterStep{Round: r.lineage.steps, Epoch: r.epoch, Lineage: r.lineage.number, Participants: ids(by),
		Reason: policy.Reason{Rule: policy.RuleReduced, Members: len(m.members), Arrived: len(by), QuorumID: r.why.QuorumID}})
	m.took(r, by)
}

// begin makes members that hold the same state do the inner steps of the next
// round.
func (m *Machine) begin(in []*member, rule policy.Rule) {
	for _, w := range in {
		w.turn(training)
		w.begun = true
		for _, k := range w.ranks {
			k.contributes, k.repeats = false, nil
		}
	}
	m.emit(&policy.StartRound{Round: in[0].step + 1, IDs: ids(in), Reason: policy.Reason{Rule: rule}})
}
