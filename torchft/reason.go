package torchft

import (
	"fmt"

	"testbed/policy"
)

// Rule names the rule behind a decision.
type Rule string

const (
	RuleFastQuorum  Rule = "fast_quorum"  // everyone of the last quorum asks
	RuleValidQuorum Rule = "valid_quorum" // enough ask, and no live replica is still awaited

	RuleMinReplicas Rule = "min_replicas" // fewer ask than a quorum needs
	RuleMajority    Rule = "majority"     // at most half of the live replicas ask
	RuleJoinTimeout Rule = "join_timeout" // some live replicas do not ask yet, and are awaited
	RuleEmptyQuorum Rule = "empty_quorum" // shrink_only, and no replica of the last quorum asks

	RuleTooManyReplicas Rule = "too_many_replicas" // MaxReplicas are alive already
	RuleTooLarge        Rule = "too_large"         // a member of more than MaxMemberBytes
)

var sayings = map[Rule]string{
	RuleFastQuorum:      "all replicas of the last quorum ask for a quorum",
	RuleValidQuorum:     "enough replicas ask for a quorum",
	RuleMinReplicas:     "too few replicas ask for a quorum",
	RuleMajority:        "no majority of the live replicas asks for a quorum",
	RuleJoinTimeout:     "the lighthouse waits for live replicas that do not ask yet",
	RuleEmptyQuorum:     "no replica of the last quorum asks for a quorum",
	RuleTooManyReplicas: "too many replicas are alive",
	RuleTooLarge:        "the member is too large",
}

// Reason is the rule and the numbers behind a decision of the lighthouse.
type Reason struct {
	Rule        Rule
	Healthy     int         // replicas with a heartbeat within the time-out
	Asking      int         // replicas that ask, healthy or not
	Ready       int         // replicas that ask and are healthy
	MinReplicas int         // number of them that a quorum needs
	ShrinkOnly  bool        // a ready replica demands shrink_only
	Until       policy.Time // with RuleJoinTimeout: end of the wait for the others
}

// quorum reports whether the rule issues a quorum.
func (r *Reason) quorum() bool { return r.Rule == RuleFastQuorum || r.Rule == RuleValidQuorum }

// String has the counts in the form of torchft's dashboard.
func (r Reason) String() string {
	return fmt.Sprintf("%s (%s, min_replicas=%d) [%d/%d participants healthy][%d healthy heartbeating][shrink_only=%t]",
		sayings[r.Rule], r.Rule, r.MinReplicas, r.Ready, r.Asking, r.Healthy, r.ShrinkOnly)
}
