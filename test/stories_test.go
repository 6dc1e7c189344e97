//go:build linux

package test

import (
	"fmt"
	"slices"
	"testing"

	"testbed/internal/stories"
	"testbed/internal/testenv"
)

// TestMeasuredStoriesForReal plays two of torchft's failures on the real network, and that
// of groups with several ranks, which come to what the simulator comes to.
func TestMeasuredStoriesForReal(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	tell := func(name, want string) {
		testenv.Measure(t, func() func(testenv.Machine) error {
			sum, _ := once(t, name, "--policy", "torchft")
			told := stories.Tell(readEvents(t, sum.Dir))
			return func(testenv.Machine) error {
				same := sum.BitIdentical != nil && *sum.BitIdentical
				if told == want && same {
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
