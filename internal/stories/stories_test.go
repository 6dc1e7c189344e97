package stories_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/experiment"
	"testbed/internal/stories"
	"testbed/policy"
	"testbed/record"
	"testbed/report/runs"
	"testbed/scenarios"
	"testbed/sim"
)

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

// TestSimulated: on the planned links each story is told as its file has it, and its
// fix keeps it from happening.
func TestSimulated(t *testing.T) {
	if len(stories.All) != 18 {
		t.Errorf("there are %d stories, want 18", len(stories.All))
	}
	for _, s := range stories.All {
		for _, v := range s.Versions {
			if diff := cmp.Diff(v.Told, stories.Tell(simulated(t, s.Scenario, v.Policy).Events)); diff != "" {
				t.Errorf("%s under %s (-told +simulated):\n%s", s.Scenario, v.Policy, diff)
			}
		}
	}
}

// TestGroups: the ranks of a group share its fate, and who reduces and heals is the
// same rank of others. Nobody is judged for what befell another rank of its group.
func TestGroups(t *testing.T) {
	version := stories.Groups.Versions[0]
	run := simulated(t, stories.Groups.Scenario, version.Policy)
	if diff := cmp.Diff(version.Told, stories.Tell(run.Events)); diff != "" {
		t.Errorf("-told +simulated:\n%s", diff)
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

// TestKill: what a group that is killed costs the others (T17) is the time until
// its heartbeats are too old, and so shrinks with the heartbeat time-out.
func TestKill(t *testing.T) {
	for _, s := range stories.All {
		if s.Scenario != "torchft_t17" {
			continue
		}
		wallClock := func(version int) policy.Time { return simulated(t, s.Scenario, s.Versions[version].Policy).WallClock }
		if sooner := wallClock(0) - wallClock(1); sooner < 1000 || sooner > 2000 {
			t.Errorf("a heartbeat time-out that is 2,000 µs shorter gains %d", sooner)
		}
	}
}

// TestRotation: what T18 costs. Once a group has stalled, one heals and another is left
// out in every round, so that two of four contribute, and one of them counts twice.
func TestRotation(t *testing.T) {
	const from = 5
	steps := func(run runs.Run) (mean policy.Time) {
		var first, last record.Event
		for _, e := range run.Events {
			if e.Type == record.OuterStep {
				if last = e; e.Round == from {
					first = e
				}
			}
		}
		return (last.T - first.T) / policy.Time(last.Round-first.Round)
	}
	rotates := simulated(t, "torchft_t18", "torchft")
	for _, e := range rotates.Events {
		if e.Type == record.ReduceStart && e.Round >= from && (len(e.Participants) != 3 || len(e.Zero) != 1 || len(e.Repeated) != 1) {
			t.Errorf("round %d has participants %v, zeros of %v, repeated %v", e.Round, e.Participants, e.Zero, e.Repeated)
		}
	}
	slow, quick := steps(rotates), steps(simulated(t, "torchft_t18", "torchft:join_timeout=4000"))
	if longer := float64(slow) / float64(quick); longer < 1.05 || longer > 1.2 {
		t.Errorf("rounds of %d µs, and %d µs with the longer join timeout", slow, quick)
	}
	t.Logf("rounds of %d µs, and %d µs with the longer join timeout; lost %.3f", slow, quick, rotates.Summary.Work.Lost)
}
