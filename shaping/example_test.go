package shaping_test

import (
	"fmt"
	"log"
	"time"

	"testbed/shaping"
)

// A plan is what a specification of links comes to, every property of every path
// resolved. Of two levels the closer one wins: here a pair over the default.
func ExampleNewPlan() {
	spec := shaping.Spec{
		Default: shaping.Properties{
			Access: shaping.Access{RateUp: new(shaping.Rate(100e6)), RateDown: new(shaping.Rate(1e9))},
			Path:   shaping.Path{OneWayDelay: new(shaping.Duration(5 * time.Millisecond))},
		},
		Nodes: map[string]shaping.Access{"w1": {AccessPreset: new(shaping.AccessPreset("starlink"))}},
		Pairs: []shaping.Pair{{From: "w0", To: "w1", Path: shaping.Path{Loss: new(shaping.Probability(0.01))}}},
	}
	plan, err := shaping.NewPlan(spec, []string{"coordinator", "w0", "w1"}, 0, 42)
	if err != nil {
		log.Fatal(err)
	}
	show := func(from, to string) {
		i, j := plan.Index(from), plan.Index(to)
		path := plan.Paths[i][j]
		fmt.Printf("%s to %s: %v, one-way delay %v, loss %v\n", from, to, plan.Rate(i, j), path.OneWayDelay, path.Loss)
	}
	show("coordinator", "w0")
	show("w0", "w1") // its delay is that of the path, and half of a round trip over w1's access link
	show("w1", "w0")
	// Output:
	// coordinator to w0: 100mbit, one-way delay 5ms, loss 0%
	// w0 to w1: 100mbit, one-way delay 28.5ms, loss 1%
	// w1 to w0: 18.17mbit, one-way delay 28.5ms, loss 0%
}

// Every problem of a specification is an error of its own, which names the field as a
// scenario file has it.
func ExampleNewPlan_errors() {
	spec := shaping.Spec{
		Nodes: map[string]shaping.Access{"w7": {RateUp: new(shaping.Rate(1e6))}},
		Pairs: []shaping.Pair{{From: "w0", To: "w0"}},
	}
	_, err := shaping.NewPlan(spec, []string{"w0", "w1"}, 0, 42)
	fmt.Println(err)
	// Output:
	// real.links.nodes.w7: there is no node "w7"; the nodes are w0, w1
	// real.links.pairs[0].to: "w0" is also the pair's "from"; a pair joins two different nodes
}

// A frame arrives after the one-way delay of its path, and after the time that sending it
// takes at each rate on its way.
func ExamplePlan_Sending() {
	rate, err := shaping.ParseRate("10mbit")
	if err != nil {
		log.Fatal(err)
	}
	spec := shaping.Spec{Default: shaping.Properties{Access: shaping.Access{RateUp: &rate, RateDown: &rate}}}
	plan, err := shaping.NewPlan(spec, []string{"w0", "w1"}, 20*time.Millisecond, 42)
	if err != nil {
		log.Fatal(err)
	}
	delay := time.Duration(plan.Paths[0][1].OneWayDelay)
	sending := plan.Sending(0, 1, shaping.FrameSize) // at the rate up of w0, then at the rate down of w1
	fmt.Printf("%v on the path + %v at the rates\n", delay, sending)
	// Output: 20ms on the path + 2.4224ms at the rates
}
