package node

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"testbed/internal/memnet"
	"testbed/policy"
	"testbed/record"
	"testbed/shaping"
)

// quorums are the ids of those that reductions began with, and aborted whom their
// aborts were for, in the order of the record.
func quorums(events []record.Event) (begun []int64, aborted [][]policy.ID) {
	for _, e := range events {
		switch e.Type {
		case record.ReduceStart:
			begun = append(begun, e.Reason.QuorumID)
		case record.ReduceAbort:
			aborted = append(aborted, e.Participants)
		}
	}
	return begun, aborted
}

// TestFailReduce: a reduction that fails at one worker fails for all, and is tried
// again. Under torchft, and if it fails there alone, the others take the step, and
// the worker heals in the next one. Either gives one quorum another id.
func TestFailReduce(t *testing.T) {
	all, one := []policy.ID{0, 1, 2}, []policy.ID{2}
	for _, c := range []struct {
		policy  string
		alone   bool
		aborted []policy.ID
	}{{"torchft", false, all}, {"torchft", true, one}, {"baseline", false, all}, {"baseline", true, all}} {
		t.Run(fmt.Sprintf("%s alone %t", c.policy, c.alone), func(t *testing.T) {
			err := memnet.TryBubble(t, func(t *testing.T) {
				w := newWorld(t, worldScenario(t, 3))
				w.onEvent = func(e record.Event) {
					if e.Type == record.OuterStep && e.Round == 1 {
						w.command(2, Command{Op: OpFailReduce, Alone: c.alone})
					}
				}
				sum, events := w.play(c.policy, time.Hour)
				if err := checkLineage(w.scenario, events); err != nil || !sum.Complete || len(w.failed)+len(sum.Evicted)+len(sum.Sidelined) > 0 {
					t.Errorf("%v; complete: %t, failed %q, evicted %v, sidelined %v", err, sum.Complete, w.failed, sum.Evicted, sum.Sidelined)
				}
				begun, aborted := quorums(events)
				if len(aborted) != 1 || !slices.Equal(aborted[0], c.aborted) {
					t.Errorf("aborted for %v, want %v", aborted, c.aborted)
				}
				took := 3
				if len(c.aborted) == 1 {
					took = 2
				}
				for k, r := range sum.Rounds {
					if want := map[bool]int{true: took, false: 3}[k == 1]; len(r.Participants) != want {
						t.Errorf("outer step %d was taken by %v, want %d", r.Round, r.Participants, want)
					}
				}
				if last := begun[len(begun)-1]; c.policy == "torchft" && (begun[0] != 1 || last != 2) {
					t.Errorf("quorums %v", begun)
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestInitialStep: two begin at outer step 20, their rounds are long, and the others
// begin at 0. If those wait for them (a long join timeout) they heal and all go on
// from there; else they train by themselves, and lose what they had when the two
// ask, who are ahead.
func TestInitialStep(t *testing.T) {
	for _, c := range []struct {
		joinTimeout policy.Time
		splits      bool
	}{{20_000, false}, {500, true}} {
		t.Run(fmt.Sprint("join timeout ", c.joinTimeout), func(t *testing.T) {
			err := memnet.TryBubble(t, func(t *testing.T) {
				s := worldScenario(t, 5)
				for i := range s.Workers {
					if s.Workers[i].JoinAt = 1000; i < 2 {
						s.Workers[i].JoinAt, s.Workers[i].InitialStep, s.Workers[i].InnerStepMean = 0, 20, 6000
					}
				}
				s.TargetOuterSteps = 23
				w := newWorld(t, s)
				sum, events := w.play(fmt.Sprintf("torchft:min_replicas=2:join_timeout=%d", c.joinTimeout), time.Hour)
				if sum.OuterSteps != 23 || len(w.failed)+len(sum.Evicted) > 0 || sum.Complete == c.splits {
					t.Errorf("%d outer steps; complete: %t, failed %q, evicted %v", sum.OuterSteps, sum.Complete, w.failed, sum.Evicted)
				}
				if split := len(sum.Diverged) == 1 && len(sum.Undone) == 1; split != c.splits {
					t.Errorf("diverged %+v, undone %+v", sum.Diverged, sum.Undone)
				}
				in := map[policy.ID]bool{}
				for _, r := range sum.Rounds {
					for _, id := range r.Participants {
						in[id] = true
					}
				}
				if n := len(sum.Rounds); n != 3 || sum.Rounds[0].Round != 21 || len(in) != 5 {
					t.Errorf("rounds %+v", sum.Rounds)
				}
				for _, e := range events {
					if e.Identical != nil && !*e.Identical {
						t.Errorf("different bytes: %+v", e)
					}
				}
				if err := checkLineage(s, events); !c.splits && err != nil {
					t.Error(err)
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestALighthouseForgets: the lighthouse dies while two of three wait for a quorum,
// and is back soon. Without retries both die of their time-out all the same.
func TestALighthouseForgets(t *testing.T) {
	for retries, evicted := range []int{2, 0} {
		err := memnet.TryBubble(t, func(t *testing.T) {
			s := worldScenario(t, 3)
			s.Workers[2].InnerStepMean = 3000
			w := newWorld(t, s)
			w.onEvent = func(e record.Event) {
				if e.Type == record.Arrive && e.Node == "w1" && e.Round == 2 {
					time.AfterFunc(w.scenario.RealDuration(300), func() { w.crashLighthouse(500, false, true) })
				}
			}
			sum, events := w.play(fmt.Sprintf("torchft:min_replicas=%d:heartbeat_timeout=2000:join_timeout=20000:quorum_timeout=6000:quorum_retries=%d", 1+retries, 7*retries), time.Hour)
			if err := checkLineage(s, events); err != nil || !sum.Complete || len(sum.Evicted) != evicted || len(sum.Outages) != 1 {
				t.Errorf("%d retries: %v; complete: %t, evicted %+v, outages %v, failed %q", 7*retries, err, sum.Complete, sum.Evicted, sum.Outages, w.failed)
			}
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestAHangingTrainer: a worker stalls in a reduction, and gives heartbeats.
// The others go on without it, until it goes on.
func TestAHangingTrainer(t *testing.T) {
	err := memnet.TryBubble(t, func(t *testing.T) {
		s := worldScenario(t, 3)
		s.TargetOuterSteps = 12
		w := newWorld(t, s)
		w.onEvent = func(e record.Event) {
			if e.Type != record.ReduceStart || e.Round != 2 || e.Epoch != 2 {
				return
			}
			w.command(1, Command{Op: OpPause, Heartbeats: true})
			w.net.Fault(t, "hangs", shaping.Cut{Paths: []shaping.Direction{{From: "w1", To: "w0"}, {From: "w0", To: "w1"}, {From: "w1", To: "w2"}, {From: "w2", To: "w1"}}})
			time.AfterFunc(w.scenario.RealDuration(9000), func() {
				w.net.Fault(t, "hangs")
				w.command(1, Command{Op: OpResume})
			})
		}
		sum, events := w.play("torchft:min_replicas=2:timeout=4000:join_timeout=4000", time.Hour)
		_, aborted := quorums(events)
		if err := checkLineage(w.scenario, events); err != nil || !sum.Complete || len(sum.Evicted)+len(w.failed) > 0 || len(aborted) != 1 {
			t.Errorf("%v; complete: %t, evicted %v, failed %q, aborted %v", err, sum.Complete, sum.Evicted, w.failed, aborted)
		}
		if first, last := sum.Rounds[1].Participants, sum.Rounds[11].Participants; !slices.Equal(first, []policy.ID{0, 2}) || len(last) != 3 {
			t.Errorf("round 2 was taken by %v, the last one by %v", first, last)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// TestTwoLighthouses, each of which has two of four workers: with a quorum of two
// both sides take the same outer steps, with states of their own. With a majority
// nobody takes any.
func TestTwoLighthouses(t *testing.T) {
	for minReplicas, splits := range map[int]bool{2: true, 3: false} {
		err := memnet.TryBubble(t, func(t *testing.T) {
			s := worldScenario(t, 4)
			s.Workers[2].Lighthouse, s.Workers[3].Lighthouse = 1, 1
			w := newWorld(t, s)
			sum, events := w.play(fmt.Sprintf("torchft:min_replicas=%d", minReplicas), time.Hour)
			hashes := map[string]int{}
			for _, e := range events {
				if e.Identical != nil && !*e.Identical {
					t.Errorf("different bytes: %+v", e)
				}
				if e.Type == record.State {
					hashes[e.Hash]++
				}
			}
			if took := sum.OuterSteps >= 5 && len(hashes) >= 10; sum.Complete || took != splits || (len(sum.Diverged) == 1) != splits || splits && len(w.failed) > 0 {
				t.Errorf("min_replicas %d: complete %t, %d outer steps, %d states, diverged %+v, failed %q", minReplicas, sum.Complete, sum.OuterSteps, len(hashes), sum.Diverged, w.failed)
			}
		})
		if err != nil {
			t.Error(err)
		}
	}
}
