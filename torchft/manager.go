package torchft

import (
	"fmt"

	"testbed/policy"
)

// retryDelay is the least time between two calls to the lighthouse.
const retryDelay policy.Time = 100_000

// ManagerConfig describes the manager's group.
type ManagerConfig struct {
	ReplicaID    string
	Address      string
	StoreAddress string
	WorldSize    int // ranks in the group
	// QuorumRetries is how often a failed call to the lighthouse is repeated.
	// Without retries a lighthouse that is down for a moment ends the job, since
	// the ranks wait for an answer until their own time-outs.
	QuorumRetries int
	// Compat makes ranks whose calls have gone count as in torchft: a request and
	// a vote stay, though no caller is left for the answer.
	Compat bool
}

func (c *ManagerConfig) validate() error {
	switch {
	case c.WorldSize < 1:
		return fmt.Errorf("world_size is %d: it must be at least 1", c.WorldSize)
	case c.QuorumRetries < 0:
		return fmt.Errorf("quorum_retries is %d: it must not be negative", c.QuorumRetries)
	}
	return nil
}

// ManagerEvent is something that happened to a manager.
type ManagerEvent interface{ managerEvent() }

type (
	// RankRequest is a call of a rank that waits for the next quorum.
	RankRequest struct {
		GroupRank          int
		Step               int64
		CheckpointMetadata string // from where its state can be fetched
		ShrinkOnly         bool
		InitSync           bool
		CommitFailures     int64
		Timeout            policy.Time // of the call
	}
	// RankCancel says that one of the calls of a rank waiting for a quorum has
	// gone.
	RankCancel struct{ GroupRank int }
	// Issued is the lighthouse's answer to the Ask of that number.
	Issued struct {
		Call   int
		Quorum Quorum
	}
	// Failed says that there is no answer: the call timed out here, or the
	// lighthouse refused it or could not be reached.
	Failed struct {
		Call     int
		TimedOut bool
	}
	// Vote is a call of a rank that waits for the group's decision on a step.
	Vote struct {
		GroupRank int
		Commit    bool
	}
	// VoteCancel says that one of the calls of a rank waiting for the decision has
	// gone.
	VoteCancel struct{ GroupRank int }
)

func (RankRequest) managerEvent() {}
func (RankCancel) managerEvent()  {}
func (Issued) managerEvent()      {}
func (Failed) managerEvent()      {}
func (Vote) managerEvent()        {}
func (VoteCancel) managerEvent()  {}

// ManagerAction is something for a manager's driver to do. Actions are pointers
// to the types below and may be kept, but not changed.
type ManagerAction interface{ managerAction() }

type (
	// Ask calls the lighthouse at a time, over a new connection if it is a retry.
	Ask struct {
		Call    int // number of the group's request, from 1; a retry keeps it
		Retry   int // 0: the first try
		At      policy.Time
		Timeout policy.Time
		Member  Member
	}
	// Answer ends the wait of all calls of a rank for a quorum. Err is set if the
	// quorum does not have this group.
	Answer struct {
		GroupRank int
		Results   *Results
		Err       error
	}
	// GiveUp records that no try is left. The waiting calls keep waiting.
	GiveUp struct {
		Call     int
		Tries    int
		TimedOut bool // the last of them
	}
	// Decide ends the wait of all calls for the decision on a step. The decision
	// is this group's alone: another group may decide otherwise on the same step.
	Decide struct {
		Commit  bool
		Against []int // group ranks that voted against it
	}
	// RefuseRank turns down a request or a vote, which then has no effect.
	RefuseRank struct {
		GroupRank int
		Err       error
	}
)

func (*Ask) managerAction()        {}
func (*Answer) managerAction()     {}
func (*GiveUp) managerAction()     {}
func (*Decide) managerAction()     {}
func (*RefuseRank) managerAction() {}

// rank is a manager's knowledge of one rank of its group.
type rank struct {
	requested  bool // its request is to be part of the next call to the lighthouse
	waiting    int  // calls that wait for a quorum
	initSync   bool
	registered bool // it has reported its checkpoint metadata
	checkpoint string

	voted   bool
	against bool // it has voted against the step, and cannot take that back
	voters  int  // calls that wait for the decision
}

// Manager is the state machine that speaks for the ranks of a replica group. It
// is not safe for concurrent use.
type Manager struct {
	cfg   ManagerConfig
	ranks []rank
	last  Ask // the latest
	out   []ManagerAction
}

// NewManager returns a manager before the first call of its ranks.
func NewManager(cfg ManagerConfig) (*Manager, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Manager{cfg: cfg, ranks: make([]rank, cfg.WorldSize)}, nil
}

// CheckpointMetadata returns the place from which the state of a rank can be
// fetched.
func (m *Manager) CheckpointMetadata(groupRank int) (string, error) {
	if groupRank < 0 || groupRank >= len(m.ranks) || !m.ranks[groupRank].registered {
		return "", fmt.Errorf("group rank %d has no checkpoint metadata", groupRank)
	}
	return m.ranks[groupRank].checkpoint, nil
}

// Step takes one event and returns the actions that follow from it, in order.
// The slice is valid until the next call.
func (m *Manager) Step(now policy.Time, e ManagerEvent) []ManagerAction {
	m.out = m.out[:0]
	switch e := e.(type) {
	case RankRequest:
		m.request(now, e)
	case RankCancel:
		if r := m.known(e.GroupRank); r != nil {
			r.waiting = max(r.waiting-1, 0)
			r.requested = r.requested && (r.waiting > 0 || m.cfg.Compat)
		}
	case Issued:
		m.answer(e.Quorum)
	case Failed:
		if e.Call == m.last.Call && e.Call > 0 {
			m.retry(now, e.TimedOut)
		}
	case Vote:
		m.vote(e)
	case VoteCancel:
		if r := m.known(e.GroupRank); r != nil {
			r.voters = max(r.voters-1, 0)
			r.voted = r.voted && (r.voters > 0 || m.cfg.Compat)
		}
	}
	return m.out
}

func (m *Manager) emit(a ManagerAction) { m.out = append(m.out, a) }

// known returns a rank of the group, or nil.
func (m *Manager) known(groupRank int) *rank {
	if groupRank < 0 || groupRank >= len(m.ranks) {
		return nil
	}
	return &m.ranks[groupRank]
}

// caller is known for calls that expect an answer.
func (m *Manager) caller(groupRank int) *rank {
	r := m.known(groupRank)
	if r == nil {
		m.emit(&RefuseRank{groupRank, fmt.Errorf("group rank %d must lie between 0 and %d, because the world size is %d", groupRank, len(m.ranks)-1, len(m.ranks))})
	}
	return r
}

// request calls the lighthouse once every rank has asked, with the last rank's
// parameters.
func (m *Manager) request(now policy.Time, e RankRequest) {
	r := m.caller(e.GroupRank)
	if r == nil {
		return
	}
	if len(e.CheckpointMetadata) > MaxMemberBytes {
		m.emit(&RefuseRank{e.GroupRank, fmt.Errorf("checkpoint metadata of group rank %d: the metadata has %d bytes; at most %d are allowed", e.GroupRank, len(e.CheckpointMetadata), MaxMemberBytes)})
		return
	}
	r.requested, r.initSync = true, e.InitSync
	r.waiting++
	r.registered, r.checkpoint = true, e.CheckpointMetadata
	for i := range m.ranks {
		if !m.ranks[i].requested {
			return
		}
	}
	for i := range m.ranks {
		m.ranks[i].requested = false
	}
	m.last = Ask{Call: m.last.Call + 1, At: now, Timeout: e.Timeout, Member: Member{
		ReplicaID: m.cfg.ReplicaID, Address: m.cfg.Address, StoreAddress: m.cfg.StoreAddress,
		Step: e.Step, WorldSize: uint64(m.cfg.WorldSize), ShrinkOnly: e.ShrinkOnly, CommitFailures: e.CommitFailures,
	}}
	m.ask()
}

func (m *Manager) ask() {
	a := m.last
	m.emit(&a)
}

// answer gives every waiting rank its results of the quorum.
func (m *Manager) answer(q Quorum) {
	for i := range m.ranks {
		r := &m.ranks[i]
		if r.waiting == 0 {
			continue
		}
		r.waiting = 0
		r.requested = r.requested && m.cfg.Compat
		results, err := q.Results(m.cfg.ReplicaID, i, r.initSync)
		m.emit(&Answer{GroupRank: i, Results: results, Err: err})
	}
}

// retry calls the lighthouse again, if a try is left. A lighthouse that answers
// with errors is given a share of the time-out to recover.
func (m *Manager) retry(now policy.Time, timedOut bool) {
	a := &m.last
	if a.Retry >= m.cfg.QuorumRetries {
		m.emit(&GiveUp{Call: a.Call, Tries: a.Retry + 1, TimedOut: timedOut})
		return
	}
	delay := retryDelay
	if !timedOut {
		delay = max(delay, a.Timeout/policy.Time(m.cfg.QuorumRetries+1))
	}
	a.Retry++
	a.At = now + delay
	m.ask()
}

// vote decides once every rank has voted: the group commits if no rank is
// against.
func (m *Manager) vote(e Vote) {
	r := m.caller(e.GroupRank)
	if r == nil {
		return
	}
	r.voted, r.against = true, r.against || !e.Commit
	r.voters++
	var against []int
	for i := range m.ranks {
		if !m.ranks[i].voted {
			return
		}
		if m.ranks[i].against {
			against = append(against, i)
		}
	}
	for i := range m.ranks {
		m.ranks[i].voted, m.ranks[i].against, m.ranks[i].voters = false, false, 0
	}
	m.emit(&Decide{Commit: len(against) == 0, Against: against})
}
