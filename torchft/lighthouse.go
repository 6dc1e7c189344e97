package torchft

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"testbed/policy"
)

const (
	// MaxReplicas is the number of replica ids that a lighthouse remembers: four
	// times the thousand groups it is meant for. Beyond, it forgets the replica
	// that has been silent for longest. If all of them are alive, it refuses
	// newcomers.
	MaxReplicas = 4096
	// MaxMemberBytes is the largest total length of a member's strings.
	MaxMemberBytes = 16 << 10
)

// Config are the lighthouse's parameters. All except Compat are required.
type Config struct {
	// MinReplicas is the number of replicas that a quorum needs. Unless it is a
	// majority of all replicas of the job, two lighthouses can split them.
	MinReplicas int
	// JoinTimeout is how long replicas that ask wait for others that are alive,
	// counted from the first request. A straggler costs the others this time once.
	// If it is shorter than the time in which a newcomer heals, the newcomer may
	// never come in.
	JoinTimeout policy.Time
	// HeartbeatTimeout is the age at which a heartbeat is no longer a sign of
	// life. A dead replica costs the others this time.
	HeartbeatTimeout policy.Time
	// Compat restores two behaviours of torchft that this package fixes: a request
	// whose caller has gone still takes part (a ghost), and a quorum may be empty.
	Compat bool
	// After is the number before the first quorum's id, at least 0. Managers
	// configure their process groups only if the id differs from their last one: a
	// lighthouse that starts without a memory must not use an id again.
	After int64
}

func (c *Config) validate() error {
	switch {
	case c.MinReplicas < 1:
		return fmt.Errorf("min_replicas is %d: it must be at least 1", c.MinReplicas)
	case c.JoinTimeout < 0:
		return fmt.Errorf("join_timeout_ms is %d: it must not be negative", c.JoinTimeout/1000)
	case c.HeartbeatTimeout <= 0:
		return fmt.Errorf("heartbeat_timeout_ms is %d: it must be above 0", c.HeartbeatTimeout/1000)
	case c.After < 0:
		return fmt.Errorf("the last id of a quorum is %d: it must not be negative", c.After)
	}
	return nil
}

// Event is something that happened to the lighthouse.
type Event interface{ event() }

type (
	// Heartbeat is a replica's sign of life.
	Heartbeat struct{ ReplicaID string }
	// Request is a call of a replica that asks for the next quorum and waits for
	// it. It is a sign of life.
	Request struct{ Member Member }
	// Cancel says that one of the calls waiting for a replica has gone, by its
	// deadline or with its connection.
	Cancel struct{ ReplicaID string }
	// Tick makes the lighthouse check again: heartbeats and time-outs expire with
	// time.
	Tick struct{}
)

func (Heartbeat) event() {}
func (Request) event()   {}
func (Cancel) event()    {}
func (Tick) event()      {}

// Action is something for the lighthouse's driver to do or record. Actions are
// pointers to the types below and may be kept, but not changed.
type Action interface{ Why() *Reason }

type (
	// Issue is a new quorum: the answer to all calls waiting for its participants.
	// Other calls keep waiting.
	Issue struct {
		Quorum Quorum
		Reason
	}
	// Hold records why there is no quorum yet, when the reason changes.
	Hold struct{ Reason }
	// Refuse turns down a Request or Heartbeat, which then has no effect.
	Refuse struct {
		ReplicaID string
		Reason
	}
)

// Why returns the reason of the action.
func (r *Reason) Why() *Reason { return r }

// replica is the lighthouse's knowledge of one replica id.
type replica struct {
	id        string
	heartbeat policy.Time // the last sign of life
	inLast    bool        // it is in the last quorum
	asking    bool        // it is to be in the next
	joined    policy.Time // time of its request
	member    Member      // its description of itself
	waiting   int         // calls that wait for its quorum; 0 while asking: a ghost
}

// Lighthouse is the state machine that issues a job's quorums. It is not safe
// for concurrent use.
type Lighthouse struct {
	cfg      Config
	now      policy.Time
	replicas []*replica // by id
	last     Quorum
	issued   bool   // there is a last quorum
	held     Reason // of the last Hold since then
	out      []Action

	full      Reason      // reason of the last refusal of a newcomer; holds for others
	fullUntil policy.Time // before this time, because all replicas are alive until then
}

// New returns a lighthouse without replicas.
func New(cfg Config) (*Lighthouse, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Lighthouse{cfg: cfg, last: Quorum{ID: cfg.After}}, nil
}

// Last returns the last quorum, and false if there has been none.
func (l *Lighthouse) Last() (Quorum, bool) { return l.last, l.issued }

// Restore makes a new lighthouse continue from the last quorum of an earlier
// one. Its ids continue from there. The participants count as alive for a
// heartbeat time-out, so that no quorum begins without them.
func (l *Lighthouse) Restore(last Quorum) error {
	p := last.Participants
	if len(l.replicas) > 0 || l.issued {
		return errors.New("a lighthouse that is already in use cannot be restored")
	}
	if len(p) == 0 || len(p) > MaxReplicas {
		return fmt.Errorf("restoring quorum %d: the quorum has %d participants, but must have 1 to %d", last.ID, len(p), MaxReplicas)
	}
	for i := range p {
		if i > 0 && p[i-1].ReplicaID >= p[i].ReplicaID {
			return fmt.Errorf("restoring quorum %d: participants %q and %q are not in order", last.ID, p[i-1].ReplicaID, p[i].ReplicaID)
		}
	}
	for i := range p {
		l.replicas = append(l.replicas, &replica{id: p[i].ReplicaID, heartbeat: l.now, inLast: true})
	}
	l.last, l.issued = last, true
	return nil
}

// Replica is a public view of the lighthouse's knowledge of a replica id.
type Replica struct {
	ReplicaID string
	Heartbeat policy.Time // its last sign of life
	Healthy   bool
	Asking    bool
}

// Look returns the decision of a Tick at this time, and all remembered replica
// ids, in order.
func (l *Lighthouse) Look(now policy.Time) (Reason, []Replica) {
	l.now = max(l.now, now)
	why, _ := l.judge()
	all := make([]Replica, 0, len(l.replicas))
	for _, r := range l.replicas {
		all = append(all, Replica{ReplicaID: r.id, Heartbeat: r.heartbeat, Healthy: l.healthy(r), Asking: r.asking})
	}
	return why, all
}

// Step takes one event and returns the actions that follow from it, in order.
// The slice is valid until the next call. A time before 0 counts as 0, and a
// time before the last event's as the last event's.
func (l *Lighthouse) Step(now policy.Time, e Event) []Action {
	l.out = l.out[:0]
	l.now = max(l.now, now)
	switch e := e.(type) {
	case Heartbeat:
		l.alive(e.ReplicaID, len(e.ReplicaID))
	case Request:
		if r := l.alive(e.Member.ReplicaID, e.Member.size()); r != nil {
			r.asking, r.joined, r.member = true, l.now, e.Member
			r.waiting++
			l.decide()
		}
	case Cancel:
		if i, ok := l.find(e.ReplicaID); ok {
			l.cancel(l.replicas[i])
		}
	case Tick:
		l.decide()
	}
	return l.out
}

// Next returns the earliest time at which a Tick can find that something has
// changed, and false if only another event can change it. With Compat empty
// quorums make it return the present for ever.
func (l *Lighthouse) Next() (at policy.Time, ok bool) {
	why, _ := l.judge()
	if why.quorum() {
		return l.now, true
	}
	if why.Ready == 0 {
		return 0, false
	}
	for _, r := range l.replicas {
		if expires := r.heartbeat + l.cfg.HeartbeatTimeout; l.healthy(r) && (!ok || expires < at) {
			at, ok = expires, true
		}
	}
	if why.Rule == RuleJoinTimeout {
		at = min(at, why.Until)
	}
	return at, ok
}

func (l *Lighthouse) find(id string) (int, bool) {
	return slices.BinarySearchFunc(l.replicas, id, func(r *replica, id string) int { return cmp.Compare(r.id, id) })
}

func (l *Lighthouse) healthy(r *replica) bool { return l.now-r.heartbeat < l.cfg.HeartbeatTimeout }

// alive notes a sign of life, of so many bytes. It returns nil if the sign was
// refused.
func (l *Lighthouse) alive(id string, bytes int) *replica {
	if bytes > MaxMemberBytes {
		l.refuse(id[:min(len(id), MaxMemberBytes)], RuleTooLarge)
		return nil
	}
	i, known := l.find(id)
	if !known {
		if len(l.replicas) >= MaxReplicas && !l.forget() {
			l.out = append(l.out, &Refuse{ReplicaID: id, Reason: l.full})
			return nil
		}
		i, _ = l.find(id)
		_, inLast := slices.BinarySearchFunc(l.last.Participants, id, func(m Member, id string) int { return cmp.Compare(m.ReplicaID, id) })
		l.replicas = slices.Insert(l.replicas, i, &replica{id: id, inLast: inLast})
	}
	l.replicas[i].heartbeat = l.now
	return l.replicas[i]
}

func (l *Lighthouse) refuse(id string, rule Rule) {
	why, _ := l.judge()
	why.Rule = rule
	l.out = append(l.out, &Refuse{ReplicaID: id, Reason: why})
}

// forget makes room for a replica. It reports whether a replica could be
// forgotten. A caller that invents ids costs no more than a look at the time.
func (l *Lighthouse) forget() bool {
	if l.now < l.fullUntil {
		return false
	}
	oldest, first := -1, l.now+l.cfg.HeartbeatTimeout
	for i, r := range l.replicas {
		first = min(first, r.heartbeat+l.cfg.HeartbeatTimeout)
		if !l.healthy(r) && r.waiting == 0 && (oldest < 0 || r.heartbeat < l.replicas[oldest].heartbeat) {
			oldest = i
		}
	}
	if oldest < 0 {
		l.full, _ = l.judge()
		l.full.Rule, l.fullUntil = RuleTooManyReplicas, first
		return false
	}
	l.replicas = slices.Delete(l.replicas, oldest, oldest+1)
	return true
}

// cancel takes back one call for a replica, and with the last of them its
// request.
func (l *Lighthouse) cancel(r *replica) {
	r.waiting = max(r.waiting-1, 0)
	if r.waiting == 0 && !l.cfg.Compat {
		r.asking, r.member = false, Member{}
	}
}

// decide issues the next quorum, or reports why it cannot.
func (l *Lighthouse) decide() {
	why, candidates := l.judge()
	switch {
	case why.quorum():
		l.issue(why, candidates)
	case why != l.held:
		l.held = why
		l.out = append(l.out, &Hold{why})
	}
}

// judge returns whether a quorum can be issued now, why, and with how many
// replicas.
func (l *Lighthouse) judge() (why Reason, candidates int) {
	why = Reason{MinReplicas: l.cfg.MinReplicas}
	back := 0 // ready ones of the last quorum
	var first policy.Time
	for _, r := range l.replicas {
		if r.asking {
			why.Asking++
		}
		if !l.healthy(r) {
			continue
		}
		why.Healthy++
		if !r.asking {
			continue
		}
		if why.Ready == 0 || r.joined < first {
			first = r.joined
		}
		why.Ready++
		why.ShrinkOnly = why.ShrinkOnly || r.member.ShrinkOnly
		if r.inLast {
			back++
		}
	}
	candidates = why.Ready
	if l.issued && why.ShrinkOnly {
		candidates = back
	}
	switch {
	case l.issued && back == len(l.last.Participants):
		why.Rule = RuleFastQuorum
	case why.Ready < l.cfg.MinReplicas:
		why.Rule = RuleMinReplicas
	case why.Ready <= why.Healthy/2:
		why.Rule = RuleMajority
	case why.Ready < why.Healthy && l.now-first < l.cfg.JoinTimeout:
		why.Rule, why.Until = RuleJoinTimeout, first+l.cfg.JoinTimeout
	default:
		why.Rule = RuleValidQuorum
	}
	if why.quorum() && candidates == 0 && !l.cfg.Compat {
		why.Rule = RuleEmptyQuorum
	}
	return why, candidates
}

// issue ends the wait of replicas that can be in the next quorum. Callers of
// other replicas ask again.
func (l *Lighthouse) issue(why Reason, candidates int) {
	next := Quorum{ID: l.last.ID, Participants: make([]Member, 0, candidates)}
	failed := false
	for _, r := range l.replicas {
		in := r.asking && l.healthy(r) && (r.inLast || !l.issued || !why.ShrinkOnly)
		if in {
			next.Participants = append(next.Participants, r.member)
			failed = failed || r.member.CommitFailures > 0
			r.waiting = 0
		}
		if r.asking = r.waiting > 0; r.asking {
			r.joined = l.now
		} else {
			r.member = Member{}
		}
	}
	same := slices.EqualFunc(next.Participants, l.last.Participants, func(a, b Member) bool { return a.ReplicaID == b.ReplicaID })
	if !l.issued || !same || failed {
		next.ID++
	}
	l.last, l.issued, l.held = next, true, Reason{}
	l.markLast()
	l.out = append(l.out, &Issue{next, why})
}

// markLast notes the members of the last quorum. Both lists are ordered by id,
// and some participants may have been forgotten.
func (l *Lighthouse) markLast() {
	i, p := 0, l.last.Participants
	for _, r := range l.replicas {
		for i < len(p) && p[i].ReplicaID < r.id {
			i++
		}
		r.inLast = i < len(p) && p[i].ReplicaID == r.id
	}
}
