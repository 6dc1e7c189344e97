//go:build linux

package main

import (
	"fmt"
	"slices"
	"testing"

	"testbed/internal/stories"
	"testbed/internal/testenv"
)

// TestStoriesForReal plays two of torchft's failures on the real network, and that
// of groups with several ranks, which come to what the simulator comes to. On a
// machine that is too busy for a run, groups fall silent that nothing has happened to.
func TestStoriesForReal(t *testing.T) {
	needSandbox(t)
	tell := func(name, want string) {
		testenv.Measure(t, func() func(testenv.Machine) error {
			sum, _ := once(t, name, "--policy", "torchft")
			told := stories.Tell(readEvents(t, sum.Dir))
			return func(m testenv.Machine) error {
				same := sum.BitIdentical != nil && *sum.BitIdentical
				if told == want && same || m != (testenv.Machine{}) && sum.Fidelity.Verdict != "valid" {
					return nil
				}
				return fmt.Errorf("%s: the same bytes %v;\n%s\nwant\n%s", name, same, told, want)
			}
		})
	}
	for _, s := range stories.All {
		if slices.Contains([]int{15, 17}, s.Number) { // they are short
			tell(s.Scenario(), s.Told)
		}
	}
	tell(stories.Groups, stories.GroupsTold)
}
