package policy_test

import (
	"testing"

	"testbed/policy"
)

// inRegions is a run of two regions, {0, 1} and {2, 3}, in its second round.
func inRegions(t *testing.T) *play {
	cfg := straggler(func(s *policy.Straggler) { s.Quorum = 0.5 })
	cfg.Grouping = policy.NewRegions(2, map[string][]policy.ID{"east": {0, 1, 4, 5}, "west": {2, 3, 6, 7}})
	p := newPlay(t, cfg)
	p.start(4)
	p.arrive(100, 1, 0, 1, 2, 3)
	p.reduced(200, 1, 1, 0, 1, 2)
	p.at(200, policy.Reduced{ID: 3, Round: 1, Epoch: 1}, "outer step 1 with [0 1 2 3]", "start round 2 with [0 1 2 3]")
	return p
}

// TestDonorsOfTheSameRegion come first, whatever others have served.
func TestDonorsOfTheSameRegion(t *testing.T) {
	p := inRegions(t)
	p.at(210, policy.Join{ID: 6}, "admit 6", "6 fetches state 1 from 2: join")
	p.at(220, policy.Join{ID: 7}, "admit 7", "7 fetches state 1 from 3: join")
	p.at(230, policy.Leave{ID: 2}, "evict 2: leave", "6 fetches state 1 from 3: fetch_failed")
	// 3 was the last there: what is left of the region is what all agreed on.
	p.at(240, policy.Leave{ID: 3}, "evict 3: leave",
		"6 fetches what was agreed at 1 from 0: fetch_failed", "7 fetches what was agreed at 1 from 1: fetch_failed")
	p.at(250, policy.StateFetched{ID: 6, OuterSteps: 1}) // of the order before
	p.at(260, policy.StateFetched{ID: 7, OuterSteps: 1, Agreed: true}, "7 has fetched", "start round 2 with [7]")
	p.at(270, policy.FetchFailed{ID: 6}, "6 fetches state 1 from 7: fetch_failed")
	p.at(280, policy.StateFetched{ID: 6, OuterSteps: 1, Agreed: true}) // of the order before
	p.at(290, policy.StateFetched{ID: 6, OuterSteps: 1}, "6 has fetched", "start round 2 with [6]")
}

// TestWhatWasAgreedOnIsFetchedAgain when the region may have gone on from it.
func TestWhatWasAgreedOnIsFetchedAgain(t *testing.T) {
	p := inRegions(t)
	p.arrive(300, 2, 0, 1)
	p.at(301, policy.Timer{}, "close round 2 with [0 1] without [2 3]: deadline", "sideline 2 for miss 1 of 2", "sideline 3 for miss 1 of 2",
		"reduce round 2 epoch 2 with [0 1]")
	p.at(400, policy.Reduced{ID: 0, Round: 2, Epoch: 2})
	p.at(400, policy.Reduced{ID: 1, Round: 2, Epoch: 2}, "outer step 2 with [0 1]", "start round 3 with [0 1]",
		"2 fetches what was agreed at 2 from 0: resync", "3 fetches what was agreed at 2 from 1: resync")
	p.at(410, policy.StateFetched{ID: 2, OuterSteps: 2, Agreed: true}, "2 has fetched", "start round 3 with [2]")
	p.arrive(500, 3, 0, 1, 2)
	p.quietly(501, policy.Timer{})
	for now, id := range []policy.ID{0, 1, 2} {
		p.quietly(policy.Time(600+now), policy.Reduced{ID: id, Round: 3, Epoch: 3})
	}
	if p.m.OuterSteps() != 3 {
		t.Fatalf("%d outer steps, want 3", p.m.OuterSteps())
	}
	// Worker 3 has got the newest, but by now its region has one of its own.
	p.at(700, policy.StateFetched{ID: 3, OuterSteps: 3, Agreed: true}, "3 fetches state 3 from 2: stale_fetch")
}
