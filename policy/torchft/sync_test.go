package torchft_test

import (
	"testing"

	"testbed/policy"
	"testbed/policy/torchft"
)

// straggles has a worker of four come to round 3 from round 1, with w0 to heal from.
func straggles(t *testing.T, p torchft.Policy) *story {
	t.Helper()
	p.MinReplicas, p.JoinTimeout = 1, 3000
	s := newStory(t, 4, p)
	for round := 1; round <= 2; round++ {
		for id := range policy.ID(3) {
			s.m.Step(policy.Time(1000*round), policy.Arrival{ID: id, Round: round})
		}
		if round == 1 {
			s.alive(2000, 3000, 0, 1, 2, 3)
			s.at(4000, policy.Timer{}, "close 1 deadline, 0 1 2, quorum 1, without 3", "sideline w3", "reduce 1.1 0 1 2 zero ")
		}
		for id := range policy.ID(3) {
			s.m.Step(4000, policy.Reduced{ID: id, Round: round, Epoch: policy.Epoch(round)})
		}
	}
	s.at(4100, policy.Arrival{ID: 3, Round: 1}, "late w3")
	s.at(4200, policy.Arrival{ID: 0, Round: 3}, "arrived w0")
	s.at(4200, policy.Arrival{ID: 1, Round: 3}, "arrived w1", "until 7100")
	s.at(4200, policy.Arrival{ID: 2, Round: 3}, "arrived w2", "rejoin w3", "fetch w3 from w0 at 2")
	return s
}

// TestSync: whoever heals counts as its donor does, and its own work is lost. It
// still does when the step is tried again, but not without the donor.
func TestSync(t *testing.T) {
	s := straggles(t, torchft.Policy{Sync: true})
	s.at(4300, policy.StateFetched{ID: 3, OuterSteps: 2}, "fetched w3", "close 3 all_arrived, 0 1 2 3, quorum 2, without ", "reduce 3.3 0 1 2 3 zero 3, w0 again for w3")
	s.at(4400, policy.ReduceFailed{ID: 1, Round: 3, Epoch: 3}, "abort 3 reduce_failed, failure 1", "until 7400",
		"close 3 all_arrived, 0 1 2 3, quorum 3, without ", "reduce 3.4 0 1 2 3 zero 3, w0 again for w3")
	s.at(4500, policy.Lost{ID: 0, Rule: policy.RuleGaveUp}, "evict w0 gave_up true", "abort 4 lost, failure 2", "until 7500")
	s.alive(5000, 7000, 1, 2, 3)
	s.at(7500, policy.Timer{}, "close 3 deadline, 1 2 3, quorum 4, without ", "reduce 3.5 1 2 3 zero 3")
	for id := range policy.ID(4) {
		s.m.Step(7600, policy.Reduced{ID: id, Round: 3, Epoch: 5})
	}
	s.at(7700, policy.Arrival{ID: 1, Round: 4}, "arrived w1")
	s.at(7700, policy.Arrival{ID: 2, Round: 4}, "arrived w2")
	s.at(7700, policy.Arrival{ID: 3, Round: 4}, "arrived w3", "close 4 quorum, 1 2 3, quorum 4, without ", "reduce 4.6 1 2 3 zero ")
}

// TestANewerState: whoever gets the donor's state of a later step has no part in the
// donor's contribution to the next.
func TestANewerState(t *testing.T) {
	s := straggles(t, torchft.Policy{Sync: true})
	s.at(4300, policy.Lost{ID: 1, Rule: policy.RuleGaveUp}, "evict w1 gave_up true")
	s.alive(5000, 9000, 0, 2, 3)
	s.at(9200, policy.Timer{}, "close 3 quorum, 0 2, quorum 3, without 3", "sideline w3", "reduce 3.3 0 2 zero ")
	s.reduced(9300, 3, 3, 0)
	s.at(9300, policy.Reduced{ID: 2, Round: 3, Epoch: 3}, "step 3", "start 4 0 2")
	s.at(9400, policy.StateFetched{ID: 3, OuterSteps: 3}, "fetched w3")
	s.at(9500, policy.Arrival{ID: 0, Round: 4}, "arrived w0", "until 12400")
	s.at(9500, policy.Arrival{ID: 2, Round: 4}, "arrived w2", "rejoin w3", "close 4 all_arrived, 0 2 3, quorum 4, without ", "reduce 4.4 0 2 3 zero 3")
}

// TestWithoutSync: whoever heals contributes zeros.
func TestWithoutSync(t *testing.T) {
	s := straggles(t, torchft.Policy{})
	s.at(4300, policy.StateFetched{ID: 3, OuterSteps: 2}, "fetched w3", "close 3 all_arrived, 0 1 2 3, quorum 2, without ", "reduce 3.3 0 1 2 3 zero 3")
}

// TestADonorsDonor: a newcomer that heals from a group that has itself healed gets
// the contribution of that group's donor.
func TestADonorsDonor(t *testing.T) {
	s := newStory(t, 3, torchft.Policy{MinReplicas: 1, JoinTimeout: 1000, Sync: true})
	s.at(500, policy.Arrival{ID: 1, Round: 1}, "arrived w1")
	s.at(500, policy.Arrival{ID: 2, Round: 1}, "arrived w2", "until 1500")
	s.alive(1000, 1000, 0, 1, 2)
	s.at(1500, policy.Timer{}, "close 1 deadline, 1 2, quorum 1, without 0", "sideline w0", "reduce 1.1 1 2 zero ")
	s.reduced(1600, 1, 1, 1)
	s.at(1600, policy.Reduced{ID: 2, Round: 1, Epoch: 1}, "step 1", "start 2 1 2")
	s.at(1700, policy.Arrival{ID: 0, Round: 1}, "late w0")
	s.at(1800, policy.Arrival{ID: 1, Round: 2}, "arrived w1", "until 2700")
	s.at(1800, policy.Arrival{ID: 2, Round: 2}, "arrived w2", "rejoin w0", "fetch w0 from w1 at 1")
	s.at(1900, policy.StateFetched{ID: 0, OuterSteps: 1}, "fetched w0", "close 2 all_arrived, 0 1 2, quorum 2, without ", "reduce 2.2 0 1 2 zero 0, w1 again for w0")
	s.at(1950, policy.Join{ID: 3}, "admit w3")
	s.at(2000, policy.ReduceFailed{ID: 2, Round: 2, Epoch: 2}, "abort 2 reduce_failed, failure 1", "until 2950", "fetch w3 from w0 at 1")
	s.at(2100, policy.StateFetched{ID: 3, OuterSteps: 1}, "fetched w3", "close 2 all_arrived, 0 1 2 3, quorum 3, without ",
		"reduce 2.3 0 1 2 3 zero 0 3, w1 again for w0, w1 again for w3")
}

// TestInitSync: at step 0 all take the state of the first group, and with Sync its
// contribution too. Afterwards each has its own.
func TestInitSync(t *testing.T) {
	for _, c := range []struct {
		sync bool
		want string
	}{{false, "zero 1 2"}, {true, "zero 1 2, w0 again for w1, w0 again for w2"}} {
		s := newStory(t, 3, torchft.Policy{MinReplicas: 1, JoinTimeout: 3000, Sync: c.sync, InitSync: true})
		s.at(100, policy.Arrival{ID: 0, Round: 1}, "arrived w0")
		s.at(100, policy.Arrival{ID: 1, Round: 1}, "arrived w1", "until 3100")
		s.at(200, policy.Arrival{ID: 2, Round: 1}, "arrived w2", "fetch w1 from w0 at 0", "fetch w2 from w0 at 0")
		s.at(300, policy.StateFetched{ID: 1}, "fetched w1")
		s.at(400, policy.StateFetched{ID: 2}, "fetched w2", "close 1 all_arrived, 0 1 2, quorum 1, without ", "reduce 1.1 0 1 2 "+c.want)
		// Another try begins with the same state.
		s.at(500, policy.ReduceFailed{ID: 1, Round: 1, Epoch: 1}, "abort 1 reduce_failed, failure 1", "until 3500", "fetch w1 from w0 at 0", "fetch w2 from w0 at 0")
		s.at(600, policy.StateFetched{ID: 1}, "fetched w1")
		s.at(600, policy.StateFetched{ID: 2}, "fetched w2", "close 1 all_arrived, 0 1 2, quorum 2, without ", "reduce 1.2 0 1 2 "+c.want)
		s.reduced(700, 1, 2, 0, 1)
		s.at(700, policy.Reduced{ID: 2, Round: 1, Epoch: 2}, "step 1", "start 2 0 1 2")
		s.at(800, policy.Arrival{ID: 0, Round: 2}, "arrived w0")
		s.at(800, policy.Arrival{ID: 1, Round: 2}, "arrived w1", "until 3800")
		s.at(800, policy.Arrival{ID: 2, Round: 2}, "arrived w2", "close 2 all_arrived, 0 1 2, quorum 2, without ", "reduce 2.3 0 1 2 zero ")
	}
}

// TestInitSyncLosesTheFirst: without the group whose contribution all have, nobody has
// one. All begin the round anew.
func TestInitSyncLosesTheFirst(t *testing.T) {
	s := newStory(t, 3, torchft.Policy{MinReplicas: 1, JoinTimeout: 1000, Sync: true, InitSync: true})
	for id := range policy.ID(3) {
		s.m.Step(100, policy.Arrival{ID: id, Round: 1})
	}
	s.at(200, policy.StateFetched{ID: 1}, "fetched w1")
	s.at(200, policy.StateFetched{ID: 2}, "fetched w2", "close 1 all_arrived, 0 1 2, quorum 1, without ", "reduce 1.1 0 1 2 zero 1 2, w0 again for w1, w0 again for w2")
	s.at(300, policy.Lost{ID: 0, Rule: policy.RuleGaveUp}, "evict w0 gave_up true", "abort 1 lost, failure 1", "until 1300")
	s.alive(1000, 1000, 1, 2)
	s.at(1300, policy.Timer{}, "fetch w2 from w1 at 0", "start 1 1")
	s.at(1400, policy.StateFetched{ID: 2}, "fetched w2", "start 1 2")
}

// TestInitSyncOfRanks: the first group differs by rank, as in torchft.
func TestInitSyncOfRanks(t *testing.T) {
	s := emptyStory(t, 2, torchft.Policy{MinReplicas: 1, JoinTimeout: 1000, Sync: true, InitSync: true})
	for id := range policy.ID(4) {
		s.m.Step(0, policy.Join{ID: id, HasState: true})
	}
	for id := range policy.ID(3) {
		s.m.Step(100, policy.Arrival{ID: id, Round: 1})
	}
	s.at(100, policy.Arrival{ID: 3, Round: 1}, "arrived w3", "fetch w1 from w3 at 0", "fetch w2 from w0 at 0")
	s.at(200, policy.StateFetched{ID: 1}, "fetched w1")
	s.at(200, policy.StateFetched{ID: 2}, "fetched w2", "close 1 all_arrived, 0 1 2 3, quorum 1, without ",
		"reduce 1.1 0 1 2 3 zero 1 2, w3 again for w1, w0 again for w2")
}
