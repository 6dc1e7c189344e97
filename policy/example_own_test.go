package policy_test

import (
	"fmt"
	"log"

	"testbed/policy"
)

// Majority closes a round as soon as more than half of the members have arrived, and
// Extra more.
type Majority struct {
	Extra int `yaml:"extra" json:"extra"`
}

// Validate refuses a negative parameter.
func (p *Majority) Validate() error {
	if p.Extra < 0 {
		return policy.BadParameter("extra", "is %d: it must not be negative", p.Extra)
	}
	return nil
}

// Deadline is none: time does not matter to a majority.
func (*Majority) Deadline(*policy.Round) *policy.Deadline { return nil }

// Enough is more than half of the members, and Extra more.
func (p *Majority) Enough(r *policy.Round) (needed int, enough bool) {
	needed = min(r.Members, r.Members/2+1+p.Extra)
	return needed, r.Arrived >= needed
}

// Late evicts nobody.
func (*Majority) Late(*policy.Round, policy.Member) (limit int, evict bool) { return 0, false }

// Closed is of no use here: the policy learns nothing.
func (*Majority) Closed(*policy.Round) {}

// A policy of your own is a type with five methods. Programs register it in an init
// function, and then know it by its name wherever policies are named.
func Example_ownPolicy() {
	policy.Register("majority", "close when more than half of the members have arrived", &Majority{})

	own, _ := policy.Named("majority")
	machine, err := policy.New(policy.Config{HeartbeatPeriod: 10_000, HeartbeatMissThreshold: 3, TargetOuterSteps: 1, Policy: own})
	if err != nil {
		log.Fatal(err)
	}
	for id := range policy.ID(4) {
		machine.Step(0, policy.Join{ID: id, HasState: true})
	}
	machine.Step(1000, policy.Arrival{ID: 2, Round: 1})
	machine.Step(1100, policy.Arrival{ID: 0, Round: 1})
	machine.Step(1200, policy.Arrival{ID: 3, Round: 1}) // enough, once the instant is over
	for _, a := range machine.Step(1200, policy.Timer{}) {
		if a, ok := a.(*policy.Close); ok {
			fmt.Printf("round %d closes with workers %v and without %v: %s, %d of %d needed\n", a.Round, a.Participants, a.Late, a.Rule, a.Needed, a.Members)
		}
	}
	// Output: round 1 closes with workers [0 2 3] and without [1]: quorum, 3 of 4 needed
}
