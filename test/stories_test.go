//go:build linux

package test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/internal/stories"
	"testbed/internal/testenv"
)

// TestMeasuredStoriesForReal plays two of torchft's failures on the real network, and that
// of groups with several ranks, which come to what the simulator comes to.
func TestMeasuredStoriesForReal(t *testing.T) {
	testenv.MeasuredParallel(t)
	needSandbox(t)
	tell := func(s stories.Story) {
		want := s.Versions[0]
		testenv.Measure(t, func() func(testenv.Machine) error {
			sum, _ := once(t, s.Scenario, "--policy", want.Policy)
			told := stories.Tell(readEvents(t, sum.Dir))
			return func(testenv.Machine) error {
				same := sum.BitIdentical != nil && *sum.BitIdentical
				diff := cmp.Diff(want.Told, told)
				if diff == "" && same {
					return nil
				}
				return fmt.Errorf("%s: the same bytes %v; -told +played:\n%s", s.Scenario, same, diff)
			}
		})
	}
	for _, s := range stories.All {
		if slices.Contains([]string{"torchft_t15", "torchft_t17"}, s.Scenario) { // they are short
			tell(s)
		}
	}
	tell(stories.Groups)
}
