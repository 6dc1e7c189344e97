package sim_test

import (
	"testing"

	"testbed/policy"
	"testbed/runlog"
	"testbed/scenarios"
	"testbed/scenarios/learning"
	"testbed/sim"
	"testbed/sim/churn"
	"testbed/sim/timing"
)

// overlapped plays the homogeneous scenario with an overlap on both networks.
func overlapped(t *testing.T, outer learning.Outer) (churn, links runlog.Summary, events []runlog.Event) {
	t.Helper()
	s, err := scenarios.Load("homogeneous")
	if err != nil {
		t.Fatal(err)
	}
	s.InnerSteps, s.Train = 4, &learning.Spec{Outer: outer}
	record := func(e runlog.Event) { events = append(events, e) }
	if churn, err = sim.Run(s, scenarios.Baseline, record); err != nil {
		t.Fatal(err)
	}
	if links, err = sim.RunLinks(s, scenarios.Straggler, timing.Costs{}, record); err != nil {
		t.Fatal(err)
	}
	return churn, links, events
}

// TestOverlapHidesReductions: in churn's model by exactly what the steps taken
// meanwhile take, at most the reduction with its messages; and outcomes come in
// after so many steps, never before.
func TestOverlapHidesReductions(t *testing.T) {
	plain, plainLinks, _ := overlapped(t, learning.Outer{})
	s, err := scenarios.Load("homogeneous")
	if err != nil {
		t.Fatal(err)
	}
	step, away := s.Workers[0].InnerStepMean, s.BaseLatency+churn.Transfer(s)
	for overlap := 1; overlap <= 4; overlap++ {
		churn, links, events := overlapped(t, learning.Outer{Overlap: overlap})
		rounds := policy.Time(len(plain.Rounds) - 1)
		if want := plain.WallClock - rounds*min(policy.Time(overlap)*step, away); churn.WallClock != want {
			t.Errorf("overlap %d: %d µs, want %d", overlap, churn.WallClock, want)
		}
		if !links.Complete || links.WallClock >= plainLinks.WallClock || len(links.Sidelined) > 0 {
			t.Errorf("overlap %d on the links: %d µs, %d without; sidelined %v", overlap, links.WallClock, plainLinks.WallClock, links.Sidelined)
		}
		merges := 0
		steps, outer := map[string]int{}, 0
		for _, e := range events {
			switch e.Type {
			case runlog.RunStart:
				outer = 0
			case runlog.OuterStep:
				outer = e.Round
			case runlog.Step:
				steps[e.Node] = e.Step
				if e.Round > outer+1 && e.Step > overlap {
					t.Fatalf("step %d of round %d after outer step %d", e.Step, e.Round, outer)
				}
			case runlog.Merge:
				if merges++; steps[e.Node] != overlap || e.Step != overlap || e.Round > outer {
					t.Fatalf("the outcome of round %d came in after step %d, outer step %d", e.Round, steps[e.Node], outer)
				}
			}
		}
		if want := 2 * int(rounds) * len(s.Workers); merges < want {
			t.Errorf("overlap %d: %d outcomes came in, want %d", overlap, merges, want)
		}
		if w := churn.Work; w.StepsLost > 0 {
			t.Errorf("overlap %d: %d steps lost", overlap, w.StepsLost)
		}
	}
}

// TestFragmentsMoveLess: a reduction takes its fragment's part of the time and of
// the bytes.
func TestFragmentsMoveLess(t *testing.T) {
	plain, plainLinks, _ := overlapped(t, learning.Outer{})
	churn, links, _ := overlapped(t, learning.Outer{Fragments: 4})
	for i, r := range links.Rounds {
		if whole := plainLinks.Rounds[i]; 3*r.BytesSent > whole.BytesSent || r.Reduce >= whole.Reduce {
			t.Errorf("round %d sends %d bytes in %d µs, a whole one %d in %d", r.Round, r.BytesSent, r.Reduce, whole.BytesSent, whole.Reduce)
		}
		if got, whole := churn.Rounds[i].Reduce, plain.Rounds[i].Reduce; got >= whole {
			t.Errorf("round %d: churn's reduction takes %d µs, a whole one %d", r.Round, got, whole)
		}
	}
}
