package policy_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/policy"
)

// play is a run whose events are written by hand.
type play struct {
	t    *testing.T
	m    *policy.Machine
	wake policy.Time
	last []policy.Action
}

func newPlay(t *testing.T, cfg policy.Config) *play {
	t.Helper()
	m, err := policy.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &play{t: t, m: m}
}

// at sends one event and compares the actions, but for arrivals, wake-ups and
// heartbeat misses, with what is wanted. A Timer has to have been asked for.
func (p *play) at(now policy.Time, e policy.Event, want ...string) {
	p.t.Helper()
	if _, timer := e.(policy.Timer); timer && p.wake != now {
		p.t.Fatalf("Timer at %d, but the machine asked for one at %d", now, p.wake)
	}
	p.last = slices.Clone(p.m.Step(now, e))
	got := []string{}
	for _, a := range p.last {
		if w, ok := a.(*policy.WakeAt); ok {
			p.wake = w.At
		}
		if s := format(a); s != "" {
			got = append(got, s)
		}
	}
	if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
		p.t.Fatalf("at %d, %T%+v (-want +got):\n%s", now, e, e, diff)
	}
}

// quietly sends an event whatever comes of it, and reports whether the round has
// closed on it.
func (p *play) quietly(now policy.Time, e policy.Event) (closed bool) {
	for _, a := range p.m.Step(now, e) {
		switch a := a.(type) {
		case *policy.WakeAt:
			p.wake = a.At
		case *policy.Close:
			closed = true
		}
	}
	return closed
}

func format(a policy.Action) string {
	why := a.Why()
	switch a := a.(type) {
	case *policy.Admit:
		return fmt.Sprintf("admit %d", a.ID)
	case *policy.Reject:
		return fmt.Sprintf("reject %d", a.ID)
	case *policy.StartRound:
		return fmt.Sprintf("start round %d with %v", a.Round, a.IDs)
	case *policy.ArmDeadline:
		return fmt.Sprintf("deadline at %d", a.At)
	case *policy.Close:
		return fmt.Sprintf("close round %d with %v without %v: %s", a.Round, a.Participants, a.Late, why.Rule)
	case *policy.Reduce:
		return fmt.Sprintf("reduce round %d epoch %d with %v", a.Round, a.Epoch, a.Participants)
	case *policy.Abort:
		return fmt.Sprintf("abort epoch %d: %s %d", a.Epoch, why.Rule, *why.Lost)
	case *policy.OuterStep:
		return fmt.Sprintf("outer step %d with %v", a.Round, a.Participants)
	case *policy.Sideline:
		return fmt.Sprintf("sideline %d for miss %d of %d", a.ID, why.Misses, why.Limit)
	case *policy.Rejoin:
		return fmt.Sprintf("rejoin %d", a.ID)
	case *policy.Evict:
		return fmt.Sprintf("evict %d: %s", a.ID, why.Rule)
	case *policy.Fetch:
		if a.Agreed {
			return fmt.Sprintf("%d fetches what was agreed at %d from %d: %s", a.ID, a.OuterSteps, a.From, why.Rule)
		}
		return fmt.Sprintf("%d fetches state %d from %d: %s", a.ID, a.OuterSteps, a.From, why.Rule)
	case *policy.Fetched:
		return fmt.Sprintf("%d has fetched", a.ID)
	case *policy.Finish:
		return fmt.Sprintf("finish %v: %s", a.Complete, why.Rule)
	}
	return ""
}

func baseline() policy.Config {
	return policy.Config{HeartbeatPeriod: 1000, HeartbeatMissThreshold: 5, TargetOuterSteps: 100}
}

func straggler(change func(*policy.Straggler)) policy.Config {
	cfg := baseline()
	s := policy.DefaultStraggler()
	if change != nil {
		change(s)
	}
	cfg.Policy = s
	return cfg
}

func strategy(c *policy.Config) *policy.Straggler { return c.Policy.(*policy.Straggler) }

// start has n workers join at 0.
func (p *play) start(n int) {
	for id := range n {
		p.quietly(0, policy.Join{ID: policy.ID(id), HasState: true})
	}
}

// arrive sends arrivals of these workers.
func (p *play) arrive(now policy.Time, round int, ids ...policy.ID) {
	for _, id := range ids {
		p.quietly(now, policy.Arrival{ID: id, Round: round})
	}
}

// reduce reports the running reduction as done everywhere.
func (p *play) reduce(now policy.Time, round int, epoch policy.Epoch, ids ...policy.ID) {
	for _, id := range ids {
		p.quietly(now, policy.Reduced{ID: id, Round: round, Epoch: epoch})
	}
}

func TestBaselineWaitsForEveryMember(t *testing.T) {
	p := newPlay(t, baseline())
	p.at(0, policy.Join{ID: 0, HasState: true}, "admit 0", "start round 1 with [0]")
	p.at(0, policy.Join{ID: 1, HasState: true}, "admit 1", "start round 1 with [1]")
	p.at(100, policy.Arrival{ID: 0, Round: 1})
	p.at(900, policy.Arrival{ID: 1, Round: 1}, "close round 1 with [0 1] without []: all_arrived", "reduce round 1 epoch 1 with [0 1]")
	p.at(950, policy.Reduced{ID: 1, Round: 1, Epoch: 1})
	p.at(960, policy.Reduced{ID: 0, Round: 1, Epoch: 1}, "outer step 1 with [0 1]", "start round 2 with [0 1]")
}

func TestBaselineEvictsTheSilentOnTheGrid(t *testing.T) {
	p := newPlay(t, baseline())
	p.start(2)
	p.at(100, policy.Arrival{ID: 0, Round: 1})
	p.quietly(300, policy.Heartbeat{ID: 1}) // its last sign of life
	for now := policy.Time(1000); now < 6000; now += 1000 {
		p.quietly(now, policy.Heartbeat{ID: 0})
		p.at(now, policy.Timer{}) // at 5,000 it has been silent for 4,700 only
	}
	p.quietly(6000, policy.Heartbeat{ID: 0})
	p.at(6000, policy.Timer{}, "evict 1: heartbeat", "close round 1 with [0] without []: all_arrived", "reduce round 1 epoch 1 with [0]")
	if why := p.why(policy.RuleHeartbeat); why.Silent != 5700 || why.Misses != 5 || why.Limit != 5 {
		t.Errorf("the eviction's reason is %+v, want 5,700 µs of silence, 5 of 5 misses", why)
	}
}

func TestSilenceOfExactlyTheLimitEvicts(t *testing.T) {
	p := newPlay(t, baseline())
	p.start(1)
	for now := policy.Time(1000); now < 5000; now += 1000 {
		p.at(now, policy.Timer{})
	}
	p.at(5000, policy.Timer{}, "evict 0: heartbeat")
}

// TestDeadlineIsMedianPlusKMAD derives a deadline by hand: the first round's
// offsets are 0, 10, 20, 70, so the median is 15, the deviations are 15, 5, 5,
// 55 and their median, the MAD, is 10.
func TestDeadlineIsMedianPlusKMAD(t *testing.T) {
	for _, c := range []struct {
		k        float64
		minSlack policy.Time
		offset   policy.Time
	}{
		{k: 3, minSlack: 1, offset: 45},
		{k: 0, minSlack: 1, offset: 15},
		{k: 0.25, minSlack: 1, offset: 17}, // whole microseconds
		{k: 3, minSlack: 45, offset: 45},
		{k: 3, minSlack: 46, offset: 46},
	} {
		t.Run(fmt.Sprintf("k %v, min_slack %d", c.k, c.minSlack), func(t *testing.T) {
			p := newPlay(t, straggler(func(s *policy.Straggler) { s.K, s.MinSlack = c.k, c.minSlack }))
			p.start(4)
			p.arrive(200, 1, 2)
			p.arrive(210, 1, 0)
			p.arrive(220, 1, 1)
			p.at(270, policy.Arrival{ID: 3, Round: 1}, "close round 1 with [0 1 2 3] without []: all_arrived", "reduce round 1 epoch 1 with [0 1 2 3]")
			p.reduce(300, 1, 1, 0, 1, 2, 3)
			p.at(500, policy.Arrival{ID: 1, Round: 2}, fmt.Sprintf("deadline at %d", 500+c.offset))
			p.arrive(501, 2, 0, 2)
			p.at(500+c.offset, policy.Timer{},
				"close round 2 with [0 1 2] without [3]: deadline", "sideline 3 for miss 1 of 2", "reduce round 2 epoch 2 with [0 1 2]")
		})
	}
}

// inRound2 is a run of n workers whose first round had equal arrivals, so that
// the deadline lies one microsecond after the first arrival.
func inRound2(t *testing.T, n int, change func(*policy.Straggler)) *play {
	p := newPlay(t, straggler(change))
	p.start(n)
	all := make([]policy.ID, n)
	for i := range all {
		all[i] = policy.ID(i)
	}
	p.arrive(100, 1, all...)
	p.reduce(200, 1, 1, all...)
	return p
}

func TestNoDeadlineWithoutHistory(t *testing.T) {
	p := newPlay(t, straggler(func(s *policy.Straggler) { s.MinHistory = 2 }))
	p.start(2)
	p.at(100, policy.Arrival{ID: 0, Round: 1})
	p.arrive(100, 1, 1)
	p.reduce(150, 1, 1, 0, 1)
	p.at(200, policy.Arrival{ID: 0, Round: 2})
	p.arrive(200, 2, 1)
	p.reduce(250, 2, 2, 0, 1)
	p.at(300, policy.Arrival{ID: 0, Round: 3}, "deadline at 301")
}

func TestArrivalAtTheDeadlineIsOnTime(t *testing.T) {
	p := inRound2(t, 4, nil)
	p.arrive(300, 2, 0, 1, 2)
	p.at(301, policy.Arrival{ID: 3, Round: 2}, "close round 2 with [0 1 2 3] without []: all_arrived", "reduce round 2 epoch 2 with [0 1 2 3]")
}

func TestTwoMissesSidelineAndTheThirdEvicts(t *testing.T) {
	p := inRound2(t, 4, nil)
	for round := 2; round <= 3; round++ {
		now := policy.Time(100 * (round + 1))
		p.at(now, policy.Arrival{ID: 0, Round: round}, fmt.Sprintf("deadline at %d", now+1))
		p.arrive(now, round, 1, 2)
		p.at(now+1, policy.Timer{},
			fmt.Sprintf("close round %d with [0 1 2] without [3]: deadline", round),
			fmt.Sprintf("sideline 3 for miss %d of 2", round-1),
			fmt.Sprintf("reduce round %d epoch %d with [0 1 2]", round, round))
		p.reduce(now+50, round, policy.Epoch(round), 0, 1)
		p.at(now+50, policy.Reduced{ID: 2, Round: round, Epoch: policy.Epoch(round)},
			fmt.Sprintf("outer step %d with [0 1 2]", round),
			fmt.Sprintf("start round %d with [0 1 2]", round+1),
			fmt.Sprintf("3 fetches state %d from 0: resync", round))
		p.at(now+50, policy.StateFetched{ID: 3, OuterSteps: round}, "3 has fetched", fmt.Sprintf("start round %d with [3]", round+1))
	}
	p.arrive(500, 4, 0, 1, 2)
	p.at(501, policy.Timer{},
		"close round 4 with [0 1 2] without [3]: deadline", "evict 3: straggler", "reduce round 4 epoch 4 with [0 1 2]")
	p.at(502, policy.Join{ID: 3}, "reject 3")
}

func TestAnArrivalOnTimeForgivesMisses(t *testing.T) {
	p := inRound2(t, 4, nil)
	miss := func(round, misses int) {
		t.Helper()
		now := policy.Time(100 * (round + 1))
		p.arrive(now, round, 0, 1, 2)
		p.at(now+1, policy.Timer{},
			fmt.Sprintf("close round %d with [0 1 2] without [3]: deadline", round),
			fmt.Sprintf("sideline 3 for miss %d of 2", misses),
			fmt.Sprintf("reduce round %d epoch %d with [0 1 2]", round, round))
		p.reduce(now+50, round, policy.Epoch(round), 0, 1, 2)
		p.quietly(now+50, policy.StateFetched{ID: 3, OuterSteps: round})
	}
	miss(2, 1)
	miss(3, 2)
	p.at(500, policy.Arrival{ID: 3, Round: 4}, "rejoin 3", "deadline at 501")
	p.arrive(500, 4, 0, 1, 2)
	p.reduce(550, 4, 4, 0, 1, 2, 3)
	miss(5, 1)
}

func TestDeadlineWithoutQuorumClosesWithTheArrivalThatCompletesIt(t *testing.T) {
	p := inRound2(t, 4, nil)
	p.arrive(300, 2, 0, 1)
	p.at(301, policy.Timer{})
	p.at(700, policy.Arrival{ID: 3, Round: 2})
	p.at(700, policy.Timer{}, "close round 2 with [0 1 3] without [2]: quorum", "sideline 2 for miss 1 of 2", "reduce round 2 epoch 2 with [0 1 3]")
	why := p.last[0].Why()
	if why.Members != 4 || why.Arrived != 3 || why.Needed != 3 || why.Deadline == nil || why.Deadline.At != 301 {
		t.Errorf("the closing's reason is %+v, want 3 of 4 with 3 needed, overdue since 301", why)
	}
}

func TestArrivalsOfTheInstantThatCompletesTheQuorumAllCount(t *testing.T) {
	p := inRound2(t, 8, func(s *policy.Straggler) { s.Quorum = 0.5 })
	p.arrive(300, 2, 0, 1)
	p.at(301, policy.Timer{})
	p.at(700, policy.Arrival{ID: 6, Round: 2})
	p.at(700, policy.Arrival{ID: 5, Round: 2})
	p.at(700, policy.Arrival{ID: 4, Round: 2})
	p.at(700, policy.Timer{}, "close round 2 with [0 1 4 5 6] without [2 3 7]: quorum",
		"sideline 2 for miss 1 of 2", "sideline 3 for miss 1 of 2", "sideline 7 for miss 1 of 2", "reduce round 2 epoch 2 with [0 1 4 5 6]")
}

func TestAJoinMayRaiseTheQuorumAgain(t *testing.T) {
	p := inRound2(t, 4, nil)
	p.arrive(300, 2, 0, 1)
	p.at(301, policy.Timer{})
	p.at(700, policy.Arrival{ID: 2, Round: 2})
	p.at(700, policy.Join{ID: 4}, "admit 4", "4 fetches state 1 from 0: join")
	p.at(700, policy.Timer{}) // three of five are no quorum
	p.at(800, policy.Arrival{ID: 3, Round: 2})
	p.at(800, policy.Timer{}, "close round 2 with [0 1 2 3] without [4]: quorum", "sideline 4 for miss 0 of 2", "reduce round 2 epoch 2 with [0 1 2 3]")
}

// TestAJoinerMissesNoRoundBeforeItHasBegunOne: a first state that takes four
// rounds to come is no reason to evict.
func TestAJoinerMissesNoRoundBeforeItHasBegunOne(t *testing.T) {
	p := inRound2(t, 4, nil)
	p.quietly(300, policy.Join{ID: 4})
	for round := 2; round <= 5; round++ {
		now := policy.Time(1000 * round)
		for id := range policy.ID(5) {
			p.quietly(now, policy.Heartbeat{ID: id})
		}
		for id := range policy.ID(4) {
			p.quietly(now, policy.Arrival{ID: id, Round: round})
		}
		p.quietly(now+1, policy.Timer{}) // the deadline
		for id := range policy.ID(4) {
			p.quietly(now+2, policy.Reduced{ID: id, Round: round, Epoch: policy.Epoch(round)})
		}
	}
	if steps, members := p.m.OuterSteps(), p.m.Members(); steps < 4 || members != 5 {
		t.Errorf("%d outer steps with %d members, want 4 or more with 5", steps, members)
	}
}

// TestAJoinerBeginsNoRoundAfterTheLast: nor does it miss one when the run begins anew
// from a checkpoint before it had contributed.
func TestAJoinerBeginsNoRoundAfterTheLast(t *testing.T) {
	cfg := baseline()
	cfg.TargetOuterSteps, cfg.Join, cfg.Policy = 2, policy.JoinZeros, &policy.Backup{B: 1}
	p := newPlay(t, cfg)
	p.start(2)
	p.arrive(100, 1, 0, 1)
	p.reduce(200, 1, 1, 0, 1)
	p.at(210, policy.Join{ID: 2}, "admit 2", "2 fetches state 1 from 0: join")
	p.at(220, policy.StateFetched{ID: 2, OuterSteps: 1}, "2 has fetched")
	p.arrive(300, 2, 0, 1)
	p.reduce(400, 2, 2, 0, 1)
	p.at(400, policy.Reduced{ID: 2, Round: 2, Epoch: 2}, "outer step 2 with [0 1 2]", "finish true: target")
	p.at(500, policy.Restarted{OuterSteps: 1, Holders: []policy.ID{0, 1}}, "start round 2 with [0 1]", "2 fetches state 1 from 0: restart")
	p.arrive(600, 2, 0, 1)
	p.at(600, policy.Timer{}, "close round 2 with [0 1] without [2]: quorum", "sideline 2 for miss 0 of 0", "reduce round 2 epoch 3 with [0 1]")
}

func TestQuorumIsRoundedUp(t *testing.T) {
	for _, c := range []struct {
		quorum  float64
		members int
		want    int
	}{
		{0.75, 4, 3}, {0.75, 3, 3}, {0.75, 2, 2}, {0.75, 1, 1}, {0.76, 4, 4},
		{0.7, 10, 7}, // 0.7 × 10 is a little more than 7 in binary
		{0.1, 3, 1}, {1, 5, 5}, {1e-12, 4, 1},
	} {
		p := inRound2(t, c.members, func(s *policy.Straggler) { s.Quorum = c.quorum })
		arrivals, closed := 0, false
		for !closed {
			now := policy.Time(300 + 10*arrivals)
			closed = p.quietly(now, policy.Arrival{ID: policy.ID(arrivals), Round: 2})
			if p.wake <= now+1 { // the deadline's Timer, later the quorum's
				closed = p.quietly(p.wake, policy.Timer{}) || closed
			}
			arrivals++
		}
		if arrivals != c.want {
			t.Errorf("quorum %v of %d members: closed with %d arrivals, want %d", c.quorum, c.members, arrivals, c.want)
		}
	}
}

func TestACrashDuringTheReductionStartsItAgainWithTheSurvivors(t *testing.T) {
	for name, cfg := range map[string]policy.Config{"baseline": baseline(), "straggler": straggler(nil)} {
		t.Run(name, func(t *testing.T) {
			p := newPlay(t, cfg)
			p.start(3)
			p.arrive(100, 1, 0, 1, 2)
			p.reduce(200, 1, 1, 0, 1) // worker 2 has crashed
			for now := policy.Time(1000); now < 5000; now += 1000 {
				p.quietly(now, policy.Heartbeat{ID: 0})
				p.quietly(now, policy.Heartbeat{ID: 1})
				p.at(now, policy.Timer{})
			}
			p.quietly(5000, policy.Heartbeat{ID: 0})
			p.quietly(5000, policy.Heartbeat{ID: 1})
			p.at(5000, policy.Timer{}, "evict 2: heartbeat", "abort epoch 1: lost 2", "reduce round 1 epoch 2 with [0 1]")
			p.at(5100, policy.Reduced{ID: 0, Round: 1, Epoch: 1}) // of the attempt before
			p.at(5100, policy.Reduced{ID: 0, Round: 1, Epoch: 2})
			p.at(5110, policy.Reduced{ID: 1, Round: 1, Epoch: 2}, "outer step 1 with [0 1]", "start round 2 with [0 1]")
		})
	}
}

func reduceFailed(id, peer policy.ID, epoch policy.Epoch) policy.Event {
	return policy.ReduceFailed{ID: id, Round: 1, Epoch: epoch, Peer: &peer}
}

// TestWhoMakesReductionsFailIsEvicted: worker 2 fails with every neighbour it
// is given, and each neighbour fails only once.
func TestWhoMakesReductionsFailIsEvicted(t *testing.T) {
	p := newPlay(t, baseline())
	p.start(4)
	p.arrive(100, 1, 0, 1, 2, 3)
	p.at(200, reduceFailed(3, 2, 1), "abort epoch 1: reduce_failed 3", "reduce round 1 epoch 2 with [0 1 3 2]")
	p.at(210, reduceFailed(1, 3, 1)) // the same failure, seen from further away
	p.at(300, reduceFailed(0, 2, 2), "abort epoch 2: reduce_failed 0", "reduce round 1 epoch 3 with [0 2 1 3]")
	p.at(400, reduceFailed(1, 2, 3), "evict 2: reduce_failed", "abort epoch 3: reduce_failed 1", "reduce round 1 epoch 4 with [0 1 3]")
}

// TestAWorkerAloneGoesOn also when the two that are left cannot reduce
// together. Which of them is at fault is not known: the one with the lower ID
// stays.
func TestAWorkerAloneGoesOn(t *testing.T) {
	p := newPlay(t, baseline())
	p.start(2)
	p.arrive(100, 1, 0, 1)
	p.at(200, reduceFailed(0, 1, 1), "abort epoch 1: reduce_failed 0", "reduce round 1 epoch 2 with [0 1]")
	p.at(300, reduceFailed(1, 0, 2), "abort epoch 2: reduce_failed 1", "reduce round 1 epoch 3 with [0 1]")
	p.at(400, reduceFailed(0, 1, 3), "evict 1: reduce_failed", "abort epoch 3: reduce_failed 0", "reduce round 1 epoch 4 with [0]")
	p.at(410, policy.Reduced{ID: 0, Round: 1, Epoch: 4}, "outer step 1 with [0]", "start round 2 with [0]")
}

func stalling() policy.Config {
	cfg := baseline()
	cfg.StallAfter = 3000
	return cfg
}

// reducing brings n workers to their first reduction, at time 100.
func reducing(t *testing.T, n int) *play {
	p := newPlay(t, stalling())
	p.start(n)
	for id := range n {
		p.quietly(100, policy.Arrival{ID: policy.ID(id), Round: 1})
	}
	return p
}

// progress sends what the participants of a ring have received, and lets the
// Timers pass that come before.
func (p *play) progress(now policy.Time, epoch policy.Epoch, received ...int64) {
	for p.wake < now {
		p.quietly(p.wake, policy.Timer{})
	}
	for id, m := range received {
		from := policy.ID((id + len(received) - 1) % len(received))
		p.quietly(now, policy.Progress{ID: policy.ID(id), Epoch: epoch, Received: m, From: from})
	}
}

// why returns the reason of the first of the last actions by that rule.
func (p *play) why(rule policy.Rule) *policy.Reason {
	for _, a := range p.last {
		if a.Why().Rule == rule {
			return a.Why()
		}
	}
	p.t.Fatalf("nothing was done by rule %s", rule)
	return nil
}

// TestABrokenLinkIsGoneAround: nothing arrives at 2 from 1, though both live.
func TestABrokenLinkIsGoneAround(t *testing.T) {
	p := reducing(t, 4)
	p.progress(1000, 1, 1, 1, 1, 1)
	p.progress(2000, 1, 2, 2, 1, 2)
	p.progress(3000, 1, 2, 2, 1, 2)
	p.progress(4000, 1, 2, 2, 1, 2)
	p.quietly(4000, policy.Timer{})
	p.at(5000, policy.Timer{}, "abort epoch 1: progress 2", "reduce round 1 epoch 2 with [0 1 3 2]")
	if why := p.why(policy.RuleProgress); why.Stalled != 3000 || *why.Peer != 1 || why.Misses != 1 {
		t.Errorf("the reason is %+v", why)
	}
}

// TestSlowIsNotStalled: as long as one participant receives something, nobody
// is evicted, however long it takes.
func TestSlowIsNotStalled(t *testing.T) {
	p := reducing(t, 3)
	for i := range 100 {
		p.progress(policy.Time(1000*(i+1)), 1, 0, 0, int64(i))
		if p.wake <= policy.Time(1000*(i+1)) {
			p.at(p.wake, policy.Timer{})
		}
	}
}

// TestWhoStandsStillAndIsSilentIsEvicted, before its heartbeats do it.
func TestWhoStandsStillAndIsSilentIsEvicted(t *testing.T) {
	p := reducing(t, 3)
	for now := policy.Time(1000); now <= 3000; now += 1000 {
		p.progress(now, 1, 5, 5)
		p.quietly(now, policy.Timer{})
	}
	p.progress(4000, 1, 5, 5)
	p.at(4000, policy.Timer{}, "evict 2: progress", "abort epoch 1: lost 2", "reduce round 1 epoch 2 with [0 1]")
	if why := p.why(policy.RuleProgress); why.Silent != 4000 || why.Stalled != 3000 {
		t.Errorf("the reason is %+v", why)
	}
}

func TestTheLostAreEvictedAtOnce(t *testing.T) {
	for _, rule := range []policy.Rule{policy.RuleGaveUp, policy.RuleConnection} {
		p := newPlay(t, baseline())
		p.start(3)
		p.arrive(100, 1, 0, 1)
		p.at(150, policy.Lost{ID: 2, Rule: rule}, "evict 2: "+string(rule),
			"close round 1 with [0 1] without []: all_arrived", "reduce round 1 epoch 1 with [0 1]")
		p.at(160, policy.Lost{ID: 0, Rule: rule}, "evict 0: "+string(rule), "abort epoch 1: lost 0", "reduce round 1 epoch 2 with [1]")
		p.at(170, policy.Lost{ID: 0, Rule: rule})
	}
}

// TestUnreachableNeedsAMissedHeartbeat: anybody can forge such a message.
func TestUnreachableNeedsAMissedHeartbeat(t *testing.T) {
	p := newPlay(t, baseline())
	p.start(2)
	p.at(100, policy.Unreachable{ID: 1})
	p.at(900, policy.Heartbeat{ID: 1})
	p.at(1000, policy.Heartbeat{ID: 0})
	p.at(1000, policy.Timer{})
	p.at(1850, policy.Unreachable{ID: 1})
	p.at(2000, policy.Heartbeat{ID: 0})
	p.at(2000, policy.Timer{}, "evict 1: connection")
}

// TestARoundThatLosesAllItsParticipantsOpensAgain has the only participants
// of a reduction leave: the round goes to the late ones, and counts once.
func TestARoundThatLosesAllItsParticipantsOpensAgain(t *testing.T) {
	p := inRound2(t, 4, func(s *policy.Straggler) { s.Quorum = 0.5; s.SidelineLimit = 1 })
	p.arrive(300, 2, 0, 1)
	p.at(301, policy.Timer{}, "close round 2 with [0 1] without [2 3]: deadline",
		"sideline 2 for miss 1 of 1", "sideline 3 for miss 1 of 1", "reduce round 2 epoch 2 with [0 1]")
	p.at(310, policy.Arrival{ID: 2, Round: 2})
	p.at(320, policy.Leave{ID: 0}, "evict 0: leave", "abort epoch 2: lost 0", "reduce round 2 epoch 3 with [1]")
	p.at(330, policy.Leave{ID: 1}, "evict 1: leave", "abort epoch 3: lost 1", "rejoin 2")
	p.at(330, policy.Timer{}, "close round 2 with [2] without [3]: quorum", "sideline 3 for miss 1 of 1", "reduce round 2 epoch 4 with [2]")
	p.at(340, policy.Reduced{ID: 2, Round: 2, Epoch: 4}, "outer step 2 with [2]", "start round 3 with [2]", "3 fetches state 2 from 2: resync")
}

func TestAJoinerTakesPartOnceItHasTheState(t *testing.T) {
	p := newPlay(t, baseline())
	p.start(2)
	p.at(50, policy.Join{ID: 7}, "admit 7", "7 fetches state 0 from 0: join")
	p.arrive(100, 1, 0, 1)
	p.at(160, policy.StateFetched{ID: 7, OuterSteps: 0}, "7 has fetched", "start round 1 with [7]")
	p.at(260, policy.Arrival{ID: 7, Round: 1}, "close round 1 with [0 1 7] without []: all_arrived", "reduce round 1 epoch 1 with [0 1 7]")
}

func TestAStateThatIsOutOfDateIsFetchedAgain(t *testing.T) {
	p := inRound2(t, 2, func(s *policy.Straggler) { s.Quorum = 0.5 })
	p.at(290, policy.Join{ID: 7}, "admit 7", "7 fetches state 1 from 0: join")
	p.arrive(300, 2, 0, 1)
	p.at(301, policy.Timer{}, "close round 2 with [0 1] without [7]: deadline", "sideline 7 for miss 0 of 2", "reduce round 2 epoch 2 with [0 1]")
	p.reduce(400, 2, 2, 0, 1)
	p.at(410, policy.StateFetched{ID: 7, OuterSteps: 1}, "7 fetches state 2 from 0: stale_fetch")
	p.at(420, policy.StateFetched{ID: 7, OuterSteps: 2}, "7 has fetched", "start round 3 with [7]")
}

func TestAFetchGoesToAnotherDonor(t *testing.T) {
	p := newPlay(t, baseline())
	p.start(3)
	p.at(50, policy.Join{ID: 7}, "admit 7", "7 fetches state 0 from 0: join")
	p.at(60, policy.FetchFailed{ID: 7}, "7 fetches state 0 from 1: fetch_failed")
	p.at(70, policy.Leave{ID: 1}, "evict 1: leave", "7 fetches state 0 from 2: fetch_failed")
	p.at(80, policy.Join{ID: 8}, "admit 8", "8 fetches state 0 from 0: join") // 0 and 2 have served once each
	p.at(90, policy.Leave{ID: 2}, "evict 2: leave", "7 fetches state 0 from 0: fetch_failed")
	p.at(95, policy.FetchFailed{ID: 8}, "8 fetches state 0 from 0: fetch_failed") // there is no other
	p.at(99, policy.Leave{ID: 0}, "evict 0: leave", "finish false: state_lost")
}

func TestADonorThatCrashedIsReplacedWhenItIsEvicted(t *testing.T) {
	p := newPlay(t, baseline())
	p.start(2)
	p.at(600, policy.Join{ID: 7}, "admit 7", "7 fetches state 0 from 0: join")
	for now := policy.Time(1000); now < 5000; now += 1000 {
		p.quietly(now, policy.Heartbeat{ID: 1})
		p.quietly(now, policy.Heartbeat{ID: 7})
		p.at(now, policy.Timer{})
	}
	p.quietly(5000, policy.Heartbeat{ID: 1})
	p.quietly(5000, policy.Heartbeat{ID: 7})
	p.at(5000, policy.Timer{}, "evict 0: heartbeat", "7 fetches state 0 from 1: fetch_failed")
}

func TestTheRunIsDoneAfterItsTarget(t *testing.T) {
	cfg := baseline()
	cfg.TargetOuterSteps = 1
	p := newPlay(t, cfg)
	p.start(1)
	p.arrive(100, 1, 0)
	p.at(200, policy.Reduced{ID: 0, Round: 1, Epoch: 1}, "outer step 1 with [0]", "finish true: target")
	if p.m.OuterSteps() != 1 || p.m.Members() != 1 {
		t.Errorf("%d outer steps and %d members, want 1 and 1", p.m.OuterSteps(), p.m.Members())
	}
}

func TestATimerThatCameTooEarlyIsAskedForAgain(t *testing.T) {
	p := newPlay(t, baseline())
	p.start(1)
	p.wake = 0
	p.quietly(999, policy.Timer{})
	if p.wake != 1000 {
		t.Errorf("after a Timer at 999 the machine asks for one at %d, want 1000", p.wake)
	}
}

func TestADuplicateArrivalCountsOnce(t *testing.T) {
	p := newPlay(t, baseline())
	p.start(2)
	p.quietly(100, policy.Arrival{ID: 0, Round: 1})
	if actions := p.m.Step(110, policy.Arrival{ID: 0, Round: 1}); len(actions) > 0 {
		t.Errorf("the duplicate did %+v", actions)
	}
	if actions := p.m.Step(120, policy.Arrival{ID: 1, Round: 2}); len(actions) > 0 {
		t.Errorf("the arrival of a round to come did %+v", actions)
	}
}

func TestConfigNamesWhatIsWrong(t *testing.T) {
	for want, change := range map[string]func(*policy.Config){
		"policy: the heartbeat period must be at least 1 µs":                   func(c *policy.Config) { c.HeartbeatPeriod = 0 },
		"policy: the heartbeat miss threshold must be at least 1":              func(c *policy.Config) { c.HeartbeatMissThreshold = 0 },
		"policy: the number of outer steps must be at least 1":                 func(c *policy.Config) { c.TargetOuterSteps = 0 },
		"policy: quorum: is 1.5; it must lie in (0, 1]":                        func(c *policy.Config) { strategy(c).Quorum = 1.5 },
		"policy: k: is -1; it must lie in [0, 1000]":                           func(c *policy.Config) { strategy(c).K = -1 },
		"policy: window: is 0; it must lie between 1 and 1000000":              func(c *policy.Config) { strategy(c).Window = 0 },
		"policy: min_history: is 0; it must be at least 1":                     func(c *policy.Config) { strategy(c).MinHistory = 0 },
		"policy: min_slack: is -1; it must lie between 0 and 1000000000000000": func(c *policy.Config) { strategy(c).MinSlack = -1 },
		"policy: sideline_limit: is -1; it must not be negative":               func(c *policy.Config) { strategy(c).SidelineLimit = -1 },
	} {
		cfg := straggler(nil)
		change(&cfg)
		if _, err := policy.New(cfg); err == nil || err.Error() != want {
			t.Errorf("error = %v, want %s", err, want)
		}
	}
}

// TestTheMachineKeepsItsOwnParameters changes the caller's copy.
func TestTheMachineKeepsItsOwnParameters(t *testing.T) {
	cfg := straggler(nil)
	m, err := policy.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	strategy(&cfg).Quorum = -1
	p := &play{t: t, m: m}
	p.start(2)
	p.arrive(100, 1, 0, 1)
	p.reduce(200, 1, 1, 0, 1)
	p.arrive(300, 2, 0)
	p.at(301, policy.Timer{})
}

func TestALateTimerLeavesTheChecksOnTheGrid(t *testing.T) {
	p := newPlay(t, baseline())
	p.start(1)
	p.quietly(1300, policy.Timer{})
	if p.wake != 2000 {
		t.Errorf("after a Timer at 1,300 the next is asked for at %d, want 2,000", p.wake)
	}
}

func TestCatchingUpIsCredited(t *testing.T) {
	behind := func() *play {
		p := inRound2(t, 4, nil)
		p.arrive(300, 2, 0, 1, 2)
		p.quietly(301, policy.Timer{})
		p.reduce(350, 2, 2, 0, 1, 2)
		p.at(380, policy.StateFetched{ID: 3, OuterSteps: 2}, "3 has fetched", "start round 3 with [3]") // 30 behind
		p.at(450, policy.Arrival{ID: 0, Round: 3}, "deadline at 451")
		p.arrive(450, 3, 1, 2)
		return p
	}
	t.Run("in vain", func(t *testing.T) {
		p := behind()
		p.at(481, policy.Timer{},
			"close round 3 with [0 1 2] without [3]: deadline", "sideline 3 for miss 2 of 2", "reduce round 3 epoch 3 with [0 1 2]")
		if d := p.last[0].Why().Deadline; d.At != 451 || d.Credit != 30 {
			t.Errorf("closed with the deadline %+v, want one at 451 and a credit of 30", d)
		}
	})
	t.Run("just enough", func(t *testing.T) {
		p := behind()
		p.at(481, policy.Arrival{ID: 3, Round: 3},
			"rejoin 3", "close round 3 with [0 1 2 3] without []: all_arrived", "reduce round 3 epoch 3 with [0 1 2 3]")
	})
	t.Run("lost with the member", func(t *testing.T) {
		p := behind()
		p.at(460, policy.Leave{ID: 3}, "evict 3: leave", "close round 3 with [0 1 2] without []: all_arrived", "reduce round 3 epoch 3 with [0 1 2]")
	})
	t.Run("not for a joiner", func(t *testing.T) {
		p := inRound2(t, 3, nil)
		p.at(210, policy.Join{ID: 3}, "admit 3", "3 fetches state 1 from 0: join")
		p.at(250, policy.StateFetched{ID: 3, OuterSteps: 1}, "3 has fetched", "start round 2 with [3]")
		p.arrive(300, 2, 0, 1, 2)
		p.at(301, policy.Timer{}, "close round 2 with [0 1 2] without [3]: deadline", "sideline 3 for miss 1 of 2", "reduce round 2 epoch 2 with [0 1 2]")
	})
}

// TestCatchingUpIsCreditedWhereRoundsOverlap: a deadline counts from the first
// arrival, and whoever comes first is at a round since it arrived in the one before.
func TestCatchingUpIsCreditedWhereRoundsOverlap(t *testing.T) {
	cfg := straggler(func(s *policy.Straggler) { s.MinSlack, s.SidelineLimit = 40, 9 })
	cfg.Overlap = true
	p := newPlay(t, cfg)
	p.start(4)
	p.arrive(100, 1, 0, 1, 2, 3)
	p.reduce(110, 1, 1, 0, 1, 2, 3)
	p.arrive(200, 2, 0, 1, 2) // 3 is not yet there
	p.quietly(240, policy.Timer{})
	p.reduce(250, 2, 2, 0, 1, 2)
	p.at(255, policy.StateFetched{ID: 3, OuterSteps: 2}, "3 has fetched", "start round 3 with [3]")
	p.at(300, policy.Arrival{ID: 0, Round: 3}, "deadline at 340")
	p.arrive(300, 3, 1, 2)
	const credit = (255 - 200) + (250 - 240) // since the first arrival, and a reduction for a round trip
	p.at(340+credit, policy.Timer{},
		"close round 3 with [0 1 2] without [3]: deadline", "sideline 3 for miss 2 of 9", "reduce round 3 epoch 3 with [0 1 2]")
	// What that round was put off by does not put the next one off.
	p.reduce(415, 3, 3, 0, 1, 2)
	p.at(420, policy.StateFetched{ID: 3, OuterSteps: 3}, "3 has fetched", "start round 4 with [3]")
	p.at(450, policy.Arrival{ID: 0, Round: 4}, "deadline at 490")
	p.arrive(450, 4, 1, 2)
	p.at(490+credit, policy.Timer{},
		"close round 4 with [0 1 2] without [3]: deadline", "sideline 3 for miss 3 of 9", "reduce round 4 epoch 4 with [0 1 2]")
}

func (p *play) reduced(now policy.Time, round int, epoch policy.Epoch, who ...policy.ID) {
	p.t.Helper()
	for _, id := range who {
		p.at(now, policy.Reduced{ID: id, Round: round, Epoch: epoch})
	}
}

// joining brings two workers into round 1 and lets worker 2 join late.
func joining(t *testing.T, mode policy.JoinMode) *play {
	cfg := baseline()
	cfg.Join = mode
	p := newPlay(t, cfg)
	p.start(2)
	p.at(500, policy.Join{ID: 2}, "admit 2", "2 fetches state 0 from 0: join")
	return p
}

// TestJoinNext: the round goes on without the joiner, which gets the outcome
// that it has seen happen and begins with the next.
func TestJoinNext(t *testing.T) {
	p := joining(t, policy.JoinNext)
	p.at(600, policy.StateFetched{ID: 2}, "2 has fetched")
	p.arrive(700, 1, 0, 1)
	p.reduced(800, 1, 1, 0)
	p.at(800, policy.Reduced{ID: 1, Round: 1, Epoch: 1}, "outer step 1 with [0 1]", "start round 2 with [0 1]", "2 fetches state 1 from 0: resync")
	p.at(900, policy.StateFetched{ID: 2, OuterSteps: 1}, "2 has fetched", "start round 2 with [2]")
}

// TestJoinZeros: the joiner takes part in the reduction and begins the next
// round with everybody else.
func TestJoinZeros(t *testing.T) {
	p := joining(t, policy.JoinZeros)
	p.at(600, policy.StateFetched{ID: 2}, "2 has fetched")
	p.quietly(700, policy.Arrival{ID: 0, Round: 1})
	p.at(700, policy.Arrival{ID: 1, Round: 1}, "close round 1 with [0 1 2] without []: all_arrived", "reduce round 1 epoch 1 with [0 1 2]")
	for _, a := range p.last {
		if r, ok := a.(*policy.Reduce); ok && !slices.Equal(r.Zero, []policy.ID{2}) {
			t.Errorf("zeros from %v, want worker 2", r.Zero)
		}
	}
	p.reduced(800, 1, 1, 0, 1)
	p.at(800, policy.Reduced{ID: 2, Round: 1, Epoch: 1}, "outer step 1 with [0 1 2]", "start round 2 with [0 1 2]")
}

// TestJoinBlocking: a round that could close lets the joiners in that are there,
// and waits for them; who joins meanwhile waits for the next.
func TestJoinBlocking(t *testing.T) {
	cfg := baseline()
	cfg.Join = policy.JoinBlocking
	p := newPlay(t, cfg)
	p.start(2)
	p.at(500, policy.Join{ID: 2}, "admit 2")
	p.at(600, policy.Join{ID: 3}, "admit 3")
	p.quietly(700, policy.Arrival{ID: 0, Round: 1})
	p.at(710, policy.Arrival{ID: 1, Round: 1}, "2 fetches state 0 from 0: join", "3 fetches state 0 from 1: join")
	p.at(720, policy.Join{ID: 4}, "admit 4")
	p.at(750, policy.StateFetched{ID: 2}, "2 has fetched")
	p.at(760, policy.Leave{ID: 3}, "evict 3: leave", "close round 1 with [0 1 2] without []: all_arrived", "reduce round 1 epoch 1 with [0 1 2]")
	if closed := p.last[1].(*policy.Close); closed.Held != 50 {
		t.Errorf("held for %d, want 50", closed.Held)
	}
	if r := p.last[2].(*policy.Reduce); !slices.Equal(r.Zero, []policy.ID{2}) {
		t.Errorf("zeros from %v, want worker 2", r.Zero)
	}
	p.reduced(800, 1, 1, 0, 1)
	p.at(800, policy.Reduced{ID: 2, Round: 1, Epoch: 1}, "outer step 1 with [0 1 2]", "start round 2 with [0 1 2]")
	p.arrive(900, 2, 0, 1)
	p.at(900, policy.Arrival{ID: 2, Round: 2}, "4 fetches state 1 from 0: join")
	p.at(910, policy.FetchFailed{ID: 4}, "4 fetches state 1 from 1: fetch_failed")
	p.at(920, policy.StateFetched{ID: 4, OuterSteps: 1}, "4 has fetched", "close round 2 with [0 1 2 4] without []: all_arrived", "reduce round 2 epoch 2 with [0 1 2 4]")
}

// TestJoinBlockingWithoutTheLate: whoever arrives while joiners are let in is on
// time, and the policy is asked again when they are.
func TestJoinBlockingWithoutTheLate(t *testing.T) {
	for _, arrives := range []bool{true, false} {
		cfg := baseline()
		cfg.Join, cfg.Policy = policy.JoinBlocking, &policy.Backup{B: 1}
		p := newPlay(t, cfg)
		p.start(3)
		p.at(50, policy.Join{ID: 3}, "admit 3")
		p.arrive(100, 1, 0, 1)
		p.at(100, policy.Timer{}, "3 fetches state 0 from 0: join")
		if arrives {
			p.quietly(130, policy.Arrival{ID: 2, Round: 1})
			p.at(150, policy.StateFetched{ID: 3}, "3 has fetched", "close round 1 with [0 1 2 3] without []: all_arrived", "reduce round 1 epoch 1 with [0 1 2 3]")
			continue
		}
		p.at(150, policy.StateFetched{ID: 3}, "3 has fetched")
		p.at(150, policy.Timer{}, "close round 1 with [0 1 3] without [2]: quorum", "sideline 2 for miss 1 of 0", "reduce round 1 epoch 1 with [0 1 3]")
		if closed := p.last[0].(*policy.Close); closed.Held != 50 || closed.Overslept != 0 {
			t.Errorf("%+v: want it held for 50, and not overslept", closed)
		}
	}
}

// hasty is a policy that sets an early deadline when it is asked for the second time
// with two arrivals.
type hasty struct {
	policy.Backup
	asked int
}

func (h *hasty) Deadline(r *policy.Round) *policy.Deadline {
	if r.Deadline == nil {
		return &policy.Deadline{At: r.Start + 500}
	}
	if r.Arrived < 2 {
		return nil
	}
	if h.asked++; h.asked != 2 {
		return nil
	}
	return &policy.Deadline{At: r.Now}
}

// TestADeadlineWhileJoinersAreLetIn, set by the Timer that lets them in, has come with
// it: no other one is asked for at the same time.
func TestADeadlineWhileJoinersAreLetIn(t *testing.T) {
	cfg := baseline()
	cfg.Join, cfg.Policy = policy.JoinBlocking, &hasty{Backup: policy.Backup{B: 1}}
	p := newPlay(t, cfg)
	p.start(3)
	p.at(50, policy.Join{ID: 3}, "admit 3")
	p.quietly(90, policy.Arrival{ID: 0, Round: 1})
	p.quietly(100, policy.Arrival{ID: 1, Round: 1})
	p.at(100, policy.Timer{}, "3 fetches state 0 from 0: join", "deadline at 100")
	if p.wake != 1000 {
		t.Errorf("wakes at %d, want to look for the silent at 1000", p.wake)
	}
}

// TestLearnersTakeOver when everybody else is gone.
func TestLearnersTakeOver(t *testing.T) {
	for _, mode := range []policy.JoinMode{policy.JoinNext, policy.JoinZeros} { // a blocking one has no state
		p := joining(t, mode)
		p.at(600, policy.StateFetched{ID: 2}, "2 has fetched")
		p.at(650, policy.Leave{ID: 0}, "evict 0: leave")
		p.at(660, policy.Leave{ID: 1}, "evict 1: leave", "start round 1 with [2]")
	}
}

func TestWhoCannotFetchIsEvicted(t *testing.T) {
	p := joining(t, policy.JoinRunning)
	for _, donor := range []string{"1", "0", "1", "0"} {
		p.at(600, policy.FetchFailed{ID: 2}, "2 fetches state 0 from "+donor+": fetch_failed")
	}
	p.at(600, policy.FetchFailed{ID: 2}, "evict 2: fetch_failed")
}

// TestFinishSteps: a sidelined member is left to its inner steps, and catches
// up when it has finished them.
func TestFinishSteps(t *testing.T) {
	p := newPlay(t, straggler(func(s *policy.Straggler) { s.Quorum, s.FinishSteps = 0.5, true }))
	p.start(3)
	p.arrive(100, 1, 0, 1, 2)
	p.reduced(200, 1, 1, 0, 1)
	p.at(200, policy.Reduced{ID: 2, Round: 1, Epoch: 1}, "outer step 1 with [0 1 2]", "start round 2 with [0 1 2]")
	p.at(300, policy.Arrival{ID: 0, Round: 2}, "deadline at 301")
	p.at(300, policy.Arrival{ID: 1, Round: 2})
	p.at(301, policy.Timer{}, "close round 2 with [0 1] without [2]: deadline", "sideline 2 for miss 1 of 2", "reduce round 2 epoch 2 with [0 1]")
	p.at(400, policy.Reduced{ID: 0, Round: 2, Epoch: 2})
	p.at(400, policy.Reduced{ID: 1, Round: 2, Epoch: 2}, "outer step 2 with [0 1]", "start round 3 with [0 1]")
	p.at(450, policy.Arrival{ID: 2, Round: 2}, "2 fetches state 2 from 0: resync")
	p.at(460, policy.StateFetched{ID: 2, OuterSteps: 2}, "2 has fetched", "start round 3 with [2]")
}

// TestADeadlineSetBeforeAnyArrival counts from the first arrival when the round
// closes, as every other one does.
func TestADeadlineSetBeforeAnyArrival(t *testing.T) {
	cfg := baseline()
	cfg.Policy = &policy.FixedDeadline{After: 500, Factor: 1, Quorum: 0.5}
	p := newPlay(t, cfg)
	p.start(3)
	p.at(100, policy.Arrival{ID: 0, Round: 1}, "deadline at 500")
	p.at(110, policy.Arrival{ID: 1, Round: 1})
	p.at(120, policy.Arrival{ID: 2, Round: 1}, "close round 1 with [0 1 2] without []: all_arrived", "reduce round 1 epoch 1 with [0 1 2]")
	p.reduced(200, 1, 1, 0, 1)
	p.at(200, policy.Reduced{ID: 2, Round: 1, Epoch: 1}, "outer step 1 with [0 1 2]", "start round 2 with [0 1 2]", "deadline at 700")
	p.arrive(300, 2, 0, 1)
	p.at(700, policy.Timer{}, "close round 2 with [0 1] without [2]: deadline", "sideline 2 for miss 1 of 0", "reduce round 2 epoch 2 with [0 1]")
	if d := p.last[0].Why().Deadline; d.Offset != 400 || d.At != 700 {
		t.Errorf("closed with the deadline %+v, want one 400 after the first arrival", d)
	}
}
