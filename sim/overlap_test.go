package sim_test

import (
	"testing"

	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/sim"
	"testbed/train/task"
)

// overlapped plays the homogeneous scenario with an overlap on both networks.
func overlapped(t *testing.T, outer task.Outer) (churn, links record.Summary, events []record.Event) {
	t.Helper()
	s, err := scenarios.Load("homogeneous")
	if err != nil {
		t.Fatal(err)
	}
	s.InnerSteps, s.Train = 4, &task.Spec{Outer: outer}
	note := func(e record.Event) { events = append(events, e) }
	if churn, err = onChurn(s, scenarios.Baseline, note); err != nil {
		t.Fatal(err)
	}
	if links, err = onLinks(s, scenarios.Straggler, sim.Costs{}, note); err != nil {
		t.Fatal(err)
	}
	return churn, links, events
}

// TestOverlapHidesReductions: in churn's model by exactly what the steps taken
// meanwhile take, at most the reduction with its messages; and outcomes come in
// after so many steps, never before.
func TestOverlapHidesReductions(t *testing.T) {
	plain, plainLinks, _ := overlapped(t, task.Outer{})
	s, err := scenarios.Load("homogeneous")
	if err != nil {
		t.Fatal(err)
	}
	step, away := s.Workers[0].InnerStepMean, 2*s.BaseLatency+policy.Time(s.StateBytes/s.BandwidthBpus)
	for overlap := 1; overlap <= 4; overlap++ {
		churn, links, events := overlapped(t, task.Outer{Overlap: overlap})
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
			case record.RunStart:
				outer = 0
			case record.OuterStep:
				outer = e.Round
			case record.Step:
				steps[e.Node] = e.Step
				if e.Round > outer+1 && e.Step > overlap {
					t.Fatalf("step %d of round %d after outer step %d", e.Step, e.Round, outer)
				}
			case record.Merge:
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
	plain, plainLinks, _ := overlapped(t, task.Outer{})
	churn, links, _ := overlapped(t, task.Outer{Fragments: 4})
	for i, r := range links.Rounds {
		if whole := plainLinks.Rounds[i]; 3*r.BytesSent > whole.BytesSent || r.Reduce >= whole.Reduce {
			t.Errorf("round %d sends %d bytes in %d µs, a whole one %d in %d", r.Round, r.BytesSent, r.Reduce, whole.BytesSent, whole.Reduce)
		}
		if got, whole := churn.Rounds[i].Reduce, plain.Rounds[i].Reduce; got >= whole {
			t.Errorf("round %d: churn's reduction takes %d µs, a whole one %d", r.Round, got, whole)
		}
	}
}
