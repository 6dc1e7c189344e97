package stories_test

import (
	"testing"

	"testbed/internal/stories"
	"testbed/report/record"
	"testbed/runlog"
	"testbed/scenarios"
	"testbed/sim"
	"testbed/sim/timing"
)

// play is a story on the planned links.
func play(t *testing.T, s stories.Story, mended bool) (run record.Run) {
	t.Helper()
	scenario, err := scenarios.Load(s.Scenario())
	if err != nil {
		t.Fatal(err)
	}
	run.Summary, err = sim.RunLinks(scenario, s.Policy(mended), timing.Costs{}, func(e runlog.Event) { run.Events = append(run.Events, e) })
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// TestSimulated: on the planned links each story is told as it is written down, and
// its mend keeps it from happening.
func TestSimulated(t *testing.T) {
	for _, s := range stories.All {
		for _, mended := range s.Versions() {
			if told := stories.Tell(play(t, s, mended).Events); told != s.Want(mended) {
				t.Errorf("%s under %s:\n  %s\nwant\n  %s", s.Scenario(), s.Policy(mended), told, s.Want(mended))
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
		if sooner := play(t, s, false).WallClock - play(t, s, true).WallClock; sooner < 1000 || sooner > 2000 {
			t.Errorf("a heartbeat time-out that is 2,000 µs shorter gains %d", sooner)
		}
	}
}
