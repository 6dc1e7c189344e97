package policy_test

import (
	"testing"

	"testbed/policy"
)

// TestNobodyIsSilentWhileTheCoordinatorIsAway: its members' silence counts from
// its return, and for longer as long as they may still be on their way.
func TestNobodyIsSilentWhileTheCoordinatorIsAway(t *testing.T) {
	p := newPlay(t, stalling())
	p.start(2)
	p.quietly(50_200, policy.Recovered{})
	if p.wake != 51_000 {
		t.Fatalf("the next look is at %d, want the next one on the grid, 51,000", p.wake)
	}
	for now := policy.Time(51_000); now < 59_000; now += 1000 {
		p.quietly(now, policy.Heartbeat{ID: 0})
		p.at(now, policy.Timer{}) // 5,000 of silence and 3,000 to come back
	}
	p.quietly(59_000, policy.Heartbeat{ID: 0})
	p.at(59_000, policy.Timer{}, "evict 1: heartbeat")
}

// TestNobodyIsLateBecauseTheCoordinatorWasAway: a deadline that has come
// meanwhile waits for a heartbeat of every member, and then for as long as
// from a first arrival. What the round says of offsets is forgotten.
func TestNobodyIsLateBecauseTheCoordinatorWasAway(t *testing.T) {
	p := inRound2(t, 4, nil)
	p.at(300, policy.Arrival{ID: 0, Round: 2}, "deadline at 301")
	p.quietly(2300, policy.Recovered{})
	p.at(2310, policy.Heartbeat{ID: 0})
	p.arrive(2320, 2, 1, 2) // a quorum
	for _, id := range []policy.ID{1, 2} {
		p.at(2320, policy.Heartbeat{ID: id})
	}
	p.at(2390, policy.Heartbeat{ID: 3}, "deadline at 2391")
	p.at(2391, policy.Arrival{ID: 3, Round: 2}, "close round 2 with [0 1 2 3] without []: all_arrived", "reduce round 2 epoch 2 with [0 1 2 3]")
	p.reduce(2400, 2, 2, 0, 1, 2, 3)
	p.at(2500, policy.Arrival{ID: 0, Round: 3}, "deadline at 2501")
}

// TestTheLateAreStillLateAfterAnOutage: a deadline that is set when the outage
// is over counts as always.
func TestTheLateAreStillLateAfterAnOutage(t *testing.T) {
	p := inRound2(t, 4, nil)
	p.quietly(2300, policy.Recovered{})
	for id := range policy.ID(4) {
		p.at(2310, policy.Heartbeat{ID: id})
	}
	p.at(2310, policy.Arrival{ID: 0, Round: 2}, "deadline at 2311")
	p.arrive(2310, 2, 1, 2)
	p.at(2311, policy.Timer{}, "close round 2 with [0 1 2] without [3]: deadline", "sideline 3 for miss 1 of 2", "reduce round 2 epoch 2 with [0 1 2]")
}

// TestAReductionOutlivesTheCoordinator, and does not stand still while the
// coordinator does not listen.
func TestAReductionOutlivesTheCoordinator(t *testing.T) {
	p := reducing(t, 3)
	p.quietly(20_000, policy.Recovered{})
	for id := range policy.ID(3) {
		p.at(20_500, policy.Heartbeat{ID: id})
	}
	p.at(21_000, policy.Timer{})
	p.reduce(21_000, 1, 1, 0, 1)
	p.at(21_000, policy.Reduced{ID: 2, Round: 1, Epoch: 1}, "outer step 1 with [0 1 2]", "start round 2 with [0 1 2]")
}

// TestARunBeginsAnewFromACheckpoint of an earlier round, with the members that
// it had last; the one that has not come back fetches what it can and is
// evicted if it gives no heartbeat.
func TestARunBeginsAnewFromACheckpoint(t *testing.T) {
	p := inRound2(t, 4, nil)
	p.arrive(300, 2, 0, 1, 2, 3)
	p.reduce(400, 2, 2, 0, 1, 2, 3)
	p.at(450, policy.Lost{ID: 1, Rule: policy.RuleConnection}, "evict 1: connection")
	p.arrive(500, 3, 0)
	p.at(600, policy.Restarted{OuterSteps: 1, Holders: []policy.ID{0, 1, 3}}, "start round 2 with [0 3]", "2 fetches state 1 from 0: restart")
	if p.m.OuterSteps() != 1 || p.m.Members() != 3 {
		t.Errorf("%d outer steps are final and %d members are there, want 1 and 3", p.m.OuterSteps(), p.m.Members())
	}
	p.at(700, policy.StateFetched{ID: 2, OuterSteps: 1}, "2 has fetched", "start round 2 with [2]")
	p.at(710, policy.Arrival{ID: 0, Round: 2}, "deadline at 711")
	p.arrive(711, 2, 2)
	p.at(711, policy.Arrival{ID: 3, Round: 2}, "close round 2 with [0 2 3] without []: all_arrived", "reduce round 2 epoch 3 with [0 2 3]")
}

// TestARunBeginsAnewAfterItsLastStep, the outcome of which is lost.
func TestARunBeginsAnewAfterItsLastStep(t *testing.T) {
	cfg := baseline()
	cfg.TargetOuterSteps = 2
	p := newPlay(t, cfg)
	p.start(1)
	p.arrive(100, 1, 0)
	p.reduce(200, 1, 1, 0)
	p.arrive(300, 2, 0)
	p.at(400, policy.Reduced{ID: 0, Round: 2, Epoch: 2}, "outer step 2 with [0]", "finish true: target")
	p.at(500, policy.Restarted{OuterSteps: 1, Holders: []policy.ID{0}}, "start round 2 with [0]")
}

// TestARunBeginsAnewWithoutAState ends, and says so.
func TestARunBeginsAnewWithoutAState(t *testing.T) {
	p := inRound2(t, 2, nil)
	p.at(600, policy.Restarted{OuterSteps: 1}, "finish false: state_lost")
}
