package torchft

import (
	"cmp"
	"fmt"
	"slices"

	"testbed/policy"
	"testbed/torchft"
)

// work is a member's current activity.
type work int

const (
	training work = iota // the inner steps of the round after its step
	waiting              // for a quorum
	fetching             // the state
	ready                // in the running quorum, with the state
	unheard              // has seen a step fail, and asks when its next heartbeat arrives
	unsaid               // is to drop a reduction that took too long, and asks when it confirms
)

// member is a life of a replica group: a replica. It begins when all its ranks
// have joined, and ends when the first of them ends.
type member struct {
	workers []policy.ID // of all its ranks
	ranks   []*rank     // that have joined, in that order
	replica string      // its id
	house   *house      // lighthouse that it asks
	gone    bool
	begun   bool // it has begun a round

	lineage  *lineage    // of the state that it holds, or nil
	step     int         // outer steps in it, or -1
	initial  bool        // its processes have not held another state than the initial one
	failures int64       // outer steps in a row that it failed to commit
	in       *attempt    // that is under way, or nil
	begins   bool        // the round, once it has fetched the state
	again    policy.Time // when it repeats a request that was lost, or 0
	group    group       // its configured process group
	beat     policy.Time // its last sign of life for the lighthouse

	sidelined bool
	misses    int // consecutive rounds that went on without it
	missed    int // the last of them
}

// rank is a worker in the life of its group.
type rank struct {
	id    policy.ID
	of    *member
	asks  policy.Join // how it joined
	fresh bool        // it is the first to join of its process
	work  work

	contributes bool         // it has done the inner steps of the round after the group's step
	repeats     *rank        // that contributes what it has fetched with the state, or nil
	vote        vote         // on the reduction under way
	confirms    policy.Epoch // the epoch of the reduction that it is to drop
	donor       *rank
	fetches     state       // state that it is to get, or a successor
	holds       state       // the group's state if all ranks hold it
	foreign     bool        // it holds another state, of unknown origin
	asked       policy.Time // for the quorum that it waits for

	lastHeartbeat policy.Time // or when it joined
	heard         bool        // since the last sign of life of its whole group
	unreachable   bool        // according to the network, since its last heartbeat
}

// find returns a worker that has joined, or nil.
func (m *Machine) find(id policy.ID) *rank {
	if i, ok := m.search(id); ok {
		return m.members[i].rank(id)
	}
	return nil
}

// rank returns the rank of a worker, or nil if it has not joined.
func (w *member) rank(id policy.ID) *rank {
	for _, k := range w.ranks {
		if k.id == id {
			return k
		}
	}
	return nil
}

// complete reports whether all ranks have joined.
func (w *member) complete() bool { return len(w.ranks) == len(w.workers) }

// allWait reports whether all ranks are waiting.
func (w *member) allWait() bool {
	return w.complete() && !slices.ContainsFunc(w.ranks, func(k *rank) bool { return k.work != waiting })
}

// anyIs reports whether a rank has that work.
func (w *member) anyIs(at work) bool {
	return slices.ContainsFunc(w.ranks, func(k *rank) bool { return k.work == at })
}

// contributes reports whether a rank contributes to the outer step after the
// group's.
func (w *member) contributes() bool {
	return slices.ContainsFunc(w.ranks, func(k *rank) bool { return k.contributes })
}

// turn sets the work of all ranks.
func (w *member) turn(to work) {
	for _, k := range w.ranks {
		k.work = to
	}
}

// voted is the vote of a group: in favour if all its ranks are.
func (w *member) voted() vote {
	v := inFavour
	for _, k := range w.ranks {
		if k.vote == against {
			return against
		}
		v = min(v, k.vote)
	}
	return v
}

// longestWait is the rank that has waited longest for a quorum, or nil.
func (w *member) longestWait() (longest *rank) {
	for _, k := range w.ranks {
		if k.work == waiting && (longest == nil || k.asked < longest.asked) {
			longest = k
		}
	}
	return longest
}

// quietest is the rank that has been silent longest.
func (w *member) quietest() *rank {
	return slices.MinFunc(w.ranks, func(a, b *rank) int { return cmp.Compare(a.lastHeartbeat, b.lastHeartbeat) })
}

// replica returns the member with a replica id, or nil if its life is over.
func (m *Machine) replica(id string) *member {
	i := slices.IndexFunc(m.members, func(w *member) bool { return w.replica == id })
	if i < 0 {
		return nil
	}
	return m.members[i]
}

// alive reports whether the lighthouse takes a member for alive.
func (m *Machine) alive(now policy.Time, w *member) bool {
	return now-w.beat < m.policy.HeartbeatTimeout
}

// participant returns the worker if it takes part in the reduction of this epoch.
func (m *Machine) participant(id policy.ID, round int, epoch policy.Epoch) *rank {
	if k := m.find(id); k != nil && k.of.in != nil && k.of.in.epoch == epoch && k.of.in.from.steps == round-1 && epoch > 0 {
		return k
	}
	return nil
}

// join admits a worker, in whichever life: no worker is excluded for good. A
// life that was not known to be over is over now.
func (m *Machine) join(now policy.Time, e policy.Join) {
	before, known := m.processes[e.ID]
	if k := m.find(e.ID); known && (e.Incarnation < before || e.Incarnation == before && k != nil) {
		m.emit(&policy.Reject{ID: e.ID, Reason: policy.Reason{Rule: policy.RuleRejoinDenied}})
		return
	} else if k != nil {
		m.evict(now, k, policy.RuleReplaced, true)
		if m.finished {
			return
		}
	}
	m.processes[e.ID] = e.Incarnation
	w := m.forming(now, e.ID)
	k := &rank{id: e.ID, of: w, asks: e, fresh: !known || e.Incarnation != before, holds: state{steps: -1}, lastHeartbeat: now}
	w.ranks = append(w.ranks, k)
	slices.SortFunc(w.ranks, func(a, b *rank) int { return cmp.Compare(a.id, b.id) })
	if e.HasState {
		m.outerSteps = max(m.outerSteps, e.OuterSteps)
	}
	m.emit(&policy.Admit{ID: e.ID, Incarnation: e.Incarnation, Round: m.outerSteps + 1, Reason: policy.Reason{Rule: policy.RuleJoin, Members: len(m.members)}})
	if w.complete() {
		m.formed(now, w)
	}
}

// forming returns the life of a group that a worker is to join.
func (m *Machine) forming(now policy.Time, id policy.ID) *member {
	i, found := m.search(id)
	if found {
		return m.members[i]
	}
	workers := m.group(id)
	l := m.livesOf(workers[0])
	l.begun++
	// Replica ids are ordered as the workers are, and so are ranks.
	w := &member{workers: workers, replica: fmt.Sprintf("w%020d:%06d", workers[0], l.begun), step: -1, beat: now}
	m.members = slices.Insert(m.members, i, w)
	if len(m.members) == 1 {
		m.scheduleCheck(now)
	}
	return w
}

// formed begins the life of a group whose ranks have all joined. Its manager is
// on the first rank.
func (m *Machine) formed(now policy.Time, w *member) {
	first := w.ranks[0].asks
	w.house, w.beat = m.houseOf(first.ID, first.Incarnation), now
	w.initial = !slices.ContainsFunc(w.ranks, func(k *rank) bool { return !k.fresh })
	w.turn(ready)
	holds := first.HasState && (first.OuterSteps > 0 || !m.taken)
	for _, k := range w.ranks {
		holds = holds && k.asks.HasState && k.asks.OuterSteps == first.OuterSteps
	}
	if holds {
		w.hold(state{m.root(first.OuterSteps), first.OuterSteps})
		m.tell(now, w.house, torchft.Heartbeat{ReplicaID: w.replica})
		m.begin([]*member{w}, policy.RuleJoin)
		return
	}
	m.ask(now, w, ready)
}

// lose removes a worker that is known to be gone. It may come back, unless it left.
func (m *Machine) lose(now policy.Time, id policy.ID, rule policy.Rule) {
	if k := m.find(id); k != nil {
		m.evict(now, k, rule, rule != policy.RuleLeave)
	}
}

// evict ends a worker's part in the life of its group and, if that life had
// begun, the life: the other ranks have to join again.
func (m *Machine) evict(now policy.Time, k *rank, rule policy.Rule, rejoin bool) {
	why := policy.Reason{Rule: rule}
	if rule != policy.RuleLeave {
		why.Silent = now - k.lastHeartbeat
	}
	if w := k.of; w.complete() {
		m.ends(now, k, rejoin, func(o *rank) policy.Reason {
			if o == k {
				return why
			}
			return policy.Reason{Rule: policy.RuleLost, Lost: &k.id}
		})
	} else {
		w.ranks = slices.DeleteFunc(w.ranks, func(o *rank) bool { return o == k })
		if len(w.ranks) == 0 {
			m.remove(w)
		}
		m.emit(&policy.Evict{ID: k.id, Round: m.outerSteps + 1, Rejoin: rejoin && rule != policy.RuleReplaced, Reason: why})
	}
}

func (m *Machine) remove(w *member) {
	i, _ := m.search(w.workers[0])
	m.members = slices.Delete(m.members, i, i+1)
	w.gone = true
}

// ends ends the life of a group. cause is the rank that caused the end. The
// lighthouse takes the group for alive until its heartbeats are too old,
// because it is not informed. A call that waits there ends with the group.
func (m *Machine) ends(now policy.Time, cause *rank, rejoin bool, why func(*rank) policy.Reason) {
	w := cause.of
	m.remove(w)
	others := slices.DeleteFunc(slices.Clone(w.ranks), func(k *rank) bool { return k == cause })
	for _, k := range append([]*rank{cause}, others...) {
		reason := why(k)
		m.emit(&policy.Evict{ID: k.id, Round: m.outerSteps + 1, Rejoin: rejoin && reason.Rule != policy.RuleReplaced, Reason: reason})
	}
	if w.allWait() {
		m.tell(now, w.house, torchft.Cancel{ReplicaID: w.replica})
	}
	if r := w.in; r != nil { // the other participants' connections to it are gone
		r.participants = slices.DeleteFunc(slices.Clone(r.participants), func(p *member) bool { return p == w })
		w.in = nil
		m.decide(now, r, policy.Reason{Rule: policy.RuleLost, Lost: &cause.id})
	}
}

// dies ends the life of a group that ends itself. It is started again as often
// as the policy allows.
func (m *Machine) dies(now policy.Time, cause *rank, why policy.Reason) {
	l := m.lives[cause.of.workers[0]]
	l.killed++
	m.ends(now, cause, l.killed <= m.policy.Restarts, func(*rank) policy.Reason { return why })
}

func (m *Machine) arrival(now policy.Time, e policy.Arrival) {
	k := m.find(e.ID)
	if k == nil || k.work != training || e.Round != k.of.step+1 {
		return
	}
	w := k.of
	h := w.house
	late := slices.ContainsFunc(m.attempts, func(r *attempt) bool { return r.house == h && r.lineage == w.lineage }) ||
		slices.ContainsFunc(m.members, func(o *member) bool {
			return o.house == h && o.step > w.step && (state{w.lineage, w.step}).leadsTo(state{o.lineage, o.step})
		})
	if !h.hasFirst {
		h.first, h.hasFirst = now, true
	}
	why := policy.Reason{Rule: policy.RuleOnTime, Members: len(m.members)}
	if late {
		why.Rule = policy.RuleLate
	}
	m.emit(&policy.Arrived{ID: k.id, Round: e.Round, Offset: now - h.first, Late: late, Reason: why})
	k.contributes, k.work = true, ready
	m.ask(now, w, ready)
}

func (m *Machine) fetched(now policy.Time, e policy.StateFetched) {
	k := m.find(e.ID)
	if k == nil || k.work != fetching || e.OuterSteps < k.fetches.steps { // from an earlier fetch
		return
	}
	w := k.of
	got, newer := k.fetches, k.donor.holds
	w.initial = false
	switch {
	case !k.donor.of.gone && newer.of != nil && got.leadsTo(newer): // it may have gone on meanwhile
		if got = (state{newer.of, min(e.OuterSteps, newer.steps)}).plain(); got.steps > k.fetches.steps {
			k.repeats = nil
		}
	case e.OuterSteps != got.steps: // of the donor's next life, or of another lineage
		k.holds, k.foreign = state{steps: -1}, true
		m.settle(w)
		m.fetchFailed(now, e.ID)
		return
	}
	m.emit(&policy.Fetched{ID: k.id, Round: got.of.steps + 1, Reason: policy.Reason{Rule: policy.RuleState}})
	k.work, k.holds, k.foreign = ready, got, false
	if w.anyIs(fetching) {
		return
	}
	m.settle(w)
	switch {
	case w.in != nil:
		m.reduce(now, w.in)
	case w.begins && w.lineage != nil && (w.step == w.lineage.steps || newer.of != nil && newer.plain() == got): // no other participant has gone on
		m.begin([]*member{w}, policy.RuleState)
	default: // the quorum that it was for is over
		m.ask(now, w, ready)
	}
}

// settle gives a group the state that all its ranks hold, after some have
// fetched: none, if they differ.
func (m *Machine) settle(w *member) {
	holds := w.ranks[0].holds
	if holds.of == nil || slices.ContainsFunc(w.ranks, func(k *rank) bool { return k.holds != holds }) {
		w.lineage, w.step = nil, -1
		return
	}
	m.moves(w, holds)
}

// hold gives a group a state.
func (w *member) hold(s state) {
	w.lineage, w.step = s.of, s.steps
	for _, k := range w.ranks {
		k.holds = s
	}
}

// fetchFailed fails the step that waits for a fetch, and makes the group ask
// again.
func (m *Machine) fetchFailed(now policy.Time, id policy.ID) {
	k := m.find(id)
	if k == nil || k.work != fetching {
		return
	}
	k.work, k.repeats, k.of.begins = ready, nil, false
	if k.of.in == nil {
		m.ask(now, k.of, ready)
		return
	}
	m.decide(now, k.of.in, policy.Reason{Rule: policy.RuleFetchFailed, Lost: &k.id, Peer: &k.donor.id})
}

func (m *Machine) scheduleCheck(now policy.Time) {
	m.nextCheck = now - now%m.cfg.HeartbeatPeriod + m.cfg.HeartbeatPeriod
}

// heartbeat notes a sign of life. The lighthouse receives it at the next check,
// so that a recorded run, which has the checks, can be replayed.
func (m *Machine) heartbeat(now policy.Time, id policy.ID) {
	if k := m.find(id); k != nil {
		k.heard = k.heard || now > k.lastHeartbeat // a replay repeats the last one
		k.lastHeartbeat, k.unreachable = now, false
	}
}

// checkHeartbeats reports to the lighthouse the groups whose ranks have all
// given a sign of life since the last report. It records the silent ones.
func (m *Machine) checkHeartbeats(now policy.Time) {
	for _, w := range slices.Clone(m.members) {
		heard := w.complete()
		for _, k := range w.ranks {
			if silent := now - k.lastHeartbeat; silent >= m.cfg.HeartbeatPeriod {
				m.emit(&policy.HeartbeatMiss{ID: k.id, Round: m.outerSteps + 1, Reason: policy.Reason{Rule: policy.RuleHeartbeat, Silent: silent,
					Misses: int(silent / m.cfg.HeartbeatPeriod), Limit: int(m.policy.HeartbeatTimeout / m.cfg.HeartbeatPeriod)}})
			}
			heard = heard && k.heard
		}
		if !heard {
			continue
		}
		for _, k := range w.ranks {
			k.heard = false
		}
		w.beat = now
		m.tell(now, w.house, torchft.Heartbeat{ReplicaID: w.replica})
		m.ask(now, w, unheard)
	}
}

// checkUnreachable removes workers that are unreachable and have missed a
// heartbeat.
func (m *Machine) checkUnreachable(now policy.Time) {
	for _, w := range slices.Clone(m.members) {
		for _, k := range slices.Clone(w.ranks) {
			if k.unreachable && now-k.lastHeartbeat >= m.cfg.HeartbeatPeriod && !m.finished && !w.gone {
				m.evict(now, k, policy.RuleConnection, true)
			}
		}
	}
}

// recover restarts all time-outs from now: the coordinator was down, and has
// missed heartbeats and requests. It comes back with its journal, so the
// lighthouse does not forget, unless the inject makes it.
func (m *Machine) recover(now policy.Time, e policy.Recovered) {
	m.scheduleCheck(now)
	m.hasWake = false
	for _, r := range m.attempts {
		r.issued = now
	}
	for _, w := range m.members {
		w.beat = now
		for _, k := range w.ranks {
			k.lastHeartbeat, k.unreachable = now, false
		}
	}
	if e.Forgets {
		m.forget(now, now-e.Away)
		return
	}
	for _, w := range m.members {
		if w.complete() {
			m.tell(now, w.house, torchft.Heartbeat{ReplicaID: w.replica})
		}
	}
	for _, w := range slices.Clone(m.members) {
		if m.finished {
			break
		}
		if w.allWait() {
			m.tell(now, w.house, torchft.Cancel{ReplicaID: w.replica})
		}
		m.ask(now, w, waiting)
	}
}

// forget begins with a lighthouse that knows no replica until it hears from it,
// and whose ids count from 1. Requests that were waiting when the lighthouse
// died are lost. A manager repeats its own as often as it may, in equal parts
// of its time-out. If no repeat comes late enough, it waits for the time-out.
func (m *Machine) forget(now, died policy.Time) {
	if err := m.newHouses(); err != nil {
		panic(err) // the same configuration as at first
	}
	pause := max(m.policy.QuorumTimeout/policy.Time(m.policy.QuorumRetries+1), 1)
	for _, w := range m.members {
		for _, k := range w.ranks {
			k.heard = false
		}
		if next := max((now-died+pause-1)/pause, 1); w.allWait() && next <= policy.Time(m.policy.QuorumRetries) {
			w.again = died + next*pause
		}
	}
}

// group is a process group as a member has configured it. It configures one
// when the quorum's id changes, and uses nothing else of the quorum.
type group struct {
	id      int64
	members []string // replica ids
}

// configure gives the participants the quorum's process group. Members that have one
// with the quorum's id keep it, whatever it consists of: an id comes again after a
// lighthouse has forgotten its ids. Then those that configure a new one do not meet
// them, and fail: they are apart. Those that keep theirs reduce without them if all
// members of theirs are here, and nobody among them heals from one that is apart.
// Otherwise all fail, and broken is one that keeps its own.
func (r *attempt) configure() (apart []*member, broken *member) {
	var with []string
	var keep []*member
	for _, w := range r.participants {
		with = append(with, w.replica)
		if w.group.id == r.why.QuorumID {
			keep = append(keep, w)
		} else {
			apart = append(apart, w)
		}
	}
	for _, w := range apart {
		w.group = group{r.why.QuorumID, with}
	}
	if len(keep) == 0 {
		return nil, nil // all configure the same
	}
	for _, w := range keep {
		heals := slices.ContainsFunc(w.ranks, func(k *rank) bool { return !k.contributes && k.donor != nil && slices.Contains(apart, k.donor.of) })
		if heals || len(w.group.members) != len(keep) || !slices.Equal(w.group.members, keep[0].group.members) {
			broken = w
		}
	}
	return apart, broken
}

// restart begins the round after a checkpoint with the present members, all of
// them new replicas at a new lighthouse.
func (m *Machine) restart(now policy.Time, e policy.Restarted) {
	if err := m.newHouses(); err != nil {
		panic(err) // the same configuration as at first
	}
	at := &lineage{steps: e.OuterSteps}
	m.finished, m.attempts, m.outerSteps, m.taken = false, nil, e.OuterSteps, true
	m.lineages, m.begunLineages, m.hasWake = []*lineage{at}, 1, false
	m.scheduleCheck(now)
	var holders []*member
	for _, w := range m.members {
		l := m.lives[w.workers[0]]
		l.begun++
		*w = member{workers: w.workers, ranks: w.ranks, replica: fmt.Sprintf("w%020d:%06d", w.workers[0], l.begun), house: w.house, step: -1, beat: now}
		for _, k := range w.ranks {
			*k = rank{id: k.id, of: w, asks: k.asks, work: ready, holds: state{steps: -1}, lastHeartbeat: now}
		}
		if !w.complete() {
			continue
		}
		m.tell(now, w.house, torchft.Heartbeat{ReplicaID: w.replica})
		if !slices.ContainsFunc(w.workers, func(id policy.ID) bool { return !slices.Contains(e.Holders, id) }) {
			w.hold(state{at, e.OuterSteps})
			holders = append(holders, w)
		}
	}
	if len(holders) > 0 {
		m.begin(holders, policy.RuleRestart)
	}
	for _, w := range m.members {
		if w.step < 0 && w.complete() {
			m.ask(now, w, ready)
		}
	}
}
