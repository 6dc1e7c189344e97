package stories_test

import (
	"testing"

	"testbed/experiment"
	"testbed/internal/stories"
	"testbed/record"
	"testbed/report/runs"
	"testbed/scenarios"
	"testbed/sim"
)

// play is a story on the planned links.
func play(t *testing.T, s stories.Story, mended bool) (run runs.Run) {
	t.Helper()
	return simulated(t, s.Scenario(), s.Policy(mended))
}

func simulated(t *testing.T, name, policyName string) (run runs.Run) {
	t.Helper()
	scenario, err := scenarios.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	run.Summary, err = experiment.OnLinks(scenario, policyName, sim.Costs{}, func(e record.Event) { run.Events = append(run.Events, e) })
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

// TestGroups: the ranks of a group share its fate, and who reduces and heals is the
// same rank of others. Nobody is judged for what befell another rank of its group.
func TestGroups(t *testing.T) {
	run := simulated(t, stories.Groups, "torchft")
	if told := stories.Tell(run.Events); told != stories.GroupsTold {
		t.Errorf("%s\nwant\n%s", told, stories.GroupsTold)
	}
	donors := map[string]string{}
	for _, e := range run.Events {
		if e.Type == record.FetchStart && e.Round == 2 {
			donors[e.Node] = e.From
		}
	}
	if donors["w4"] != "w0" || donors["w5"] != "w3" {
		t.Errorf("they heal from %v; want rank 0 from the first group, and rank 1 from the second", donors)
	}
	for _, r := range run.Summary.Rounds {
		if len(r.Regions) != 2 || r.Regions[0].Region != "rank 0" || r.Regions[1].Participants[0] != 1 || r.Hash != "" {
			t.Errorf("round %d has the rings %+v", r.Round, r.Regions)
		}
	}
	if w := run.Work; w.FalseEvicted+w.FalseSidelined > 0 || len(run.Detected) != 1 || w.Contributions[4] != 4 || w.Contributions[3] != 3 {
		t.Errorf("work %+v, detected %+v", w, run.Detected)
	}
}

// TestMaxRetries ends a job whose steps never commit (T9).
func TestMaxRetries(t *testing.T) {
	const want = "quorums 1-4 of 0 1 2 3 fail 1 4 times (timeout), w0 dies (reduce_failed), w1 dies (reduce_failed), w2 dies (reduce_failed), w3 dies (reduce_failed), not complete"
	if told := stories.Tell(simulated(t, "torchft_t09", "torchft:max_retries=3").Events); told != want {
		t.Errorf("%s\nwant\n%s", told, want)
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
