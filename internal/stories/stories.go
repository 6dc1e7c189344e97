package stories

import (
	"fmt"

	"testbed/scenarios"
)

// Story is a failure that torchft's assumptions page warns of. Its scenario is in
// the library, and is played under the policy torchft.
type Story struct {
	Number int // T1 to T17
	// Fix are the parameters of the policy with which it does not happen; empty
	// where torchft gets over it.
	Fix string
	// Rates says that it hangs on the rates of links.
	Rates bool
	// Told is what becomes of it on the planned links, and Mended with Fix.
	Told, Mended string
}

// Scenario is the name of the story's scenario.
func (s Story) Scenario() string { return fmt.Sprintf("torchft_t%02d", s.Number) }

// Policy is that of the story, and that with which it does not happen.
func (s Story) Policy(mended bool) string {
	if mended {
		return "torchft:" + s.Fix
	}
	return "torchft"
}

// Versions are the ways in which the story is played: as it is, and mended.
func (s Story) Versions() []bool {
	if s.Fix == "" {
		return []bool{false}
	}
	return []bool{false, true}
}

// Want is what is told of a version.
func (s Story) Want(mended bool) string {
	if mended {
		return s.Mended
	}
	return s.Told
}

// Groups is the scenario of replica groups of two ranks, and GroupsTold what becomes
// of it: one rank dies, another votes against a step, and their groups share that.
const (
	Groups     = "torchft_groups"
	GroupsTold = "quorum 1 of 0 1 2 3 4 5 takes 1, w5 dies (connection), w4 dies (lost), w4 heals, w5 heals, quorum 2 of 0 1 2 3 4 5 takes 2, quorum 2 of 0 1 2 3 4 5 takes 3 without 2 3, w2 heals, w3 heals, quorum 3 of 0 1 2 3 4 5 takes 4-5, complete"
)

// All are the stories that can be told.
var All = []Story{
	{1, "quorum_retries=1", false,
		"quorum 1 of 0 1 2 takes 1, the lighthouse dies, w1 dies (quorum_timeout), w0 dies (quorum_timeout), w2 dies (quorum_timeout), not complete",
		"quorum 1 of 0 1 2 takes 1, the lighthouse dies, quorum 1 of 0 1 2 takes 2-5, complete"},
	{2, "heartbeat_timeout=10000", false,
		"quorum 1 of 0 1 2 3 takes 1, quorum 2 of 0 1 takes 2, w2 heals, w3 heals, quorum 3 of 0 1 2 3 takes 3-6, complete",
		"quorum 1 of 0 1 2 3 takes 1-6, complete"},
	{3, "min_replicas=3", false,
		"quorum 1 of 0 1 takes 1, quorum 1 of 2 3 takes 1, 2 3 take 1 a second time, quorum 1 of 0 1 takes 2-4, quorum 1 of 2 3 takes 2-3, ends: split_brain",
		"w1 dies (quorum_timeout), w0 dies (quorum_timeout), w2 dies (quorum_timeout), w3 dies (quorum_timeout), not complete"},
	{4, "", false,
		"w2 heals, quorum 1 of 0 1 2 takes 1, w3 heals, quorum 2 of 0 1 2 3 takes 2-4, complete", ""},
	{5, "join_timeout=30000", false,
		"w3 heals, w4 heals, quorum 1 of 2 3 4 takes 1, 2 3 4 take 1 a second time, quorum 1 of 2 3 4 takes 2-4, w4 heals, quorum 2 of 0 1 4 takes 50, w2 heals, w3 heals, 4 steps are lost, quorum 3 of 2 3 4 takes 51, ends: split_brain",
		"w2 heals, w3 heals, w4 heals, quorum 1 of 0 1 2 3 4 takes 50-51, complete"},
	{6, "join_timeout=15000", true,
		"quorum 1 of 0 1 2 takes 1-4, w3 heals, quorum 3 of 0 1 2 takes 5-13, w3 heals, quorum 5 of 0 1 2 takes 14-22, complete",
		"quorum 1 of 0 1 2 takes 1-4, w3 heals, quorum 3 of 0 1 2 3 takes 5-22, complete"},
	{7, "min_replicas=5", false,
		"quorum 1 of 0 1 2 3 4 5 6 7 takes 1, quorum 2 of 0 1 2 takes 2-5, w3 heals, w4 heals, w5 heals, w6 heals, w7 heals, quorum 3 of 0 1 2 3 4 5 6 7 takes 6-12, complete",
		"quorum 1 of 0 1 2 3 4 5 6 7 takes 1, w3 heals, w4 heals, quorum 2 of 0 1 2 3 4 takes 2, w5 heals, w6 heals, w7 heals, quorum 3 of 0 1 2 3 4 5 6 7 takes 3-12, complete"},
	{8, "quorum_timeout=120000", false,
		"quorum 1 of 0 1 2 3 takes 1, w1 dies (quorum_timeout), w0 dies (quorum_timeout), w2 dies (quorum_timeout), w3 dies (quorum_timeout), not complete",
		"quorum 1 of 0 1 2 3 takes 1-3, complete"},
	{9, "timeout=30000", true,
		"quorums 1-6 of 0 1 2 3 fail 1 6 times (timeout), not complete",
		"quorum 1 of 0 1 2 3 takes 1-3, complete"},
	{10, "timeout=10000", true,
		"quorum 1 of 0 1 2 3 takes 1, quorum 1 of 0 1 2 3 fails 2 (timeout), quorum 2 of 0 1 2 takes 2-3, w3 heals, quorum 3 of 0 1 2 3 takes 4-6, complete",
		"quorum 1 of 0 1 2 3 takes 1, quorum 1 of 0 1 2 3 fails 2 (timeout), quorum 2 of 0 1 2 takes 2-5, w3 heals, quorum 4 of 0 1 2 3 takes 6, complete"},
	{11, "quorum_timeout=30000", false,
		"quorum 1 of 0 1 2 3 takes 1-2, w0 dies (quorum_timeout), w1 dies (quorum_timeout), w2 dies (quorum_timeout), w3 dies (quorum_timeout), not complete",
		"quorum 1 of 0 1 2 3 takes 1-2, w2 heals, quorum 2 of 0 1 2 takes 3, w3 heals, quorum 3 of 0 1 2 3 takes 4-8, complete"},
	{12, "quorum_timeout=60000", false,
		"quorum 1 of 0 1 2 3 takes 1, w4 dies (quorum_timeout), quorum 1 of 0 1 2 3 fails 2 (timeout), quorum 2 of 0 1 2 3 takes 2-4, complete",
		"quorum 1 of 0 1 2 3 takes 1, quorum 1 of 0 1 2 3 fails 2 (timeout), w4 heals, quorum 2 of 0 1 2 3 4 takes 2-4, complete"},
	{13, "shrink_until=0", false,
		"quorum 1 of 0 1 2 takes 1-6, w3 heals, quorum 2 of 0 1 2 3 takes 7-10, complete",
		"quorum 1 of 0 1 2 takes 1, w3 heals, quorum 2 of 0 1 2 3 takes 2-10, complete"},
	{14, "", false,
		"quorum 1 of 0 1 2 3 4 5 6 7 takes 1, quorum 1 of 0 1 2 3 4 5 6 7 fails 2 (reduce_failed), quorum 2 of 0 1 2 3 4 5 6 7 takes 2-6, complete", ""},
	{15, "", false,
		"quorum 1 of 0 1 2 3 takes 1, quorum 1 of 0 1 2 3 takes 2 without 3, w3 heals, quorum 2 of 0 1 2 3 takes 3-6, complete", ""},
	{16, "timeout=20000", false,
		"quorum 1 of 0 1 2 3 takes 1, quorums 1-2 of 0 1 2 3 fail 2 2 times (timeout), quorum 3 of 0 1 2 3 takes 2-5, complete",
		"quorum 1 of 0 1 2 3 takes 1-5, complete"},
	{17, "heartbeat_timeout=3000", false,
		"quorum 1 of 0 1 2 3 takes 1-2, w2 heals, quorum 2 of 0 1 2 3 takes 3-8, complete",
		"quorum 1 of 0 1 2 3 takes 1-2, w2 heals, quorum 2 of 0 1 2 3 takes 3-8, complete"},
}

// Told reports whether a scenario of the library is there for torchft.
func Told(s *scenarios.Scenario) bool {
	_, told := s.Policy.Parameters["torchft"]
	return told
}

// Policies are those under which a scenario of the library is looked at: the one
// that it is there for, or the two that are compared if nothing else is said.
func Policies(s *scenarios.Scenario) []string {
	if Told(s) {
		return []string{"torchft"}
	}
	return scenarios.PolicyNames
}
