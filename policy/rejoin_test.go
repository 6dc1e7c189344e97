package policy_test

import (
	"testing"

	"testbed/policy"
)

// again is a request of a process of a worker that was a member before.
func again(id policy.ID, incarnation int) policy.Event {
	return policy.Join{ID: id, Incarnation: incarnation}
}

func rejoining(rounds int) func(*policy.Config) {
	return func(c *policy.Config) { c.Rejoin, c.RejoinRounds = policy.RejoinAfterRounds, rounds }
}

// begun is a run of n workers in its first round.
func begun(t *testing.T, n int, change func(*policy.Config)) *play {
	t.Helper()
	cfg := baseline()
	if change != nil {
		change(&cfg)
	}
	p := newPlay(t, cfg)
	p.start(n)
	return p
}

// TestANewIncarnationReplacesTheOneBefore: no heartbeat has to be missed for it.
func TestANewIncarnationReplacesTheOneBefore(t *testing.T) {
	p := begun(t, 3, nil)
	p.at(500, again(1, 1), "evict 1: replaced", "admit 1", "1 fetches state 0 from 0: join")
	if why := p.why(policy.RuleReplaced); why.Silent != 500 {
		t.Errorf("silent for %d µs, want 500", why.Silent)
	}
	p.at(600, policy.StateFetched{ID: 1}, "1 has fetched", "start round 1 with [1]")
	p.at(700, again(1, 1), "reject 1") // it is a member
	p.at(700, again(1, 0), "reject 1") // and this one is dead
	// Another restart, before it has the state, and one long after its loss was noticed.
	p.at(800, again(1, 2), "evict 1: replaced", "admit 1", "1 fetches state 0 from 2: join")
	p.at(900, policy.Lost{ID: 1, Rule: policy.RuleConnection}, "evict 1: connection")
	p.at(950, again(1, 2), "reject 1")
	p.at(990, again(1, 7), "admit 1", "1 fetches state 0 from 0: join")
}

// TestAnArrivedMemberThatRestartsHasToArriveAgain: what the process before it has
// contributed went with it.
func TestAnArrivedMemberThatRestartsHasToArriveAgain(t *testing.T) {
	p := begun(t, 3, nil)
	p.arrive(100, 1, 0, 1)
	p.at(200, again(1, 1), "evict 1: replaced", "admit 1", "1 fetches state 0 from 0: join")
	p.at(300, policy.Arrival{ID: 2, Round: 1})
	p.at(310, policy.Arrival{ID: 1, Round: 1}) // it has not begun
	p.at(400, policy.StateFetched{ID: 1}, "1 has fetched", "start round 1 with [1]")
	p.at(500, policy.Arrival{ID: 1, Round: 1}, "close round 1 with [0 1 2] without []: all_arrived", "reduce round 1 epoch 1 with [0 1 2]")
}

// TestTheLastThatWasWaitedForRestarts: the others go on without it.
func TestTheLastThatWasWaitedForRestarts(t *testing.T) {
	p := begun(t, 3, func(c *policy.Config) { c.Join = policy.JoinNext })
	p.arrive(100, 1, 0, 1)
	p.at(200, again(2, 1), "evict 2: replaced", "close round 1 with [0 1] without []: all_arrived", "reduce round 1 epoch 1 with [0 1]",
		"admit 2", "2 fetches state 0 from 0: join")
}

func TestARestartInAReduction(t *testing.T) {
	p := reducing(t, 3)
	p.at(320, policy.Reduced{ID: 1, Round: 1, Epoch: 1})
	p.at(330, again(1, 1), "evict 1: replaced", "abort epoch 1: lost 1", "reduce round 1 epoch 2 with [0 2]", "admit 1", "1 fetches state 0 from 0: join")
	p.at(340, policy.Reduced{ID: 1, Round: 1, Epoch: 2}) // it takes no part
	p.at(350, policy.Reduced{ID: 0, Round: 1, Epoch: 2})
	p.at(360, policy.Reduced{ID: 2, Round: 1, Epoch: 2}, "outer step 1 with [0 2]", "start round 2 with [0 2]")
	p.at(370, policy.StateFetched{ID: 1}, "1 fetches state 1 from 0: stale_fetch")
}

// TestAllOfAReductionRestart: nobody holds the state any more.
func TestAllOfAReductionRestart(t *testing.T) {
	p := reducing(t, 2)
	p.at(330, again(0, 1), "evict 0: replaced", "abort epoch 1: lost 0", "reduce round 1 epoch 2 with [1]", "admit 0", "0 fetches state 0 from 1: join")
	p.at(340, again(1, 1), "evict 1: replaced", "finish false: state_lost")
}

func TestTheOnlyWorkerRestarts(t *testing.T) {
	p := begun(t, 1, nil)
	p.at(330, again(0, 1), "evict 0: replaced", "admit 0", "finish false: state_lost")
}

func TestADonorRestarts(t *testing.T) {
	p := begun(t, 3, nil)
	p.at(100, policy.Join{ID: 3}, "admit 3", "3 fetches state 0 from 0: join")
	p.at(200, again(0, 1), "evict 0: replaced", "3 fetches state 0 from 1: fetch_failed", "admit 0", "0 fetches state 0 from 2: join")
}

// TestTheSlowStayOut however many processes they come with.
func TestTheSlowStayOut(t *testing.T) {
	p := slowEvicted(t, func(*policy.Config) {})
	p.at(502, again(3, 0), "reject 3")
	p.at(503, again(3, 1), "reject 3")
}

// slowEvicted is a run in whose round 2 worker 3 is evicted for its slowness, at
// the deadline of 501.
func slowEvicted(t *testing.T, change func(*policy.Config)) *play {
	t.Helper()
	cfg := straggler(func(s *policy.Straggler) { s.SidelineLimit = 0 })
	change(&cfg)
	p := newPlay(t, cfg)
	p.start(4)
	p.arrive(200, 1, 0, 1, 2, 3)
	p.reduce(300, 1, 1, 0, 1, 2, 3)
	p.arrive(500, 2, 0, 1, 2)
	p.at(501, policy.Timer{}, "close round 2 with [0 1 2] without [3]: deadline", "evict 3: straggler", "reduce round 2 epoch 2 with [0 1 2]")
	return p
}

// TestTheSlowComeBackAfterTheirRounds, in the process that was evicted or in a
// new one.
func TestTheSlowComeBackAfterTheirRounds(t *testing.T) {
	for incarnation := range 2 {
		p := slowEvicted(t, rejoining(2))
		p.at(502, again(3, incarnation))
		p.reduce(600, 2, 2, 0, 1, 2)
		p.arrive(700, 3, 0, 1, 2)
		p.reduce(800, 3, 3, 0, 1)
		p.at(800, policy.Reduced{ID: 2, Round: 3, Epoch: 3},
			"outer step 3 with [0 1 2]", "start round 4 with [0 1 2]", "admit 3", "3 fetches state 3 from 0: join")
		if why := p.why(policy.RuleRejoin); why.Misses != 2 || why.Limit != 2 || why.Members != 4 {
			t.Errorf("the reason is %+v, want 2 of 2 rounds and 4 members", why)
		}
	}
}

// TestOneThatHasWaitedIsAdmittedAtOnce when it asks later.
func TestOneThatHasWaitedIsAdmittedAtOnce(t *testing.T) {
	p := slowEvicted(t, rejoining(0))
	p.reduce(600, 2, 2, 0, 1, 2)
	p.at(700, again(3, 0), "admit 3", "3 fetches state 2 from 0: join")
}

// TestAnApplicantThatGoesIsNotWaitedFor however it goes.
func TestAnApplicantThatGoesIsNotWaitedFor(t *testing.T) {
	for _, c := range []struct {
		name  string
		event policy.Event
		want  []string
	}{
		{"leaves", policy.Leave{ID: 3}, []string{"reject 3"}},
		{"gives up", policy.Lost{ID: 3, Rule: policy.RuleGaveUp}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := slowEvicted(t, rejoining(1))
			p.at(502, again(3, 0))
			p.at(503, c.event, c.want...)
			p.reduce(600, 2, 2, 0, 1)
			p.at(600, policy.Reduced{ID: 2, Round: 2, Epoch: 2}, "outer step 2 with [0 1 2]", "start round 3 with [0 1 2]")
		})
	}
	t.Run("falls silent, and is heard again", func(t *testing.T) {
		p := slowEvicted(t, rejoining(1))
		p.at(502, again(3, 0))
		for id := range policy.ID(3) {
			p.quietly(5502, policy.Heartbeat{ID: id})
		}
		p.reduce(5502, 2, 2, 0, 1)
		p.at(5502, policy.Reduced{ID: 2, Round: 2, Epoch: 2}, "outer step 2 with [0 1 2]", "start round 3 with [0 1 2]")
		p.quietly(5600, policy.Heartbeat{ID: 3})
		p.arrive(5700, 3, 0, 1, 2)
		p.reduce(5800, 3, 3, 0, 1)
		p.at(5800, policy.Reduced{ID: 2, Round: 3, Epoch: 3}, "outer step 3 with [0 1 2]", "start round 4 with [0 1 2]", "admit 3", "3 fetches state 3 from 0: join")
	})
}

// TestOneEvictedAliveComesBack: it is the process that was evicted as silent, and
// waits; a new one does not.
func TestOneEvictedAliveComesBack(t *testing.T) {
	for incarnation, want := range [][]string{{}, {"admit 2", "2 fetches state 0 from 0: join"}} {
		p := begun(t, 3, rejoining(1))
		p.at(100, policy.Lost{ID: 2, Rule: policy.RuleProgress}, "evict 2: progress")
		p.at(200, again(2, incarnation), want...)
	}
}
