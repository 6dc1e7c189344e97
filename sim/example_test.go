package sim_test

import (
	"fmt"
	"log"

	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/sim"
)

// A scenario of the library under the policy that waits for everybody. The simulation
// is exact: every machine comes to the same microsecond.
func ExampleRun() {
	s, err := scenarios.Load("persistent_straggler")
	if err != nil {
		log.Fatal(err)
	}
	resolved, err := s.Resolve(scenarios.Baseline)
	if err != nil {
		log.Fatal(err)
	}
	sum, err := sim.Run(resolved, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sum.OuterSteps, "outer steps in", thousands(sum.WallClock), "µs")
	// Output: 5 outer steps in 92,050 µs
}

// A recorded run, here a simulated one, under a policy that it was not made under.
func ExampleRecording_Replay() {
	s, err := scenarios.Load("persistent_straggler")
	if err != nil {
		log.Fatal(err)
	}
	baseline, err := s.Resolve(scenarios.Baseline)
	if err != nil {
		log.Fatal(err)
	}
	var events []record.Event
	if _, err := sim.Run(baseline, func(e record.Event) { events = append(events, e) }); err != nil {
		log.Fatal(err)
	}

	straggler, err := s.Resolve(scenarios.Straggler)
	if err != nil {
		log.Fatal(err)
	}
	recording, err := sim.NewRecording(straggler, events)
	if err != nil {
		log.Fatal(err)
	}
	sum, err := recording.Replay(nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sum.OuterSteps, "outer steps in", thousands(sum.WallClock), "µs")
	// Output: 5 outer steps in 20,053 µs
}

func thousands(t policy.Time) string { return fmt.Sprintf("%d,%03d", t/1000, t%1000) }
