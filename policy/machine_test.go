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
	p.last = slices.Clone(p.m.Step(now, e))
	for _, a := range p.last {
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
		"policy: the heartbeat period is 0 µs: it must be at least 1 µs":   func(c *policy.Config) { c.HeartbeatPeriod = 0 },
		"policy: the heartbeat miss threshold is 0: it must be at least 1": func(c *policy.Config) { c.HeartbeatMissThreshold = 0 },
		"policy: the number of outer steps is 0: it must be at least 1":    func(c *policy.Config) { c.TargetOuterSteps = 0 },
		"policy: quorum is 1.5: it must lie in (0, 1]":                     func(c *policy.Config) { strategy(c).Quorum = 1.5 },
		"policy: k is -1: it must lie in [0, 1000]":                        func(c *policy.Config) { strategy(c).K = -1 },
		"policy: window is 0: it must lie between 1 and 1000000":           func(c *policy.Config) { strategy(c).Window = 0 },
		"policy: min_history is 0: it must be at least 1":                  func(c *policy.Config) { strategy(c).MinHistory = 0 },
		"policy: min_slack is -1 µs: it must lie between 0 and 1e+15 µs":   func(c *policy.Config) { strategy(c).MinSlack = -1 },
		"policy: sideline_limit is -1: it must not be negative":            func(c *policy.Config) { strategy(c).SidelineLimit = -1 },
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
