package experiment

import (
	"fmt"
	"slices"
	"strings"

	"testbed/policy"
	"testbed/policy/torchft"
	"testbed/record"
	"testbed/report/words"
	"testbed/scenarios"
	"testbed/sim"
)

// JoinTimeout compares the join timeout of torchft's lighthouse with a round
// without faults.
type JoinTimeout struct {
	JoinTimeout policy.Time `json:"join_timeout_us"`
	Round       policy.Time `json:"round_us"` // from one outer step to the next
	// Below reports that the join timeout is shorter. Then the timeout of a group
	// that was left out, and asks first, is over when the others ask. A quorum leaves
	// out the last of them, and so on: groups can take turns at being left out.
	Below bool `json:"below_a_round"`
}

// String says what the comparison means.
func (j *JoinTimeout) String() string {
	text := fmt.Sprintf("policy torchft: join_timeout (%s) is ", words.Micros(j.JoinTimeout))
	round := fmt.Sprintf("shorter than a round (%s, simulated without faults)", words.Micros(j.Round))
	if !j.Below {
		return text + "not " + round
	}
	return text + round + ": after one late arrival, each round can leave out another group (docs/torchft-stories.md, T18)"
}

// roundsWithoutFaults are the rounds that CompareJoinTimeout simulates. The first
// one sets up connections.
const roundsWithoutFaults = 3

// CompareJoinTimeout compares the scenario's join timeout, or the one in the name of
// the policy torchft, with its round. It returns nil for another policy, and if the
// policy cannot play the scenario. The round is the
// longest of a simulation on the planned links in which all workers are there
// from the start and nothing happens to them.
func CompareJoinTimeout(s *scenarios.Scenario, policyName string) *JoinTimeout {
	if base, _, _ := strings.Cut(policyName, ":"); base != "torchft" {
		return nil
	}
	r, err := s.Resolve(policyName)
	if err != nil {
		return nil
	}
	p, ok := r.Policy.Policy.(*torchft.Policy)
	if !ok {
		return nil
	}
	plain := *s
	plain.Injects, plain.Real.Injects = nil, nil
	plain.TargetOuterSteps, plain.Horizon = roundsWithoutFaults, endless
	plain.Workers = slices.Clone(s.Workers)
	for i := range plain.Workers {
		w := &plain.Workers[i]
		w.JoinAt, w.InitialStep, w.Lighthouse = 0, 0, 0
	}
	round, last := policy.Time(0), policy.Time(0)
	_, err = OnLinks(&plain, fmt.Sprintf("torchft:min_replicas=1:join_timeout=%[1]d:quorum_timeout=%[1]d:timeout=%[1]d:init_sync=false", endless), sim.Costs{}, func(e record.Event) {
		if e.Type == record.OuterStep {
			if e.Round > 1 {
				round = max(round, e.T-last)
			}
			last = e.T
		}
	})
	if err != nil || round == 0 {
		return nil
	}
	j := &JoinTimeout{JoinTimeout: p.Resolved(r.Policy).JoinTimeout, Round: round}
	j.Below = j.JoinTimeout < j.Round
	return j
}

// endless is a time that no simulation of a few rounds reaches.
const endless policy.Time = 1e14
