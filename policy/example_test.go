package policy_test

import (
	"fmt"
	"log"

	"testbed/policy"
)

// The machine decides on events. Its driver tells it every event with a time, and carries
// out the actions that it returns. A driver is a simulator, a coordinator on a network
// or, as here, a loop over a table.
func ExampleMachine() {
	straggler := policy.DefaultStraggler() // a deadline at median + 3 MAD of earlier arrivals
	machine, err := policy.New(policy.Config{HeartbeatPeriod: 10_000, HeartbeatMissThreshold: 3, TargetOuterSteps: 2, Policy: straggler})
	if err != nil {
		log.Fatal(err)
	}
	for _, happens := range []struct {
		at policy.Time // in microseconds
		policy.Event
	}{
		{0, policy.Join{ID: 0, HasState: true}},
		{0, policy.Join{ID: 1, HasState: true}},
		{0, policy.Join{ID: 2, HasState: true}},
		{0, policy.Join{ID: 3, HasState: true}},
		// Worker 3 is slow. In the first round everybody waits for it.
		{1000, policy.Arrival{ID: 0, Round: 1}},
		{1010, policy.Arrival{ID: 1, Round: 1}},
		{1020, policy.Arrival{ID: 2, Round: 1}},
		{9000, policy.Arrival{ID: 3, Round: 1}},
		{9500, policy.Reduced{ID: 0, Round: 1, Epoch: 1}},
		{9500, policy.Reduced{ID: 1, Round: 1, Epoch: 1}},
		{9500, policy.Reduced{ID: 2, Round: 1, Epoch: 1}},
		{9500, policy.Reduced{ID: 3, Round: 1, Epoch: 1}},
		// In the second round there is a deadline.
		{10_500, policy.Arrival{ID: 0, Round: 2}},
		{10_510, policy.Arrival{ID: 1, Round: 2}},
		{10_520, policy.Arrival{ID: 2, Round: 2}},
		{10_545, policy.Timer{}}, // as the last WakeAt has asked for
	} {
		for _, action := range machine.Step(happens.at, happens.Event) {
			switch a := action.(type) {
			case *policy.ArmDeadline:
				d := a.Deadline
				fmt.Printf("at %d: deadline at %d: the first arrival + %d + %g × %d\n", happens.at, a.At, d.Median, d.K, d.MAD)
			case *policy.Close:
				fmt.Printf("at %d: round %d closes with %v: %s\n", happens.at, a.Round, a.Participants, a.Rule)
			case *policy.Sideline:
				fmt.Printf("at %d: worker %d is left out: miss %d of %d that are tolerated\n", happens.at, a.ID, a.Misses, a.Limit)
			}
		}
	}
	// Output:
	// at 9000: round 1 closes with [0 1 2 3]: all_arrived
	// at 10500: deadline at 10545: the first arrival + 15 + 3 × 10
	// at 10545: round 2 closes with [0 1 2]: deadline
	// at 10545: worker 3 is left out: miss 1 of 2 that are tolerated
}
