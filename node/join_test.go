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

// TestJoinModes: when a joiner contributes, and what its joining costs the
// others.
func TestJoinModes(t *testing.T) {
	held := map[policy.JoinMode]policy.Time{}
	for mode, first := range map[policy.JoinMode]int{policy.JoinRunning: 2, policy.JoinNext: 3, policy.JoinZeros: 2, policy.JoinBlocking: 2} {
		t.Run(string(mode), func(t *testing.T) {
			memnet.Bubble(t, func(t *testing.T) {
				s := worldScenario(t, 4)
				s.Policy.Join = mode
				s.Workers[3].JoinAt = 2800 // early in the second round
				w := newWorld(t, s)
				sum, events := w.play(scenarios.Baseline, time.Hour)
				if err := checkLineage(s, events); err != nil || !sum.Complete || len(w.failed) > 0 {
					t.Errorf("complete %v, %q, %v", sum.Complete, w.failed, err)
				}
				for _, e := range events {
					if e.Type != record.OuterStep {
						continue
					}
					if took := len(e.Participants) == 4; took != (e.Round >= first) {
						t.Errorf("round %d had %v", e.Round, e.Participants)
					}
				}
				held[mode] = sum.JoinersHeld
			})
		})
	}
	// The running round waits for all that the joiner has to do, the next one
	// for its fetch of the outer step between, and one that lets it in for its fetch
	// of the state, from one donor.
	if r, n, z, b := held[policy.JoinRunning], held[policy.JoinNext], held[policy.JoinZeros], held[policy.JoinBlocking]; r <= n || n <= z || z > 200 || b < 1000 {
		t.Errorf("the others were held up by %v µs", held)
	}
}

// TestTooLateToJoin: a worker that says hello after the last outer step, while the
// coordinator waits for the final states of the others, is told that the run is
// over.
func TestTooLateToJoin(t *testing.T) {
	const hello = 3 * 100 // how long one takes, and the final states take two thirds
	s := worldScenario(t, 4)
	s.Real.Links.Default.OneWayDelay = new(shaping.Duration(10 * time.Millisecond))
	play := func(joinAt policy.Time) (end policy.Time, err error) {
		s.Workers[3].JoinAt = joinAt
		memnet.Bubble(t, func(t *testing.T) {
			w := newWorld(t, s)
			sum, events := w.play(scenarios.Baseline, time.Hour)
			if !sum.Complete || len(w.failed) > 0 || admitted(3, events) {
				t.Errorf("told to join at %d: complete %v, %q, admitted %v", joinAt, sum.Complete, w.failed, admitted(3, events))
			}
			end, err = sum.WallClock, w.nodes[3].err
		})
		return end, err
	}
	end, err := play(s.Horizon)
	if err == nil {
		t.Error("a worker that was told to join after the end has joined what is over")
	}
	if _, err := play(end - hello + 100); err != nil {
		t.Errorf("a worker whose hello came right after the last outer step: %v", err)
	}
}

// TestDeadBeforeTheRun: the coordinator waits for a worker that is missing as long
// as one may take to come, and not at all for one that it knows to be dead, whether
// the word comes before the others or after them.
func TestDeadBeforeTheRun(t *testing.T) {
	for name, told := range map[string]time.Duration{"before the others": 0, "after the others": time.Second, "never": time.Hour} {
		t.Run(name, func(t *testing.T) {
			memnet.Bubble(t, func(t *testing.T) {
				w := newWorld(t, worldScenario(t, 4))
				w.missing = 3
				began := time.Now()
				time.AfterFunc(told, func() { w.dead <- w.missing })
				sum, events := w.play(scenarios.Baseline, time.Minute)
				waited := time.Since(began) - w.scenario.Scale().ClockDuration(sum.WallClock)
				if want := min(told, gatherPatience); !sum.Complete || admitted(3, events) || waited < want || waited > want+time.Second/2 {
					t.Errorf("complete %v, waited %v for the missing one, told after %v", sum.Complete, waited, told)
				}
			})
		})
	}
}
