package stories_test

import (
	"testing"

	"testbed/internal/stories"
	"testbed/runlog"
	"testbed/scenarios"
	"testbed/sim"
	"testbed/sim/timing"
)

// TestFigures: those of the documentation, beside the published ones, are what the
// simulator says.
func TestFigures(t *testing.T) {
	for _, c := range []struct{ scenario, policy, want string }{
		{"torchft_mtbf_60s", "torchft", "55 of 69 committed (79.7 %), 29.5 participants, 12.98 s a step"},
		{"torchft_mtbf_60s", "torchft:join_timeout=10000", "55 of 66 committed (83.3 %), 25.5 participants, 13.74 s a step"},
		{"torchft_mtbf_15s", "torchft", "20 of 52 committed (38.5 %), 28.6 participants, 22.67 s a step"},
		{"torchft_mtbf_15s", "torchft:join_timeout=10000", "20 of 51 committed (39.2 %), 22.4 participants, 15.58 s a step"},
	} {
		s, err := scenarios.Load(c.scenario)
		if err != nil {
			t.Fatal(err)
		}
		var events []runlog.Event
		if _, err = sim.RunLinks(s, c.policy, timing.Costs{}, func(e runlog.Event) { events = append(events, e) }); err != nil {
			t.Fatal(err)
		}
		if got := stories.FiguresOf(events).String(); got != c.want {
			t.Errorf("%s under %s: %s; want %s", c.scenario, c.policy, got, c.want)
		}
	}
}
