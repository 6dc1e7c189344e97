package policy

// Action is something the driver of a Machine has to do or to record. Every
// action carries the reason for it: the numbers it was decided on. The actions
// are pointers to the types below; the Machine does not touch one again that it
// has given, and so it may be kept, but not changed.
type Action interface {
	// Why returns the reason of the action.
	Why() *Reason
}

type (
	// Admit makes a worker a member.
	Admit struct {
		ID          ID
		Incarnation int
		Round       int
		Reason
	}
	// Reject refuses a worker that asked to join.
	Reject struct {
		ID ID
		Reason
	}
	// StartRound has these members begin the inner steps of the round. Those
	// that took part in the round before apply its outcome first.
	StartRound struct {
		Round int
		IDs   []ID
		Reason
	}
	// Arrived records an arrival. Offset counts from the first arrival of the
	// round; Late says that the round had closed or was another one.
	Arrived struct {
		ID     ID
		Round  int
		Offset Time
		Late   bool
		Reason
	}
	// ArmDeadline records the deadline of the running round.
	ArmDeadline struct {
		Round int
		At    Time
		Reason
	}
	// Close ends the collection of arrivals. Of one by RuleQuorum, Overslept is by
	// how much the Timer came late for it: the time since enough had arrived. Held
	// is for how long the round has waited for joiners, with JoinBlocking.
	//
	// Lineage numbers the line of outer states that this is about. There is one, 0,
	// but under policies that cannot keep a run from splitting.
	Close struct {
		Round        int
		Lineage      int
		Participants []ID
		Late         []ID
		Overslept    Time
		Held         Time
		Reason
	}
	// Reduce has the participants all-reduce in this ring order: by ID, unless
	// neighbours have failed at each other.
	Reduce struct {
		Round        int
		Epoch        Epoch
		Lineage      int
		Participants []ID
		Zero         []ID // of them, those that contribute zeros
		Reason
	}
	// Abort tells the participants to drop a reduction; its inputs are kept. With
	// Confirm they answer with a ReduceFailed when they have dropped it.
	Abort struct {
		Round        int
		Epoch        Epoch
		Lineage      int
		Confirm      bool
		Participants []ID
		Reason
	}
	// OuterStep records that the outcome of the round is final: every
	// participant holds it.
	OuterStep struct {
		Round        int
		Epoch        Epoch
		Lineage      int
		Participants []ID
		Reason
	}
	// Diverge records that an outer step has been taken twice: by these, and in
	// another lineage before.
	Diverge struct {
		Round        int
		Epoch        Epoch
		Lineage      int
		Other        int
		Participants []ID
		Reason
	}
	// Undo records that nobody holds the last Steps outer steps of a lineage any
	// more, since the last that did goes on in another one.
	Undo struct {
		ID      ID
		Round   int // the last of them
		Steps   int
		Lineage int
		Other   int
		Reason
	}
	// HeartbeatMiss records that a member has been silent.
	HeartbeatMiss struct {
		ID    ID
		Round int
		Reason
	}
	// Sideline leaves a member out of this round.
	Sideline struct {
		ID    ID
		Round int
		Reason
	}
	// Rejoin records that a sidelined member arrived on time again.
	Rejoin struct {
		ID    ID
		Round int
		Reason
	}
	// Evict removes a member. It may come back; see RejoinMode. With Rejoin the
	// process that it is may join anew, if it lives.
	Evict struct {
		ID     ID
		Round  int
		Rejoin bool
		Reason
	}
	// Fetch has a member get the outer state after OuterSteps outer steps, or
	// a newer one, from a peer, and with the help of others that hold it too.
	// It drops whatever round it was working on. Agreed says that they are of other
	// regions, and that it is to go on from what all regions last agreed on. Whole
	// says that what it holds is of no use for that.
	Fetch struct {
		ID         ID
		From       ID
		Helpers    []ID
		Round      int
		OuterSteps int
		Agreed     bool
		Whole      bool
		Reason
	}
	// Fetched records that a member holds a fetched state, with Agreed the last one
	// that all regions agreed on.
	Fetched struct {
		ID     ID
		Round  int
		Agreed bool
		Reason
	}
	// WakeAt asks for a Timer event at this time. It replaces the one asked
	// for before.
	WakeAt struct {
		At Time
		Reason
	}
	// Finish ends the run. Cause says in words why the policy could not answer, if
	// that is the reason.
	Finish struct {
		Complete bool
		Cause    string
		Reason
	}
)

// Rule names the rule that led to an action.
type Rule string

// The rules. An eviction's rule is the cause of the eviction.
const (
	RuleJoin         Rule = "join"          // a worker asked to join
	RuleRejoinDenied Rule = "was_member"    // it is, or was once, a member
	RuleRejoin       Rule = "rejoin"        // its rounds without it are over
	RuleReplaced     Rule = "replaced"      // a newer incarnation of it has asked to join
	RuleState        Rule = "state_fetched" // it holds the current state
	RuleResync       Rule = "resync"        // it missed an outer step
	RuleStaleFetch   Rule = "stale_fetch"   // what it fetched is out of date by now
	RuleFetchFailed  Rule = "fetch_failed"  // its donor did not deliver
	RuleNextRound    Rule = "next_round"    // the round before is done
	RuleAllArrived   Rule = "all_arrived"   // nobody is missing
	RuleDeadline     Rule = "deadline"      // the deadline came, with a quorum
	RuleQuorum       Rule = "quorum"        // enough had arrived, after the deadline or without one
	RuleLate         Rule = "late"          // not there when the round closed
	RuleOnTime       Rule = "on_time"       // there before the round closed
	RuleHeartbeat    Rule = "heartbeat"     // silent for too long
	RuleStraggler    Rule = "straggler"     // missed too many rounds in a row
	RuleGaveUp       Rule = "gave_up"       // said that it gives up
	RuleConnection   Rule = "connection"    // its end of the control connection is gone
	RuleProgress     Rule = "progress"      // a reduction stalled
	RuleLeave        Rule = "leave"         // left of its own accord
	RuleLost         Rule = "lost"          // a participant is gone
	RuleReduceFailed Rule = "reduce_failed" // a participant gave up
	RuleReduced      Rule = "reduced"       // every participant holds the outcome
	RuleTarget       Rule = "target"        // all outer steps are done
	RuleStateLost    Rule = "state_lost"    // nobody holds the outer state any more
	RuleRestart      Rule = "restart"       // the run goes on from a checkpoint
	RuleTimer        Rule = "timer"         // the next thing that is due
	RulePolicyFailed Rule = "policy_failed" // the policy, outside of this process, did not answer

	RuleTimeout       Rule = "timeout"        // an outer step took too long
	RuleQuorumTimeout Rule = "quorum_timeout" // waited too long for a quorum
	RuleSplitBrain    Rule = "split_brain"    // two quorums would take the same outer step
)

// UnmarshalText accepts the name that RuleGaveUp had in older records.
func (r *Rule) UnmarshalText(text []byte) error {
	*r = Rule(text)
	if *r == "rattle" {
		*r = RuleGaveUp
	}
	return nil
}

// Reason is the rule behind an action and the numbers it was decided on.
// Numbers that the rule does not look at are zero.
type Reason struct {
	Rule Rule `json:"rule"`
	// Members, Arrived and Needed count workers; Needed is the quorum.
	Members int `json:"members,omitempty"`
	Arrived int `json:"arrived,omitempty"`
	Needed  int `json:"needed,omitempty"`
	// Misses counts consecutive missed rounds or heartbeats, or the failed
	// reductions of a round that a worker had a part in. Limit is how many are
	// tolerated, or the one that is not. Of a RuleRejoin, they count the outer
	// steps since the eviction, and those that it had to wait for.
	Misses int `json:"misses,omitempty"`
	Limit  int `json:"limit,omitempty"`
	// Silent is the time since the last heartbeat.
	Silent Time `json:"silent_us,omitempty"`
	// Stalled is the time since any participant last received something.
	Stalled Time `json:"stalled_us,omitempty"`
	// Lost is the worker whose loss, failure or request led to the action, and
	// Peer the one at which it failed.
	Lost *ID `json:"worker,omitempty"`
	Peer *ID `json:"peer,omitempty"`
	// Deadline is how the deadline of the round was computed.
	Deadline *Deadline `json:"deadline,omitempty"`
	// QuorumID is that of the lighthouse's quorum, under the policy torchft.
	QuorumID int64 `json:"quorum_id,omitempty"`
}

// Why returns the reason itself, for pointers to the actions that embed it.
func (r *Reason) Why() *Reason { return r }

// Deadline is when a round may close without those that are late, with the
// numbers behind it. The round closes at At + Credit at the earliest.
type Deadline struct {
	*Spread // of a policy that goes by it
	// Numbers are those of any other policy, by their names; times are in
	// microseconds.
	Numbers map[string]float64 `json:"numbers,omitempty"`
	// Offset is the time to At from the first arrival; where the deadline is set
	// before anyone has arrived, from the beginning of the round.
	Offset Time `json:"offset_us"`
	At     Time `json:"at_us"`
	// Credit is the time by which a member that had to fetch an outer step it
	// had missed began the round late.
	Credit Time `json:"credit_us,omitempty"`
}

// Spread is what the straggler policy computes its deadline from:
// Offset = max(MinSlack, Median + K·MAD).
type Spread struct {
	Median   Time    `json:"median_us"`
	MAD      Time    `json:"mad_us"`
	K        float64 `json:"k"`
	MinSlack Time    `json:"min_slack_us"`
	Samples  int     `json:"samples"`
}
