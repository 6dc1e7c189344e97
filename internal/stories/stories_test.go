package stories_test

import (
	"testing"

	"testbed/internal/stories"
	"testbed/runlog"
	"testbed/scenarios"
	"testbed/sim"
	"testbed/sim/timing"
)

// play tells what becomes of a story on the planned links.
func play(t *testing.T, s stories.Story, mended bool) (told string, sum runlog.Summary) {
	t.Helper()
	scenario, err := scenarios.Load(s.Scenario())
	if err != nil {
		t.Fatal(err)
	}
	var events []runlog.Event
	sum, err = sim.RunLinks(scenario, s.Policy(mended), timing.Costs{}, func(e runlog.Event) { events = append(events, e) })
	if err != nil {
		t.Fatal(err)
	}
	return stories.Tell(events), sum
}

// TestSimulated: on the planned links each story is told as it is written down, and
// its mend keeps it from happening.
func TestSimulated(t *testing.T) {
	for _, s := range stories.All {
		for mended, want := range map[bool]string{false: s.Told, true: s.Mended} {
			if told, _ := play(t, s, mended); told != want {
				t.Errorf("%s under %s:\n  %s\nwant\n  %s", s.Scenario(), s.Policy(mended), told, want)
			}
		}
	}
}

// TestKill: what a group that is killed costs the others (T17) is the time until
// its heartbeats are too old, and so shrinks with the heartbeat time-out.
func TestKill(t *testing.T) {
	for _, s := range stories.All {
		if s.Number != 17 {
			continue
		}
		_, sum := play(t, s, false)
		_, mended := play(t, s, true)
		if sooner := sum.WallClock - mended.WallClock; sooner < 1000 || sooner > 2000 {
			t.Errorf("a heartbeat time-out that is 2,000 µs shorter gains %d", sooner)
		}
	}
}
