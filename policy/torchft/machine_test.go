package torchft_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"testbed/policy"
	"testbed/policy/torchft"
)

// story is a run whose events are written by hand.
type story struct {
	t      *testing.T
	m      *torchft.Machine
	wake   policy.Time
	quorum int64 // the id of the last one
	said   []string
}

// newStory begins with workers that hold the state. They have a heartbeat each
// 1,000 µs, and 5,000 µs of patience, unless the parameters say otherwise.
func newStory(t *testing.T, workers int, p torchft.Policy) *story {
	t.Helper()
	s := emptyStory(t, 1, p)
	for id := range workers {
		s.at(0, policy.Join{ID: policy.ID(id), HasState: true}, fmt.Sprintf("admit w%d", id), fmt.Sprintf("start 1 %d", id))
	}
	return s
}

// emptyStory begins with nobody in the groups of so many ranks.
func emptyStory(t *testing.T, ranks int, p torchft.Policy) *story {
	t.Helper()
	m, err := torchft.New(policy.Config{HeartbeatPeriod: 1000, HeartbeatMissThreshold: 5, TargetOuterSteps: 4, Grouping: grouping(ranks)}, p)
	if err != nil {
		t.Fatal(err)
	}
	return &story{t: t, m: m}
}

// at sends an event and compares the actions, but for wake-ups and misses, with
// what is wanted.
func (s *story) at(now policy.Time, e policy.Event, want ...string) {
	s.t.Helper()
	var got []string
	for _, a := range s.m.Step(now, e) {
		if w, ok := a.(*policy.WakeAt); ok {
			s.wake = w.At
		}
		if c, ok := a.(*policy.Close); ok {
			s.quorum = c.QuorumID
		}
		if what := say(a); what != "" {
			got = append(got, what)
		}
	}
	s.said = append(s.said, got...)
	if !slices.Equal(got, want) {
		s.t.Fatalf("at %d, %T%+v:\n got %s\nwant %s", now, e, e, strings.Join(got, "; "), strings.Join(want, "; "))
	}
}

func say(a policy.Action) string {
	list := func(ids []policy.ID) string { return strings.Trim(fmt.Sprint(ids), "[]") }
	switch a := a.(type) {
	case *policy.Admit:
		return fmt.Sprintf("admit w%d", a.ID)
	case *policy.Reject:
		return fmt.Sprintf("reject w%d", a.ID)
	case *policy.StartRound:
		return fmt.Sprintf("start %d %s", a.Round, list(a.IDs))
	case *policy.Arrived:
		if a.Late {
			return fmt.Sprintf("late w%d", a.ID)
		}
		return fmt.Sprintf("arrived w%d", a.ID)
	case *policy.ArmDeadline:
		return fmt.Sprintf("until %d", a.At)
	case *policy.Close:
		return fmt.Sprintf("close %d %s, %s, quorum %d, without %s", a.Round, a.Rule, list(a.Participants), a.QuorumID, list(a.Late))
	case *policy.Reduce:
		text := fmt.Sprintf("reduce %d.%d %s zero %s", a.Round, a.Epoch, list(a.Participants), list(a.Zero))
		for _, r := range a.Repeated {
			text += fmt.Sprintf(", w%d again for w%d", r.Donor, r.ID)
		}
		return text
	case *policy.Abort:
		return fmt.Sprintf("abort %d %s, failure %d", a.Epoch, a.Rule, a.Misses)
	case *policy.OuterStep:
		return fmt.Sprintf("step %d", a.Round)
	case *policy.Diverge:
		return fmt.Sprintf("step %d twice, by %s in lineage %d beside %d", a.Round, list(a.Participants), a.Lineage, a.Other)
	case *policy.Undo:
		return fmt.Sprintf("%d steps of lineage %d are lost with w%d, which goes on in %d", a.Steps, a.Lineage, a.ID, a.Other)
	case *policy.Sideline:
		return fmt.Sprintf("sideline w%d", a.ID)
	case *policy.Rejoin:
		return fmt.Sprintf("rejoin w%d", a.ID)
	case *policy.Evict:
		return fmt.Sprintf("evict w%d %s %t", a.ID, a.Rule, a.Rejoin)
	case *policy.Fetch:
		return fmt.Sprintf("fetch w%d from w%d at %d", a.ID, a.From, a.OuterSteps)
	case *policy.Fetched:
		return fmt.Sprintf("fetched w%d", a.ID)
	case *policy.Finish:
		return fmt.Sprintf("finish %t %s", a.Complete, a.Rule)
	}
	return ""
}

// alive has the workers give heartbeats, and the machine hear them at its checks,
// from one multiple of 1,000 to another.
func (s *story) alive(from, to policy.Time, ids ...policy.ID) {
	s.t.Helper()
	for now := from; now <= to; now += 1000 {
		for _, id := range ids {
			s.at(now, policy.Heartbeat{ID: id})
		}
		s.at(now, policy.Timer{})
	}
}

// reduced has all participants but the last hold the outcome.
func (s *story) reduced(now policy.Time, round int, epoch policy.Epoch, ids ...policy.ID) {
	s.t.Helper()
	for _, id := range ids {
		s.at(now, policy.Reduced{ID: id, Round: round, Epoch: epoch})
	}
}

// TestAStraggler costs join_timeout once. Then the others have their fast path,
// until it asks: it comes in with them, with the state and nothing to contribute.
func TestAStraggler(t *testing.T) {
	s := newStory(t, 4, torchft.Policy{MinReplicas: 1, JoinTimeout: 3000})
	s.at(100, policy.Arrival{ID: 0, Round: 1}, "arrived w0")
	s.at(100, policy.Arrival{ID: 1, Round: 1}, "arrived w1")
	s.at(200, policy.Arrival{ID: 2, Round: 1}, "arrived w2", "until 3100")
	s.alive(1000, 3000, 0, 1, 2, 3)
	if s.wake != 3100 {
		t.Fatalf("a Timer at %d", s.wake)
	}
	s.at(3100, policy.Timer{}, "close 1 deadline, 0 1 2, quorum 1, without 3", "sideline w3", "reduce 1.1 0 1 2 zero ")
	s.reduced(3200, 1, 1, 0, 1)
	s.at(3200, policy.Reduced{ID: 2, Round: 1, Epoch: 1}, "step 1", "start 2 0 1 2")
	s.at(3300, policy.Arrival{ID: 0, Round: 2}, "arrived w0")
	s.at(3300, policy.Arrival{ID: 1, Round: 2}, "arrived w1")
	s.at(3400, policy.Arrival{ID: 2, Round: 2}, "arrived w2", "close 2 quorum, 0 1 2, quorum 1, without 3", "sideline w3", "reduce 2.2 0 1 2 zero ")
	s.at(3450, policy.Arrival{ID: 3, Round: 1}, "late w3")
	s.reduced(3500, 2, 2, 0, 1)
	s.at(3500, policy.Reduced{ID: 2, Round: 2, Epoch: 2}, "step 2", "start 3 0 1 2")
	s.at(3600, policy.Arrival{ID: 0, Round: 3}, "arrived w0")
	s.at(3600, policy.Arrival{ID: 1, Round: 3}, "arrived w1", "until 6450")
	s.at(3600, policy.Arrival{ID: 2, Round: 3}, "arrived w2", "rejoin w3", "fetch w3 from w0 at 2")
	s.at(3650, policy.StateFetched{ID: 3, OuterSteps: 2}, "fetched w3", "close 3 all_arrived, 0 1 2 3, quorum 2, without ", "reduce 3.3 0 1 2 3 zero 3")
}

// TestRanks: a group asks, votes and heals when all its ranks do, each rank from the
// same one of another group, and ends with the first of them.
func TestRanks(t *testing.T) {
	s := emptyStory(t, 2, torchft.Policy{MinReplicas: 1, JoinTimeout: 1000})
	s.at(0, policy.Join{ID: 0, HasState: true}, "admit w0")
	s.at(0, policy.Join{ID: 1, HasState: true}, "admit w1", "start 1 0 1")
	s.at(0, policy.Join{ID: 3, HasState: true}, "admit w3")
	s.at(0, policy.Join{ID: 2, HasState: true}, "admit w2", "start 1 2 3")
	s.at(100, policy.Arrival{ID: 0, Round: 1}, "arrived w0")
	s.at(100, policy.Arrival{ID: 2, Round: 1}, "arrived w2")
	s.at(110, policy.Arrival{ID: 1, Round: 1}, "arrived w1")
	s.at(120, policy.Arrival{ID: 3, Round: 1}, "arrived w3", "close 1 all_arrived, 0 1 2 3, quorum 1, without ", "reduce 1.1 0 1 2 3 zero ")
	s.reduced(200, 1, 1, 0, 1, 3)
	s.at(200, policy.Reduced{ID: 2, Round: 1, Epoch: 1}, "step 1", "start 2 0 1 2 3")
	// One rank's vote against a step is its group's.
	for id := range policy.ID(4) {
		s.m.Step(300, policy.Arrival{ID: id, Round: 2})
	}
	s.reduced(400, 2, 2, 0, 2)
	s.at(400, policy.ReduceFailed{ID: 3, Round: 2, Epoch: 2, Alone: true})
	s.at(400, policy.Reduced{ID: 1, Round: 2, Epoch: 2}, "step 2", "abort 2 reduce_failed, failure 1", "start 3 0 1")
	s.at(500, policy.Arrival{ID: 0, Round: 3}, "arrived w0")
	s.at(500, policy.Arrival{ID: 1, Round: 3}, "arrived w1", "fetch w2 from w0 at 2", "fetch w3 from w1 at 2")
	s.at(600, policy.StateFetched{ID: 3, OuterSteps: 2}, "fetched w3")
	s.at(600, policy.StateFetched{ID: 2, OuterSteps: 2}, "fetched w2", "close 3 all_arrived, 0 1 2 3, quorum 2, without ", "reduce 3.3 0 1 2 3 zero 2 3")
	// One rank's death is its group's. It lives again when all of them are back.
	s.at(700, policy.Lost{ID: 3, Rule: policy.RuleGaveUp}, "evict w3 gave_up true", "evict w2 lost true", "abort 3 lost, failure 1")
	s.at(800, policy.Join{ID: 2}, "admit w2")
	s.alive(1000, 1000, 0, 1, 2)
	s.at(1100, policy.Lost{ID: 2, Rule: policy.RuleConnection}, "evict w2 connection true")
	s.at(1200, policy.Join{ID: 2}, "admit w2")
	s.at(1300, policy.Join{ID: 3, Incarnation: 1}, "admit w3", "until 1700")
	if n := s.m.Members(); n != 4 {
		t.Errorf("%d members", n)
	}
	s.at(1700, policy.Timer{}, "fetch w2 from w0 at 2", "fetch w3 from w1 at 2")
	// What one of them has fetched alone is no state of the group's.
	s.at(1750, policy.StateFetched{ID: 2, OuterSteps: 2}, "fetched w2")
	s.at(1800, policy.FetchFailed{ID: 3}, "fetch w2 from w0 at 2", "fetch w3 from w1 at 2")
}

// TestAQuietRank: a group lives as long as the quietest of its ranks.
func TestAQuietRank(t *testing.T) {
	s := emptyStory(t, 2, torchft.Policy{MinReplicas: 1, JoinTimeout: 100_000})
	for id := range policy.ID(4) {
		s.m.Step(0, policy.Join{ID: id, HasState: true})
	}
	for id := range policy.ID(3) {
		s.m.Step(100, policy.Arrival{ID: id, Round: 1})
	}
	s.alive(1000, 4000, 0, 1, 2)
	s.at(5000, policy.Timer{}, "close 1 all_arrived, 0 1, quorum 1, without ", "reduce 1.1 0 1 zero ")
}

// three has three workers at round 2, all of which took part in round 1.
func three(t *testing.T, p torchft.Policy) *story {
	t.Helper()
	s := newStory(t, 3, p)
	s.at(100, policy.Arrival{ID: 0, Round: 1}, "arrived w0")
	s.at(100, policy.Arrival{ID: 1, Round: 1}, "arrived w1", fmt.Sprintf("until %d", 100+p.JoinTimeout))
	s.at(100, policy.Arrival{ID: 2, Round: 1}, "arrived w2", "close 1 all_arrived, 0 1 2, quorum 1, without ", "reduce 1.1 0 1 2 zero ")
	s.reduced(200, 1, 1, 0, 1)
	s.at(200, policy.Reduced{ID: 2, Round: 1, Epoch: 1}, "step 1", "start 2 0 1 2")
	return s
}

// TestTheDead cost heartbeat_timeout, where that comes before join_timeout.
func TestTheDead(t *testing.T) {
	s := three(t, torchft.Policy{MinReplicas: 1, JoinTimeout: 100_000})
	s.at(300, policy.Arrival{ID: 0, Round: 2}, "arrived w0")
	s.at(300, policy.Arrival{ID: 1, Round: 2}, "arrived w1", "until 100300")
	s.alive(1000, 5000, 0, 1)
	if s.wake != 5100 { // its last sign of life was its request
		t.Fatalf("a Timer at %d", s.wake)
	}
	s.at(5100, policy.Timer{}, "close 2 all_arrived, 0 1, quorum 2, without ", "reduce 2.2 0 1 zero ")
	// It was not evicted: when it is heard again, it counts again.
	s.at(5200, policy.Arrival{ID: 2, Round: 2}, "late w2")
	s.reduced(5300, 2, 2, 0)
	s.at(5300, policy.Reduced{ID: 1, Round: 2, Epoch: 2}, "step 2", "start 3 0 1")
	s.at(5400, policy.Arrival{ID: 0, Round: 3}, "arrived w0", "until 105200")
	s.at(5400, policy.Arrival{ID: 1, Round: 3}, "arrived w1", "fetch w2 from w0 at 2")
}

// TestAFailedStep changes nobody's step, and gives the next quorum another id. The
// contributions are still there.
func TestAFailedStep(t *testing.T) {
	s := three(t, torchft.Policy{MinReplicas: 1, JoinTimeout: 1000})
	for id := range policy.ID(2) {
		s.m.Step(300, policy.Arrival{ID: id, Round: 2})
	}
	s.at(300, policy.Arrival{ID: 2, Round: 2}, "arrived w2", "close 2 all_arrived, 0 1 2, quorum 1, without ", "reduce 2.2 0 1 2 zero ")
	s.at(400, policy.ReduceFailed{ID: 2, Round: 2, Epoch: 2}, "abort 2 reduce_failed, failure 1", "until 1400", "close 2 all_arrived, 0 1 2, quorum 2, without ", "reduce 2.3 0 1 2 zero ")
	s.at(500, policy.ReduceFailed{ID: 0, Round: 2, Epoch: 2}) // of the attempt before
	s.at(500, policy.ReduceFailed{ID: 0, Round: 2, Epoch: 3}, "abort 3 reduce_failed, failure 2", "until 1500", "close 2 all_arrived, 0 1 2, quorum 3, without ", "reduce 2.4 0 1 2 zero ")
	s.reduced(600, 2, 4, 0, 1)
	s.at(600, policy.Reduced{ID: 2, Round: 2, Epoch: 4}, "step 2", "start 3 0 1 2")
	for id := range policy.ID(2) {
		s.m.Step(700, policy.Arrival{ID: id, Round: 3})
	}
	s.at(700, policy.Arrival{ID: 2, Round: 3}, "arrived w2", "close 3 all_arrived, 0 1 2, quorum 3, without ", "reduce 3.5 0 1 2 zero ")
}

// TestAVoteIsAGroupsOwn: one fails when the others have the outcome, or ends on its
// own, so that they get it. They take the step, and it lags by one, until it heals
// in the next quorum, which has another id.
func TestAVoteIsAGroupsOwn(t *testing.T) {
	for _, alone := range []bool{false, true} {
		s := three(t, torchft.Policy{MinReplicas: 2, JoinTimeout: 1000})
		for id := range policy.ID(2) {
			s.m.Step(300, policy.Arrival{ID: id, Round: 2})
		}
		s.at(300, policy.Arrival{ID: 2, Round: 2}, "arrived w2", "close 2 all_arrived, 0 1 2, quorum 1, without ", "reduce 2.2 0 1 2 zero ")
		s.reduced(400, 2, 2, 0)
		took := []string{"step 2", "abort 2 reduce_failed, failure 1", "start 3 0 1"}
		if alone {
			s.at(400, policy.ReduceFailed{ID: 2, Round: 2, Epoch: 2, Alone: true})
			s.at(400, policy.Reduced{ID: 1, Round: 2, Epoch: 2}, took...)
		} else {
			s.reduced(400, 2, 2, 1)
			s.at(400, policy.ReduceFailed{ID: 2, Round: 2, Epoch: 2}, took...)
		}
		s.at(500, policy.Arrival{ID: 0, Round: 3}, "arrived w0", "until 1400")
		s.at(600, policy.Arrival{ID: 1, Round: 3}, "arrived w1", "fetch w2 from w0 at 2")
		s.at(700, policy.StateFetched{ID: 2, OuterSteps: 2}, "fetched w2", "close 3 all_arrived, 0 1 2, quorum 2, without ", "reduce 3.3 0 1 2 zero 2")
		s.reduced(800, 3, 3, 0, 1)
		s.at(800, policy.Reduced{ID: 2, Round: 3, Epoch: 3}, "step 3", "start 4 0 1 2")
	}
}

// TestTheOthersTakeItAgain: two fail to take a step that w0 has taken. They are a
// majority, do not wait for it, and take the step once more. When all have come to
// as many steps torchft would go on as if they had one model.
func TestTheOthersTakeItAgain(t *testing.T) {
	s := three(t, torchft.Policy{MinReplicas: 2, JoinTimeout: 1000})
	for id := range policy.ID(2) {
		s.m.Step(300, policy.Arrival{ID: id, Round: 2})
	}
	s.at(300, policy.Arrival{ID: 2, Round: 2}, "arrived w2", "close 2 all_arrived, 0 1 2, quorum 1, without ", "reduce 2.2 0 1 2 zero ")
	s.reduced(400, 2, 2, 0)
	s.at(400, policy.ReduceFailed{ID: 2, Round: 2, Epoch: 2}, "step 2", "abort 2 reduce_failed, failure 1", "start 3 0", "until 1400")
	s.alive(1000, 1000, 0, 1, 2)
	s.at(1400, policy.Timer{}, "close 2 deadline, 1 2, quorum 2, without ", "reduce 2.3 1 2 zero ")
	s.reduced(1500, 2, 3, 1)
	s.at(1500, policy.Reduced{ID: 2, Round: 2, Epoch: 3}, "step 2", "step 2 twice, by 1 2 in lineage 1 beside 0", "start 3 1 2")
	s.at(1600, policy.Arrival{ID: 0, Round: 3}, "arrived w0")
	s.at(1700, policy.Arrival{ID: 1, Round: 3}, "arrived w1", "until 2600")
	s.at(1800, policy.Arrival{ID: 2, Round: 3}, "arrived w2", "finish false split_brain")
}

// TestALostParticipant: the step fails with its connections, and is tried again
// without it, but not before the lighthouse takes it for dead.
func TestALostParticipant(t *testing.T) {
	s := three(t, torchft.Policy{MinReplicas: 1, JoinTimeout: 1000})
	for id := range policy.ID(3) {
		s.m.Step(300, policy.Arrival{ID: id, Round: 2})
	}
	s.at(400, policy.Lost{ID: 2, Rule: policy.RuleConnection}, "evict w2 connection true", "abort 2 lost, failure 1", "until 1400")
	s.alive(1000, 1000, 0, 1)
	s.at(1400, policy.Timer{}, "close 2 deadline, 0 1, quorum 2, without ", "reduce 2.3 0 1 zero ")
	// It comes back as another replica, without the state.
	s.at(1500, policy.Join{ID: 2, Incarnation: 1}, "admit w2")
	s.reduced(1600, 2, 3, 0)
	s.at(1600, policy.Reduced{ID: 1, Round: 2, Epoch: 3}, "step 2", "start 3 0 1")
	s.at(1700, policy.Arrival{ID: 0, Round: 3}, "arrived w0")
	s.at(1700, policy.Arrival{ID: 1, Round: 3}, "arrived w1", "fetch w2 from w0 at 2")
	s.at(1800, policy.FetchFailed{ID: 2}, "fetch w2 from w0 at 2")
	// Its former life still counts among the living.
	s.at(1900, policy.StateFetched{ID: 2, OuterSteps: 2}, "fetched w2", "close 3 quorum, 0 1 2, quorum 4, without ", "reduce 3.4 0 1 2 zero 2")
}

// TestAFetchThatIsOver: what a worker says of a fetch from a donor that is gone by now
// comes when it has been told to fetch something newer. It does not count.
func TestAFetchThatIsOver(t *testing.T) {
	s := three(t, torchft.Policy{MinReplicas: 1, JoinTimeout: 1000})
	s.at(200, policy.Join{ID: 3}, "admit w3")
	s.at(300, policy.Arrival{ID: 0, Round: 2}, "arrived w0")
	s.at(300, policy.Arrival{ID: 1, Round: 2}, "arrived w1", "until 1200")
	s.at(300, policy.Arrival{ID: 2, Round: 2}, "arrived w2", "fetch w3 from w0 at 1")
	s.at(400, policy.StateFetched{ID: 3, OuterSteps: 0})
	s.at(500, policy.StateFetched{ID: 3, OuterSteps: 1}, "fetched w3", "close 2 all_arrived, 0 1 2 3, quorum 2, without ", "reduce 2.2 0 1 2 3 zero 3")
}

// TestTimeouts: a reduction that takes too long has failed; a worker that waits too
// long for a quorum is dead, and is started again as often as the policy says.
func TestTimeouts(t *testing.T) {
	s := three(t, torchft.Policy{MinReplicas: 2, JoinTimeout: 1000, QuorumTimeout: 3000, Timeout: 2000, Restarts: 1})
	for id := range policy.ID(3) {
		s.m.Step(300, policy.Arrival{ID: id, Round: 2})
	}
	s.alive(1000, 2000, 0, 1, 2)
	s.at(2300, policy.Timer{}, "abort 2 timeout, failure 1")
	s.at(2300, policy.ReduceFailed{ID: 0, Round: 2, Epoch: 2})
	s.at(2300, policy.ReduceFailed{ID: 1, Round: 2, Epoch: 2}, "until 3300")
	s.at(2300, policy.ReduceFailed{ID: 2, Round: 2, Epoch: 2}, "close 2 all_arrived, 0 1 2, quorum 2, without ", "reduce 2.3 0 1 2 zero ")
	s.reduced(2400, 2, 3, 0, 1)
	s.at(2400, policy.Reduced{ID: 2, Round: 2, Epoch: 3}, "step 2", "start 3 0 1 2")
	s.at(2500, policy.Arrival{ID: 0, Round: 3}, "arrived w0")
	s.alive(3000, 5000, 0, 1, 2)
	s.at(5500, policy.Timer{}, "evict w0 quorum_timeout true")
	s.at(5600, policy.Join{ID: 0}, "admit w0")
	s.alive(6000, 8000, 0, 1, 2)
	s.at(8600, policy.Timer{}, "evict w0 quorum_timeout false")
}

// TestMaxRetries: a group dies of one failed commit more than it survives, and is
// started again as often as the policy says. A step that is taken counts it anew.
func TestMaxRetries(t *testing.T) {
	s := three(t, torchft.Policy{MinReplicas: 2, JoinTimeout: 1000, MaxRetries: 1, Restarts: 1})
	for id := range policy.ID(3) {
		s.m.Step(300, policy.Arrival{ID: id, Round: 2})
	}
	s.at(400, policy.ReduceFailed{ID: 1, Round: 2, Epoch: 2, Alone: true})
	s.at(400, policy.Reduced{ID: 2, Round: 2, Epoch: 2})
	s.at(400, policy.Reduced{ID: 0, Round: 2, Epoch: 2}, "step 2", "abort 2 reduce_failed, failure 1", "start 3 0 2")
	s.at(500, policy.Arrival{ID: 0, Round: 3}, "arrived w0", "until 1400")
	s.at(500, policy.Arrival{ID: 2, Round: 3}, "arrived w2", "fetch w1 from w0 at 2")
	s.at(600, policy.FetchFailed{ID: 1}, "evict w1 reduce_failed true", "until 1600")
}

// TestAHangingTrainer gives heartbeats, and does not say that it has dropped the
// reduction that took too long: the others go on without it, until it does.
func TestAHangingTrainer(t *testing.T) {
	s := three(t, torchft.Policy{MinReplicas: 1, JoinTimeout: 1000, Timeout: 2000})
	for id := range policy.ID(3) {
		s.m.Step(300, policy.Arrival{ID: id, Round: 2})
	}
	s.alive(1000, 2000, 0, 1, 2)
	s.at(2300, policy.Timer{}, "abort 2 timeout, failure 1")
	s.at(2350, policy.ReduceFailed{ID: 0, Round: 2, Epoch: 2})
	s.at(2350, policy.ReduceFailed{ID: 1, Round: 2, Epoch: 2}, "until 3350")
	s.alive(3000, 3000, 0, 1, 2)
	s.at(3350, policy.Timer{}, "close 2 deadline, 0 1, quorum 2, without 2", "sideline w2", "reduce 2.3 0 1 zero ")
	s.reduced(3400, 2, 3, 0)
	s.at(3400, policy.Reduced{ID: 1, Round: 2, Epoch: 3}, "step 2", "start 3 0 1")
	s.at(3500, policy.ReduceFailed{ID: 2, Round: 2, Epoch: 2})
	s.at(3600, policy.Arrival{ID: 0, Round: 3}, "arrived w0", "until 4500")
	s.at(3600, policy.Arrival{ID: 1, Round: 3}, "arrived w1", "rejoin w2", "fetch w2 from w0 at 2")
}

// TestABrainThatSplits: w1, w2 and w3 are more than those that train, and hold no
// state: they begin from the first one, and take a step that w0 has. When w0 asks
// it is ahead. They heal from it, and what they had is lost.
func TestABrainThatSplits(t *testing.T) {
	s := newStory(t, 1, torchft.Policy{MinReplicas: 1, JoinTimeout: 1000})
	s.at(100, policy.Arrival{ID: 0, Round: 1}, "arrived w0", "close 1 all_arrived, 0, quorum 1, without ", "reduce 1.1 0 zero ")
	s.at(200, policy.Reduced{ID: 0, Round: 1, Epoch: 1}, "step 1", "start 2 0")
	s.at(300, policy.Arrival{ID: 0, Round: 2}, "arrived w0", "close 2 all_arrived, 0, quorum 1, without ", "reduce 2.2 0 zero ")
	s.at(400, policy.Reduced{ID: 0, Round: 2, Epoch: 2}, "step 2", "start 3 0")
	s.at(500, policy.Join{ID: 1}, "admit w1")
	s.at(500, policy.Join{ID: 2}, "admit w2", "until 1500")
	s.alive(1000, 1000, 0, 1, 2)
	s.at(1500, policy.Timer{}, "fetch w2 from w1 at 0", "start 1 1")
	s.at(1600, policy.StateFetched{ID: 2}, "fetched w2", "start 1 2")
	s.at(1700, policy.Arrival{ID: 1, Round: 1}, "late w1")
	s.at(1700, policy.Arrival{ID: 2, Round: 1}, "late w2", "close 1 quorum, 1 2, quorum 2, without ", "reduce 1.3 1 2 zero ")
	s.reduced(1800, 1, 3, 1)
	s.at(1800, policy.Reduced{ID: 2, Round: 1, Epoch: 3}, "step 1", "step 1 twice, by 1 2 in lineage 1 beside 0", "start 2 1 2")
	s.at(1900, policy.Arrival{ID: 0, Round: 3}, "arrived w0")
	s.at(1900, policy.Arrival{ID: 1, Round: 2}, "arrived w1", "until 2900")
	s.at(1900, policy.Arrival{ID: 2, Round: 2}, "arrived w2", "fetch w1 from w0 at 2", "fetch w2 from w0 at 2")
	s.at(2000, policy.StateFetched{ID: 1, OuterSteps: 2}, "fetched w1")
	s.at(2000, policy.StateFetched{ID: 2, OuterSteps: 2}, "fetched w2", "1 steps of lineage 1 are lost with w2, which goes on in 0", "close 3 all_arrived, 0 1 2, quorum 3, without ", "reduce 3.4 0 1 2 zero 1 2")

	// With a majority of all they wait.
	s = newStory(t, 1, torchft.Policy{MinReplicas: 2, JoinTimeout: 1000, QuorumTimeout: 9000})
	s.at(100, policy.Arrival{ID: 0, Round: 1}, "arrived w0")
	s.at(300, policy.Join{ID: 1}, "admit w1", "fetch w1 from w0 at 0")
	s.at(400, policy.StateFetched{ID: 1}, "fetched w1", "close 1 all_arrived, 0 1, quorum 1, without ", "reduce 1.1 0 1 zero 1")
}

// TestTheStateIsLost with the last that holds it.
func TestTheStateIsLost(t *testing.T) {
	s := newStory(t, 1, torchft.Policy{MinReplicas: 1})
	s.at(100, policy.Arrival{ID: 0, Round: 1}, "arrived w0", "close 1 all_arrived, 0, quorum 1, without ", "reduce 1.1 0 zero ")
	s.at(200, policy.Reduced{ID: 0, Round: 1, Epoch: 1}, "step 1", "start 2 0")
	s.at(300, policy.Lost{ID: 0, Rule: policy.RuleGaveUp}, "evict w0 gave_up true")
	s.at(400, policy.Join{ID: 0, Incarnation: 1}, "admit w0")
	for now := policy.Time(1000); now <= 6000; now += 1000 { // as long as its former life is taken for alive
		s.m.Step(now, policy.Heartbeat{ID: 0})
		for _, a := range s.m.Step(now, policy.Timer{}) {
			s.said = append(s.said, say(a))
		}
	}
	if !s.m.Finished() || s.said[len(s.said)-1] != "finish false state_lost" {
		t.Errorf("%q", s.said)
	}
}

// TestRecovered: what was due while the coordinator was away counts anew.
func TestRecovered(t *testing.T) {
	s := three(t, torchft.Policy{MinReplicas: 1, JoinTimeout: 1000, QuorumTimeout: 3000})
	s.at(300, policy.Arrival{ID: 0, Round: 2}, "arrived w0")
	s.at(9000, policy.Recovered{})
	s.at(9100, policy.Arrival{ID: 1, Round: 2}, "arrived w1", "until 10000")
	s.at(9200, policy.Arrival{ID: 2, Round: 2}, "arrived w2", "close 2 all_arrived, 0 1 2, quorum 1, without ", "reduce 2.2 0 1 2 zero ")
}

// TestALighthouseForgets who is there, the last quorum, and the requests that
// waited. Without retries those that waited die of their time-out, and the one that
// asks then trains alone.
func TestALighthouseForgets(t *testing.T) {
	s := three(t, torchft.Policy{MinReplicas: 1, JoinTimeout: 1000, QuorumTimeout: 3000})
	s.at(300, policy.Arrival{ID: 0, Round: 2}, "arrived w0")
	s.at(300, policy.Arrival{ID: 1, Round: 2}, "arrived w1", "until 1300")
	s.at(700, policy.Recovered{Forgets: true, Away: 200})
	s.at(800, policy.Arrival{ID: 2, Round: 2}, "arrived w2", "close 2 all_arrived, 2, quorum 1, without 0 1", "sideline w0", "sideline w1", "reduce 2.2 2 zero ", "abort 2 reduce_failed, failure 1",
		"close 2 all_arrived, 2, quorum 2, without 0 1", "sideline w0", "sideline w1", "reduce 2.3 2 zero ")
	s.at(900, policy.Reduced{ID: 2, Round: 2, Epoch: 3}, "step 2", "start 3 2")
	s.alive(1000, 3000, 0, 1, 2)
	s.at(3300, policy.Timer{}, "evict w0 quorum_timeout false", "evict w1 quorum_timeout false")
}

// TestRetries: a request that is lost with the lighthouse is repeated after a part
// of the time-out. The new lighthouse counts from 1, as the process groups of all
// three have it, and two others take part: one step fails, for nobody configures
// a group anew for an id that it has.
func TestRetries(t *testing.T) {
	s := three(t, torchft.Policy{MinReplicas: 2, JoinTimeout: 1000, QuorumTimeout: 4000, QuorumRetries: 3})
	s.at(300, policy.Arrival{ID: 0, Round: 2}, "arrived w0")
	s.at(300, policy.Arrival{ID: 1, Round: 2}, "arrived w1", "until 1300")
	s.at(700, policy.Recovered{Forgets: true, Away: 300}) // it died at 400, so that they ask again at 1,400
	if s.wake != 1000 {
		t.Errorf("a Timer at %d", s.wake)
	}
	s.at(1000, policy.Timer{})
	if s.wake != 1400 {
		t.Errorf("a Timer at %d", s.wake)
	}
	s.at(1400, policy.Timer{}, "close 2 all_arrived, 0 1, quorum 1, without 2", "sideline w2", "reduce 2.2 0 1 zero ", "abort 2 reduce_failed, failure 1", "close 2 all_arrived, 0 1, quorum 2, without 2", "sideline w2", "reduce 2.3 0 1 zero ")
	s.reduced(1500, 2, 3, 0)
	s.at(1500, policy.Reduced{ID: 1, Round: 2, Epoch: 3}, "step 2", "start 3 0 1")
}

// TestAReusedID: the first quorum of a lighthouse that forgets has the id of the last
// one, and a newcomer. The members keep their process group, commit a mean in which the
// newcomer counts as zero, and do not notice. The newcomer fails, and then heals.
func TestAReusedID(t *testing.T) {
	s := three(t, torchft.Policy{MinReplicas: 2, JoinTimeout: 1000, Sync: true})
	s.at(400, policy.Recovered{Forgets: true, Away: 100})
	s.at(500, policy.Join{ID: 3}, "admit w3")
	s.alive(1000, 1000, 0, 1, 2)
	s.at(1100, policy.Arrival{ID: 0, Round: 2}, "arrived w0")
	s.at(1100, policy.Arrival{ID: 1, Round: 2}, "arrived w1", "until 1500")
	s.at(1100, policy.Arrival{ID: 2, Round: 2}, "arrived w2", "fetch w3 from w0 at 1")
	s.at(1200, policy.StateFetched{ID: 3, OuterSteps: 1}, "fetched w3", "close 2 all_arrived, 0 1 2 3, quorum 1, without ", "reduce 2.2 0 1 2 3 zero 3")
	s.reduced(1300, 2, 2, 0, 1, 3)
	s.at(1300, policy.Reduced{ID: 2, Round: 2, Epoch: 2}, "step 2", "abort 2 reduce_failed, failure 1", "start 3 0 1 2")
	s.at(1400, policy.Arrival{ID: 0, Round: 3}, "arrived w0")
	s.at(1400, policy.Arrival{ID: 1, Round: 3}, "arrived w1", "until 2300")
	s.at(1400, policy.Arrival{ID: 2, Round: 3}, "arrived w2", "fetch w3 from w0 at 2")
	s.at(1500, policy.StateFetched{ID: 3, OuterSteps: 2}, "fetched w3", "close 3 all_arrived, 0 1 2 3, quorum 2, without ", "reduce 3.3 0 1 2 3 zero 3, w0 again for w3")
}

// TestRestarted: all go on from a checkpoint; who does not hold it fetches it.
func TestRestarted(t *testing.T) {
	s := three(t, torchft.Policy{MinReplicas: 1, JoinTimeout: 1000})
	s.at(9000, policy.Restarted{OuterSteps: 1, Holders: []policy.ID{0, 1}}, "start 2 0 1")
	s.at(9100, policy.Arrival{ID: 0, Round: 2}, "arrived w0", "until 10000")
	s.at(9100, policy.Arrival{ID: 1, Round: 2}, "arrived w1", "fetch w2 from w0 at 1")
}

func TestBadParameters(t *testing.T) {
	cfg := policy.Config{HeartbeatPeriod: 1000, HeartbeatMissThreshold: 5, TargetOuterSteps: 4}
	for want, p := range map[string]torchft.Policy{
		"min_replicas is 0: it must be at least 1":                  {},
		"join_timeout is -1 µs: it must lie between 0 and 1e+15 µs": {MinReplicas: 1, JoinTimeout: -1},
		"restarts is -1: it must not be negative":                   {MinReplicas: 1, Restarts: -1},
		"max_retries is -1: it must not be negative":                {MinReplicas: 1, MaxRetries: -1},
	} {
		if err := p.Validate(); err == nil || err.Error() != want {
			t.Errorf("%+v: %v, want %s", p, err, want)
		}
		if _, err := torchft.New(cfg, p); err == nil {
			t.Errorf("%+v is taken", p)
		}
	}
	cfg.Grouping = policy.NewRegions(2, map[string][]policy.ID{"east": {0}})
	if _, err := torchft.New(cfg, torchft.Policy{MinReplicas: 1}); err == nil {
		t.Error("regions are taken")
	}
	if _, err := torchft.New(policy.Config{}, torchft.Policy{MinReplicas: 1}); err == nil {
		t.Error("an empty configuration is taken")
	}
}
