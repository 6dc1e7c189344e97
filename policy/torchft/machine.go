package torchft

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"testbed/policy"
	"testbed/torchft"
)

// Machine is the coordinator under torchft's protocol: the lighthouse, and the
// decisions of managers that affect others. A worker is a rank of a replica
// group, mostly of one rank. Machine is not safe for concurrent use.
type Machine struct {
	cfg      policy.Config
	policy   Policy
	houses   []*house // mostly one
	finished bool
	// outerSteps is the most that any worker has taken.
	outerSteps int
	epoch      policy.Epoch // the number of the last reduction begun
	members    []*member
	lives      map[policy.ID]*lives // by a group's first worker
	processes  map[policy.ID]int    // the last incarnation that has joined
	attempts   []*attempt           // under way

	lineages      []*lineage
	begunLineages int
	taken         bool // an outer step has been taken
	split         bool // an outer step has been taken twice

	nextCheck policy.Time // of heartbeats
	wake      policy.Time
	hasWake   bool
	out       []policy.Action
}

// house is a lighthouse, with the data for its record.
type house struct {
	*torchft.Lighthouse
	first    policy.Time // arrival since the last quorum
	hasFirst bool
	deadline *policy.Deadline // of the join timeout under way
}

// lives is the state of a group beyond its life as a replica.
type lives struct {
	begun  int // lives so far, each with a replica id of its own
	killed int // by the quorum timeout, or for failed commits
}

// livesOf returns the lives of a group.
func (m *Machine) livesOf(first policy.ID) *lives {
	l := m.lives[first]
	if l == nil {
		l = &lives{}
		m.lives[first] = l
	}
	return l
}

// group returns the workers of a worker's replica group, by their ranks.
func (m *Machine) group(id policy.ID) []policy.ID {
	if group := m.cfg.Grouping.Group(id); group != nil {
		return group
	}
	return []policy.ID{id}
}

// New returns a machine without members.
func New(cfg policy.Config, p Policy) (*Machine, error) {
	if cfg.HeartbeatPeriod < 1 || cfg.HeartbeatMissThreshold < 1 || cfg.TargetOuterSteps < 1 {
		return nil, errors.New("torchft: the heartbeat period, the miss threshold and the number of outer steps must be at least 1")
	}
	if cfg.Grouping.Regional() {
		return nil, errors.New("torchft: the policy keeps one outer state for all workers, but train.regions needs one for each region; choose another policy, or remove train.regions")
	}
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("torchft: %w", err)
	}
	m := &Machine{cfg: cfg, policy: p.Resolved(cfg), lives: map[policy.ID]*lives{}, processes: map[policy.ID]int{}}
	return m, m.newHouses()
}

// newHouses begins with lighthouses without replicas.
func (m *Machine) newHouses() error {
	if m.houses == nil {
		for range max(m.cfg.Lighthouses, 1) {
			m.houses = append(m.houses, &house{})
		}
	}
	for _, h := range m.houses {
		l, err := torchft.New(torchft.Config{MinReplicas: m.policy.MinReplicas, JoinTimeout: m.policy.JoinTimeout, HeartbeatTimeout: m.policy.HeartbeatTimeout})
		if err != nil {
			return err
		}
		*h = house{Lighthouse: l}
	}
	return nil
}

// houseOf returns the lighthouse that a process of a worker asks.
func (m *Machine) houseOf(id policy.ID, incarnation int) *house {
	return m.houses[m.cfg.Lighthouse(id, incarnation)]
}

// OuterSteps returns the number of outer steps that are committed: the most
// that any worker has taken.
func (m *Machine) OuterSteps() int { return m.outerSteps }

// Members returns the number of workers that have joined and are not known to be
// gone, silent or not.
func (m *Machine) Members() (n int) {
	for _, w := range m.members {
		n += len(w.ranks)
	}
	return n
}

// Finished reports whether a Finish action has been given.
func (m *Machine) Finished() bool { return m.finished }

// Close does nothing: everything is in this process.
func (m *Machine) Close() error { return nil }

// Step takes one event and returns the actions that follow from it, in order.
// The slice is valid until the next call. Times must not decrease. Obsolete
// events have no effect.
func (m *Machine) Step(now policy.Time, e policy.Event) []policy.Action {
	m.out = m.out[:0]
	if r, ok := e.(policy.Restarted); ok {
		m.restart(now, r)
	} else if m.finished {
		return nil
	}
	switch e := e.(type) {
	case policy.Heartbeat:
		m.heartbeat(now, e.ID)
		return nil
	case policy.Progress:
		m.heartbeat(now, e.ID)
		return nil
	case policy.Join:
		m.join(now, e)
	case policy.Leave:
		m.lose(now, e.ID, policy.RuleLeave)
	case policy.Lost:
		m.lose(now, e.ID, e.Rule)
	case policy.Unreachable:
		if k := m.find(e.ID); k != nil {
			k.unreachable = true
			m.checkUnreachable(now)
		}
	case policy.Arrival:
		m.arrival(now, e)
	case policy.Reduced:
		if k := m.participant(e.ID, e.Round, e.Epoch); k != nil && k.vote == pending {
			m.votes(now, k, inFavour, policy.Reason{})
		}
	case policy.ReduceFailed:
		if k := m.participant(e.ID, e.Round, e.Epoch); k != nil {
			m.reduceFailed(now, k, e)
		} else if k := m.find(e.ID); k != nil && k.work == unsaid && k.confirms == e.Epoch {
			k.work = ready
			m.ask(now, k.of, ready)
		}
	case policy.StateFetched:
		m.fetched(now, e)
	case policy.FetchFailed:
		m.fetchFailed(now, e.ID)
	case policy.Timer:
		m.hasWake = false
		m.timer(now)
	case policy.Recovered:
		m.recover(now, e)
	}
	m.setWake(now)
	return m.out
}

func (m *Machine) emit(a policy.Action) { m.out = append(m.out, a) }

// finish ends the run. An outer step under way is dropped: no worker may take
// it with the end of the run.
func (m *Machine) finish(complete bool, why policy.Reason) {
	for _, r := range m.attempts {
		if r.epoch > 0 {
			m.emit(&policy.Abort{Round: r.from.steps + 1, Epoch: r.epoch, Lineage: r.lineage.number, Participants: ids(r.participants), Reason: why})
		}
	}
	if m.split && complete {
		complete, why.Rule = false, policy.RuleSplitBrain
	}
	m.finished, m.attempts = true, nil
	m.emit(&policy.Finish{Complete: complete, Reason: why})
}

// ask makes the ranks of a group whose work is at ask their manager for the
// next quorum, and wait for it. When all have asked, the manager asks the
// lighthouse.
func (m *Machine) ask(now policy.Time, w *member, at work) {
	if m.finished || w.gone || !w.anyIs(at) {
		return
	}
	w.begins = false
	for _, k := range w.ranks {
		if k.work == at {
			k.work, k.asked = waiting, now
		}
	}
	if w.allWait() {
		m.settle(w)
		m.request(now, w)
	}
}

// request tells the lighthouse that a member waits for the next quorum.
func (m *Machine) request(now policy.Time, w *member) {
	w.beat, w.again = now, 0
	m.tell(now, w.house, torchft.Request{Member: torchft.Member{ReplicaID: w.replica, Step: int64(w.step), WorldSize: uint64(len(w.ranks)), CommitFailures: w.failures,
		ShrinkOnly: w.contributes() && w.step < m.policy.ShrinkUntil}})
}

// tell gives a lighthouse an event and carries out its decisions.
func (m *Machine) tell(now policy.Time, h *house, e torchft.Event) {
	for _, a := range h.Step(now, e) {
		switch a := a.(type) {
		case *torchft.Issue:
			m.issued(now, h, a)
		case *torchft.Hold:
			m.hold(h, a)
		}
	}
}

// hold records until when a join timeout waits for live members.
func (m *Machine) hold(h *house, a *torchft.Hold) {
	busy := slices.ContainsFunc(m.attempts, func(r *attempt) bool { return r.house == h })
	if a.Rule != torchft.RuleJoinTimeout || busy || h.deadline != nil && h.deadline.At == a.Until {
		return
	}
	h.deadline = &policy.Deadline{At: a.Until, Offset: m.policy.JoinTimeout, Numbers: map[string]float64{"join_timeout_us": float64(m.policy.JoinTimeout)}}
	m.emit(&policy.ArmDeadline{Round: m.outerSteps + 1, At: a.Until, Reason: policy.Reason{Rule: policy.RuleDeadline, Deadline: h.deadline}})
}

// timer handles everything that is due.
func (m *Machine) timer(now policy.Time) {
	if len(m.members) > 0 && now >= m.nextCheck {
		m.checkUnreachable(now)
		m.checkHeartbeats(now)
		m.scheduleCheck(now)
	}
	for _, r := range slices.Clone(m.attempts) {
		if !slices.Contains(m.attempts, r) {
			continue // it has ended with another one
		}
		silent := slices.IndexFunc(r.participants, func(w *member) bool { return !m.alive(now, w) })
		switch {
		case silent >= 0:
			k := r.participants[silent].quietest()
			m.decide(now, r, policy.Reason{Rule: policy.RuleHeartbeat, Lost: &k.id, Silent: now - k.lastHeartbeat})
		case now >= r.issued+m.policy.Timeout:
			m.decide(now, r, policy.Reason{Rule: policy.RuleTimeout, Stalled: now - r.issued})
		}
	}
	for _, h := range m.houses {
		if !m.finished {
			m.tell(now, h, torchft.Tick{})
		}
	}
	for _, w := range slices.Clone(m.members) {
		if !m.finished && w.allWait() && w.again > 0 && now >= w.again {
			m.request(now, w)
		}
	}
	for _, w := range slices.Clone(m.members) {
		k := w.longestWait()
		if !m.finished && k != nil && now >= k.asked+m.policy.QuorumTimeout {
			killed := m.lives[w.workers[0]].killed + 1
			m.dies(now, k, policy.Reason{Rule: policy.RuleQuorumTimeout, Misses: killed, Limit: m.policy.Restarts, Stalled: now - k.asked})
		}
	}
}

// setWake asks for a Timer when the next thing is due. A Timer that has already
// been asked for may come too early.
func (m *Machine) setWake(now policy.Time) {
	if m.finished || len(m.members) == 0 {
		m.hasWake = false
		return
	}
	at := m.nextCheck
	for _, h := range m.houses {
		if next, ok := h.Next(); ok {
			at = min(at, next)
		}
	}
	for _, r := range m.attempts {
		at = min(at, r.issued+m.policy.Timeout)
	}
	for _, w := range m.members {
		if k := w.longestWait(); k != nil {
			at = min(at, k.asked+m.policy.QuorumTimeout)
		}
		if w.allWait() && w.again > 0 {
			at = min(at, w.again)
		}
	}
	if at = max(at, now); m.hasWake && at >= m.wake {
		return
	}
	m.wake, m.hasWake = at, true
	m.emit(&policy.WakeAt{At: at, Reason: policy.Reason{Rule: policy.RuleTimer}})
}

func ids(members []*member) []policy.ID {
	var out []policy.ID
	for _, w := range members {
		out = append(out, w.workers...)
	}
	return out
}

func (m *Machine) search(id policy.ID) (int, bool) {
	return slices.BinarySearchFunc(m.members, m.group(id)[0], func(w *member, first policy.ID) int { return cmp.Compare(w.workers[0], first) })
}
