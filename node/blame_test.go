package node

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"testbed/internal/memnet"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/shaping"
)

// TestTheRightEndIsBlamed: a worker whose links carry nothing between workers, one way, is
// evicted for it and none of its neighbours is, whatever the algorithm. Every failed attempt
// names the two ends of a link that carries nothing.
func TestTheRightEndIsBlamed(t *testing.T) {
	const n, period = 4, 1000
	for _, algorithm := range []string{"ring", "direct"} {
		for culprit := range policy.ID(n) {
			for _, out := range []bool{true, false} {
				name := fmt.Sprintf("%s, w%d receives nothing", algorithm, culprit)
				if out {
					name = fmt.Sprintf("%s, w%d sends nothing", algorithm, culprit)
				}
				t.Run(name, func(t *testing.T) {
					err := memnet.TryBubble(t, func(t *testing.T) {
						s := worldScenario(t, n)
						s.Real.AllReduce.Algorithm = algorithm
						s.Real.StallTimeout = shaping.Duration(s.RealDuration(2.5 * period))
						w := newWorld(t, s)
						var cut []shaping.Direction
						for other := range policy.ID(n) {
							switch {
							case other == culprit:
							case out:
								cut = append(cut, shaping.Direction{From: culprit.Node(), To: other.Node()})
							default:
								cut = append(cut, shaping.Direction{From: other.Node(), To: culprit.Node()})
							}
						}
						begun := false
						w.onEvent = func(e record.Event) {
							if e.Type == record.ReduceStart && e.Round == 2 && !begun {
								begun = true
								w.excuse(culprit)
								w.net.Fault(t, "cut", shaping.Cut{Paths: cut})
							}
						}
						sum, events := w.play(scenarios.Baseline, time.Hour)
						if !sum.Complete || len(sum.Evicted) != 1 || sum.Evicted[0].ID != culprit {
							t.Errorf("complete %v, evicted %+v", sum.Complete, sum.Evicted)
						}
						for _, e := range events {
							if e.Type != record.ReduceAbort || e.Reason.Rule != policy.RuleProgress {
								continue
							}
							ends := shaping.Direction{From: e.Reason.Peer.Node(), To: e.Reason.Lost.Node()}
							back := shaping.Direction{From: ends.To, To: ends.From} // without acknowledgements nothing is carried
							if !slices.Contains(cut, ends) && !slices.Contains(cut, back) {
								t.Errorf("a reduction stalled, and the link from %s to %s is blamed", ends.From, ends.To)
							}
						}
					})
					if err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}
