package node

import (
	"testing"
	"time"

	"testbed/internal/memnet"
	"testbed/policy"
	"testbed/runlog"
	"testbed/scenarios"
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
					if e.Type != runlog.OuterStep {
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
