//go:build linux

package main

import (
	"fmt"
	"slices"
	"testing"

	"testbed/internal/stories"
	"testbed/internal/testenv"
)

// TestStoriesForReal plays two of torchft's failures on the real network, which
// come to what the simulator comes to. On a machine that is too busy for a run,
// groups fall silent that nothing has happened to.
func TestStoriesForReal(t *testing.T) {
	needSandbox(t)
	for _, s := range stories.All {
		if !slices.Contains([]int{15, 17}, s.Number) { // they are short
			continue
		}
		testenv.Measure(t, func() func(testenv.Machine) error {
			sum, _ := once(t, s.Scenario(), "--policy", s.Policy(false))
			told := stories.Tell(readEvents(t, sum.Dir))
			return func(m testenv.Machine) error {
				if told == s.Told || m != (testenv.Machine{}) && sum.Fidelity.Verdict != "valid" {
					return nil
				}
				return fmt.Errorf("%s:\n%s\nwant\n%s", s.Scenario(), told, s.Told)
			}
		})
	}
}
