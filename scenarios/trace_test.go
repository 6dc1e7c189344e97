package scenarios_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"testbed/scenarios"
	"testbed/shaping"
)

var update = flag.Bool("update", false, "write the traces of the library anew")

// mobile is the model of library/traces/mobile.trace, 12 s long: a rate in
// Mbit/s that swings about 6 by 4 every 4 s, and an outage from 7 to 8 s. A
// packet can be delivered whenever the rate's integral has grown by one.
func mobile() string {
	var b strings.Builder
	credit := 0.0
	for ms := 1; ms <= 12_000; ms++ {
		if t := float64(ms) / 1000; t <= 7 || t > 8 {
			credit += (6 + 4*math.Sin(2*math.Pi*t/4)) * 1e6 / 1000 / (8 * shaping.FrameSize)
		}
		for ; credit >= 1; credit-- {
			fmt.Fprintln(&b, ms)
		}
	}
	fmt.Fprintln(&b, 12_000) // the end
	return b.String()
}

func TestTheLibrarysTraceIsItsModel(t *testing.T) {
	const file = "library/traces/mobile.trace"
	if *update {
		if err := os.WriteFile(file, []byte(mobile()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil || string(text) != mobile() {
		t.Errorf("%s is not what its model makes (%v); go test ./scenarios -update writes it", file, err)
	}
	s, err := scenarios.Load("mobile_uplink")
	if err != nil {
		t.Fatal(err)
	}
	pace := s.Real.Injects[0].Pace
	if mean := float64(pace.Mean()) / 1e6; math.Abs(mean-(6*12-(6-4*2/math.Pi))/12) > 0.5 || pace.Peak() > 10.2e6 {
		t.Errorf("the trace has a mean of %v Mbit/s and a peak of %v", mean, pace.Peak())
	}
}
