package node

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"testbed/internal/memnet"
	"testbed/policy"

	"testbed/record"
	"testbed/scenarios"
	"testbed/train/task"
)

// regional is worldScenario with two regions.
func regional(t *testing.T, every int) *scenarios.Scenario {
	s := worldScenario(t, 4)
	s.Train = &task.Spec{Regions: &policy.RegionsSpec{Every: every, Workers: map[string][]policy.ID{"eu": {0, 3}, "us": {1, 2}}}}
	return s
}

// TestRegions: regions agree each by itself in most rounds, and all with each other
// in the others; where all rounds are such, on what they would without regions.
func TestRegions(t *testing.T) {
	play := func(s *scenarios.Scenario) (sum record.Summary, events []record.Event) {
		if err := memnet.TryBubble(t, func(t *testing.T) {
			w := newWorld(t, s)
			sum, events = w.play(scenarios.Baseline, time.Hour)
			if err := checkLineage(s, events); err != nil || !sum.Complete || len(w.failed) > 0 {
				t.Errorf("complete %v, %q, %v", sum.Complete, w.failed, err)
			}
		}); err != nil {
			t.Fatal(err)
		}
		return sum, events
	}
	plain, _ := play(worldScenario(t, 4))
	for _, every := range []int{1, 2, 3} {
		s := regional(t, every)
		sum, events := play(s)
		for k, r := range sum.Rounds {
			switch global := r.Round%every == 0; {
			case global && (len(r.Regions) > 0 || r.Hash == "" || r.ModelHash == ""):
				t.Errorf("every %d: a global round %+v", every, r)
			case !global && (len(r.Regions) != 2 || r.Hash != "" || r.ModelHash != "" || r.Loss != nil):
				t.Errorf("every %d: a regional round %+v", every, r)
			case !global && (r.Regions[0].Hash == r.Regions[1].Hash || r.Regions[0].ModelHash == r.Regions[1].ModelHash || r.Regions[0].ModelHash == ""):
				t.Errorf("every %d: the regions of round %d have not moved apart: %+v", every, r.Round, r.Regions)
			case every == 1 && (r.Hash != plain.Rounds[k].Hash || r.ModelHash != plain.Rounds[k].ModelHash):
				t.Errorf("round %d leads to %s with regions that always agree, and to %s without", r.Round, r.ModelHash, plain.Rounds[k].ModelHash)
			}
		}
		if every == 1 {
			continue
		}
		// The check would see it if a worker averaged with another region's.
		s.Train.Regions.Workers = map[string][]policy.ID{"eu": {0, 1}, "us": {2, 3}}
		if checkLineage(s, events) == nil {
			t.Errorf("every %d: the record is one of other regions, too", every)
		}
	}
}

// TestRegionWithoutState: everybody of a region is gone or late, and whoever comes
// goes on from what all regions last agreed on.
func TestRegionWithoutState(t *testing.T) {
	err := memnet.TryBubble(t, func(t *testing.T) {
		s := regional(t, 3)
		s.TargetOuterSteps = 9
		w := newWorld(t, s)
		w.onEvent = func(e record.Event) {
			if e.Type == record.OuterStep && e.Round == 4 {
				for _, id := range []policy.ID{1, 2} {
					w.crash(id)
					time.AfterFunc(w.scenario.Scale().ClockDuration(100), func() { w.restart(id) })
				}
			}
		}
		sum, events := w.play(scenarios.Baseline, time.Hour)
		if err := checkLineage(s, events); err != nil || !sum.Complete {
			t.Errorf("complete %v, %v", sum.Complete, err)
		}
		agreed := slices.ContainsFunc(events, func(e record.Event) bool { return e.Type == record.FetchDone && e.Agreed })
		if !agreed {
			t.Error(fmt.Errorf("nobody has fetched what was agreed on: %+v", sum.Returned))
		}
	})
	if err != nil {
		t.Error(err)
	}
}
