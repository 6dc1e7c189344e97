package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/internal/memnet"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/shaping"
)

// comings renders who came and went after the beginning, and why.
func comings(events []record.Event) string {
	var all []string
	for _, e := range events {
		switch e.Type {
		case record.Join:
			if e.T > 0 {
				all = append(all, fmt.Sprintf("%s joins (%s, %d)", e.Node, e.Reason.Rule, e.Incarnation))
			}
		case record.Evict, record.Reject:
			all = append(all, fmt.Sprintf("%s %s (%s)", e.Node, e.Type, e.Reason.Rule))
		}
	}
	return strings.Join(all, ", ")
}

// TestComingBack plays what can become of a worker that comes back, with the real
// coordinator and workers. Each case ends complete, with one lineage of states, in
// the last of which everybody has a part who came back.
func TestComingBack(t *testing.T) {
	long := policy.Time(20_000) // beyond the heartbeats
	cut := func(w *world, lasts policy.Time) {
		w.excuse(2)
		w.net.Fault(w.t, "cut", shaping.Partition{Nodes: []string{"w2"}})
		time.AfterFunc(w.scenario.RealDuration(lasts), func() { w.net.Fault(w.t, "cut") })
	}
	restart := func(after policy.Time) func(*world) {
		return func(w *world) {
			w.crash(2)
			time.AfterFunc(w.scenario.RealDuration(after), func() { w.restart(2) })
		}
	}
	for _, c := range []struct {
		name   string
		on     record.Type // of round 2
		do     func(*world)
		rejoin policy.RejoinMode
		want   string
		last   []policy.ID // participants of the last round
	}{
		{"restarts in its inner steps", record.OuterStep, restart(500), "", "w2 evict (replaced), w2 joins (join, 1)", []policy.ID{0, 1, 2, 3}},
		{"restarts in a reduction", record.ReduceStart, restart(0), "", "w2 evict (replaced), w2 joins (join, 1)", []policy.ID{0, 1, 2, 3}},
		{"restarts long after its loss was noticed", record.Arrive, restart(long), "", "w2 evict (heartbeat), w2 joins (join, 1)", []policy.ID{0, 1, 2, 3}},
		{"restarts twice", record.Arrive, func(w *world) {
			restart(200)(w)
			time.AfterFunc(w.scenario.RealDuration(4000), func() { restart(200)(w) })
		}, "", "w2 evict (replaced), w2 joins (join, 1), w2 evict (replaced), w2 joins (join, 2)", []policy.ID{0, 1, 2, 3}},
		{"crashes after a restart", record.Arrive, func(w *world) {
			restart(200)(w)
			time.AfterFunc(w.scenario.RealDuration(6000), func() { w.crash(2) })
		}, "", "w2 evict (replaced), w2 joins (join, 1), w2 evict (heartbeat)", []policy.ID{0, 1, 3}},
		{"restarts while it is cut off", record.Arrive, func(w *world) { cut(w, 1500); restart(500)(w) },
			"", "w2 evict (replaced), w2 joins (join, 1)", []policy.ID{0, 1, 2, 3}},
		{"restarts while there is no coordinator", record.Arrive, func(w *world) { w.crashCoordinator(3000, false); restart(500)(w) },
			"", "w2 evict (replaced), w2 joins (join, 1)", []policy.ID{0, 1, 2, 3}},
		{"gives up and comes back", record.Arrive, func(w *world) {
			w.excuse(2)
			w.command(2, Command{Op: OpFail})
			time.AfterFunc(w.scenario.RealDuration(3000), func() { w.restart(2) })
		}, "", "w2 evict (gave_up), w2 joins (join, 1)", []policy.ID{0, 1, 2, 3}},
		{"leaves after its round when it is preempted", record.OuterStep, func(w *world) { w.command(2, Command{Op: OpPreempt}) },
			"", "w2 evict (leave)", []policy.ID{0, 1, 3}},
		{"is evicted alive, and may not come back", record.Arrive, func(w *world) { cut(w, long) }, policy.RejoinNever, "w2 evict (heartbeat)", []policy.ID{0, 1, 3}},
		{"is evicted alive, and comes back", record.Arrive, func(w *world) { cut(w, long) },
			policy.RejoinAfterRounds, "w2 evict (heartbeat), w2 joins (rejoin, 0)", []policy.ID{0, 1, 2, 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := memnet.TryBubble(t, func(t *testing.T) {
				s := worldScenario(t, 4)
				s.TargetOuterSteps, s.Policy.Rejoin, s.Real.HeedUnreachable = 24, c.rejoin, false
				w := newWorld(t, s)
				done := false
				w.onEvent = func(e record.Event) {
					if e.Type == c.on && e.Round == 2 && !done {
						done = true
						c.do(w)
					}
				}
				sum, events := w.play(scenarios.Baseline, time.Hour)
				if err := checkLineage(s, events); err != nil || !sum.Complete || len(w.failed) > 0 {
					t.Errorf("complete %v, %q, %v", sum.Complete, w.failed, err)
				}
				if got := comings(events); got != c.want {
					t.Errorf("%s, want %s", got, c.want)
				}
				if last := sum.Rounds[len(sum.Rounds)-1].Participants; !slices.Equal(last, c.last) {
					t.Errorf("the last round is %v's, want %v's", last, c.last)
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestTheSlowComeBack to be as fast as the others, for a time.
func TestTheSlowComeBack(t *testing.T) {
	for mode, want := range map[policy.RejoinMode]string{
		policy.RejoinNever:       "w3 evict (straggler)",
		policy.RejoinAfterRounds: "w3 evict (straggler), w3 joins (rejoin, 0)",
	} {
		err := memnet.TryBubble(t, func(t *testing.T) {
			s := worldScenario(t, 4)
			s.TargetOuterSteps, s.Policy.Rejoin, s.Policy.RejoinRounds = 14, mode, 3
			w := newWorld(t, s)
			w.onEvent = func(e record.Event) {
				switch {
				case e.Type == record.OuterStep && e.Round == 1:
					w.command(3, Command{Op: OpSlow, Factor: 5, At: 1})
				case e.Type == record.Evict:
					w.command(3, Command{Op: OpRestore, At: 1})
				}
			}
			sum, events := w.play(scenarios.Straggler, time.Hour)
			if err := checkLineage(s, events); err != nil || !sum.Complete || len(w.failed) > 0 {
				t.Errorf("complete %v, %q, %v", sum.Complete, w.failed, err)
			}
			if got := comings(events); got != want {
				t.Errorf("%s: %s, want %s", mode, got, want)
			}
			if n := len(sum.Returned); n > 0 && sum.Returned[0].Round-sum.Evicted[0].Round != 3 {
				t.Errorf("evicted in round %d and back in %d, want 3 outer steps between", sum.Evicted[0].Round, sum.Returned[0].Round)
			}
		})
		if err != nil {
			t.Error(err)
		}
	}
}
