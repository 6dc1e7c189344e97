package policy

// Action is something that the driver of a Machine has to do or to record.
// Every action carries its reason: the numbers that it was decided on. Actions
// are pointers to the types below. The Machine does not touch an action that it
// has returned, so the driver may keep it, but not change it.
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
	// StartRound tells these members to begin the inner steps of the round. Those
	// that took part in the round before apply its outcome first.
	StartRound struct {
		Round int
		IDs   []ID
		Reason
	}
	// Arrived records an arrival. Offset counts from the first arrival of the
	// round; Late is set if the round had closed or was another one.
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
	// Close ends the collection of arrivals. Under RuleQuorum, Overslept is the
	// delay of the Timer that closed the round: the time since enough had arrived.
	// Held is the time for which the round has waited for joiners, with
	// JoinBlocking.
	//
	// Lineage numbers the line of outer states that the round belongs to. It is 0,
	// except under policies that cannot prevent a run from splitting.
	Close struct {
		Round        int
		Lineage      int
		Participants []ID
		Late         []ID
		Overslept    Time
		Held         Time
		Reason
	}
	// Reduce tells the participants to all-reduce in this ring order: by ID,
	// unless a reduction between two neighbours has failed.
	Reduce struct {
		Round        int
		Epoch        Epoch
		Lineage      int
		Participants []ID
		Zero         []ID // of them, those that contribute zeros
		// Repeated are those of Zero for which a donor's contribution counts once more.
		Repeated []Repeat
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
	// Diverge records that two groups have taken the same outer step: these
	// workers, and before them others, in another lineage.
	Diverge struct {
		Round        int
		Epoch        Epoch
		Lineage      int
		Other        int
		Participants []ID
		Reason
	}
	// Undo records that the last Steps outer steps of a lineage are lost: the last
	// worker that held them goes on in another lineage.
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
	// Evict removes a member. It may come back; see RejoinMode. With Rejoin its
	// present process may join again, if it lives.
	Evict struct {
		ID     ID
		Round  int
		Rejoin bool
		Reason
	}
	// Fetch tells a member to get the outer state after OuterSteps outer steps, or
	// a newer one, from a peer, with the help of others that hold it too. The
	// member drops the round that it was working on. With Agreed the peers are in
	// other regions, and the member goes on from the last state that all regions
	// agreed on. With Whole the member's own state is of no use for that.
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
	// Fetched records that a member holds a fetched state; with Agreed, the last
	// state that all regions agreed on.
	Fetched struct {
		ID     ID
		Round  int
		Agreed bool
		Reason
	}
	// WakeAt asks for a Timer event at this time. It replaces the WakeAt before
	// it.
	WakeAt struct {
		At Time
		Reason
	}
	// Finish ends the run. If the policy could not answer, Cause explains why in
	// words.
	Finish struct {
		Complete bool
		Cause    string
		Reason
	}
)

// Repeat says that a participant has taken its donor's values with the state.
// The donor's contribution counts for it, as if it contributed the same.
type Repeat struct {
	ID    ID `json:"worker"` // The participant.
	Donor ID `json:"donor"`  // The participant whose contribution counts once more.
}

// Repeats returns how many more times than once a participant's contribution
// counts.
func Repeats(repeated []Repeat, id ID) (n int) {
	for _, r := range repeated {
		if r.Donor == id {
			n++
		}
	}
	return n
}

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
	RuleInitSync     Rule = "init_sync"     // at step 0 all take one worker's state
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
	RuleTimer        Rule = "timer"         // the next event is due
	RuleMembership   Rule = "membership"    // a stack of somebody else has left it out; no policy does
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
	// reductions of a round that involved the worker. Limit is the number
	// tolerated, or the number at which tolerance ends. Under RuleRejoin, Misses
	// counts the outer steps since the eviction, and Limit those that the worker
	// had to wait for.
	Misses int `json:"misses,omitempty"`
	Limit  int `json:"limit,omitempty"`
	// Silent is the time since the last heartbeat.
	Silent Time `json:"silent_us,omitempty"`
	// Stalled is the time since any participant last received something.
	Stalled Time `json:"stalled_us,omitempty"`
	// Lost is the worker whose loss, failure or request led to the action. Peer is
	// the peer at which it failed.
	Lost *ID `json:"worker,omitempty"`
	Peer *ID `json:"peer,omitempty"`
	// Deadline is the round's deadline with the numbers it was computed from.
	Deadline *Deadline `json:"deadline,omitempty"`
	// QuorumID is the number of the lighthouse's quorum, under the policy torchft.
	QuorumID int64 `json:"quorum_id,omitempty"`
}

// Why returns the reason itself, for pointers to the actions that embed it.
func (r *Reason) Why() *Reason { return r }

// Deadline is the time at which a round may close without late members, with
// the numbers behind it. The round closes at At + Credit at the earliest.
type Deadline struct {
	*Spread // only of the straggler policy
	// Numbers are the named numbers of any other policy. Times are in
	// microseconds.
	Numbers map[string]float64 `json:"numbers,omitempty"`
	// Offset is the time from the first arrival to At. If the deadline is set
	// before the first arrival, it counts from the beginning of the round.
	Offset Time `json:"offset_us"`
	At     Time `json:"at_us"`
	// Credit is the time that the deadline is put off because a member had to
	// fetch a missed outer step and began the round late.
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
