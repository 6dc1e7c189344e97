package node

import (
	"testing"
	"time"

	"testbed/internal/memnet"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/shaping"
)

// TestDetection loses worker 2 in different ways, in different phases, and
// holds how it is noticed, and how soon, against the bound of each cause.
func TestDetection(t *testing.T) {
	const period = 1000
	for _, c := range []struct {
		name  string
		on    record.Type // of round 2
		lose  func(*world)
		cause policy.Rule
		bound policy.Time // after the loss
	}{
		{"crash in inner steps", record.OuterStep, func(w *world) { w.crash(2) }, policy.RuleConnection, 2 * period},
		{"crash in a reduction", record.ReduceStart, func(w *world) { w.crash(2) }, policy.RuleConnection, 2 * period},
		{"freeze in inner steps", record.OuterStep, func(w *world) { w.freeze(2) }, policy.RuleHeartbeat, 6 * period},
		{"freeze in a reduction", record.ReduceStart, func(w *world) { w.freeze(2) }, policy.RuleProgress, 6 * period},
		{"ended by whoever started it", record.Arrive, func(w *world) { w.excuse(2); w.nodes[2].cancel() }, policy.RuleGaveUp, period / 2},
		{"black hole between two workers", record.ReduceStart, func(w *world) {
			w.excuse(2)
			w.net.Fault(w.t, "hole", shaping.Cut{Paths: []shaping.Direction{{From: "w1", To: "w2"}, {From: "w0", To: "w2"}}})
		}, policy.RuleProgress, 20 * period},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := memnet.TryBubble(t, func(t *testing.T) {
				s := worldScenario(t, 3)
				s.Real.StallTimeout = shaping.Duration(s.RealDuration(2.5 * period))
				w := newWorld(t, s)
				var lost policy.Time
				w.onEvent = func(e record.Event) {
					if e.Type == c.on && e.Round == 2 && lost == 0 {
						lost = w.now() + 30
						time.AfterFunc(s.RealDuration(30), func() { c.lose(w) })
					}
				}
				sum, events := w.play(scenarios.Baseline, time.Hour)
				if err := checkLineage(s, events); err != nil || !sum.Complete || len(w.failed) > 0 {
					t.Errorf("complete %v, %q, %v", sum.Complete, w.failed, err)
				}
				if len(sum.Detected) != 1 || sum.Detected[0].ID != 2 || sum.Detected[0].Cause != c.cause {
					t.Fatalf("detected %+v, want worker 2 by %s", sum.Detected, c.cause)
				}
				for _, e := range events {
					if e.Type == record.Evict && e.T-lost > c.bound {
						t.Errorf("lost at %d, noticed at %d, more than %d later", lost, e.T, c.bound)
					}
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPauseHoldsTheStep stops a worker in the middle of its first step for a
// time below the heartbeats' window: nobody goes, and the step does not count
// the pause, though it ends that much later.
func TestPauseHoldsTheStep(t *testing.T) {
	err := memnet.TryBubble(t, func(t *testing.T) {
		w := newWorld(t, worldScenario(t, 3))
		pause := fault{what: "pause", id: 1, at: 500, lasts: 3000}
		w.onEvent = func(e record.Event) {
			if e.Type == record.RunStart {
				w.at(pause.at, func() { w.inflict(0, pause) })
			}
		}
		sum, events := w.play(scenarios.Baseline, time.Hour)
		if !sum.Complete || len(sum.Evicted) > 0 {
			t.Errorf("complete %v, evicted %+v", sum.Complete, sum.Evicted)
		}
		for _, e := range events {
			if e.Type == record.Step && e.Node == "w1" {
				if e.T < 4000 || e.T > 4100 || e.Duration < 1000 || e.Duration > 1010 {
					t.Errorf("the first step took %d µs and ended at %d, want 1,000 and 4,000", e.Duration, e.T)
				}
				break
			}
		}
	})
	if err != nil {
		t.Error(err)
	}
}
