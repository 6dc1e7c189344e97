package record_test

import (
	"encoding/json"
	"fmt"
	"log"
	"os"

	"testbed/record"
)

// A run leaves a directory with its events, one on a line, and its summary. This one was
// killed after its first outer step and resumed.
func Example() {
	dir := record.Dir("testdata/eventful")

	file, err := os.Open(dir.Path(record.EventsFile))
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	events, err := record.Read(file)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range events {
		switch e.Type {
		case record.OuterStep:
			fmt.Printf("%d µs: outer step %d of %v\n", e.T, e.Round, e.Participants)
		case record.Crash:
			fmt.Printf("%d µs: %s %s\n", e.T, e.Type, e.Node)
		case record.RunResume:
			fmt.Printf("%d µs: the run is resumed after outer step %d\n", e.T, e.Round)
		case record.Evict, record.Sideline:
			fmt.Printf("%d µs: %s %s: %s\n", e.T, e.Type, e.Node, e.Reason.Rule)
		}
	}

	text, err := os.ReadFile(dir.Path(record.SummaryFile))
	if err != nil {
		log.Fatal(err)
	}
	var sum record.Summary
	if err := json.Unmarshal(text, &sum); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %d outer steps in %d µs, %s\n", sum.Policy, sum.OuterSteps, sum.WallClock, sum.Fidelity.Verdict)
	// Output:
	// 6005 µs: crash w2
	// 11004 µs: evict w2: heartbeat
	// 11166 µs: outer step 1 of [0 1 3 4]
	// 19074 µs: the run is resumed after outer step 1
	// 30273 µs: outer step 2 of [0 1 3 4]
	// 32833 µs: sideline w3: late
	// 32983 µs: outer step 3 of [0 1 4]
	// 35604 µs: sideline w3: late
	// 35679 µs: outer step 4 of [0 1 4]
	// 38290 µs: evict w3: straggler
	// 38370 µs: outer step 5 of [0 1 4]
	// straggler: 5 outer steps in 38370 µs, valid
}

// A Tracker follows a run event by event. A reader that handles an event before it adds it
// finds the run as it was when the event happened.
func ExampleTracker() {
	file, err := os.Open("testdata/eventful/events.jsonl")
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	events, err := record.Read(file)
	if err != nil {
		log.Fatal(err)
	}
	var run record.Tracker
	for _, e := range events {
		if e.Type == record.Evict {
			w := run.Of(&e)
			fmt.Printf("%s is evicted in round %d after %d µs as a member; dead: %v, slow: %v\n",
				e.Node, run.Round, e.T-w.Joined, w.Holds(record.Dead), w.Holds(record.Slowed))
		}
		run.Add(&e)
	}
	// Output:
	// w2 is evicted in round 1 after 11004 µs as a member; dead: true, slow: false
	// w3 is evicted in round 5 after 38290 µs as a member; dead: false, slow: true
}
