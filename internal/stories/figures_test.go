package stories_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"testbed/experiment"
	"testbed/internal/stories"
	"testbed/record"
	"testbed/scenarios"
	"testbed/sim"
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
		var events []record.Event
		if _, err = experiment.OnLinks(s, c.policy, sim.Costs{}, func(e record.Event) { events = append(events, e) }); err != nil {
			t.Fatal(err)
		}
		if got := stories.FiguresOf(events).String(); got != c.want {
			t.Errorf("%s under %s: %s; want %s", c.scenario, c.policy, got, c.want)
		}
	}
}

// TestStartedOneAtATime: the published groups that take part could come of an agent
// that starts one group after the other, for 15 s each, 6.2 s before it takes part.
func TestStartedOneAtATime(t *testing.T) {
	const groups, start, then, long, trials = 30, 15, 6.2, 2 * 3600, 2000 // s
	present := func(between float64) string {
		r, away := rand.New(rand.NewPCG(1, 0)), 0.0
		for range trials {
			var back [groups]float64
			free := 0.0 // the agent
			for now := r.ExpFloat64() * between; now < long; now += r.ExpFloat64() * between {
				var alive []int
				for g, at := range back {
					if at <= now {
						alive = append(alive, g)
					}
				}
				if len(alive) == 0 {
					continue
				}
				g := alive[r.IntN(len(alive))]
				free = max(now, free) + start
				back[g] = free + then
				away += min(back[g], long) - now
			}
		}
		return fmt.Sprintf("%.1f", groups-away/trials/long)
	}
	if minute, quarter := present(60), present(15); minute != "29.6" || quarter != "18.9" {
		t.Errorf("%s groups take part at one failure a minute, %s at one every 15 s", minute, quarter)
	}
}
