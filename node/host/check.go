//go:build linux

package host

import (
	"fmt"
	"math"
	"time"

	"testbed/scenarios"
	"testbed/shaping"
	"testbed/shaping/fidelity"
	"testbed/shaping/probe"
)

// checkLinks measures the round trips that a run depends on before it starts:
// each worker's to the coordinator and to its neighbour on the ring.
func (p *play) checkLinks() error {
	begin := time.Now()
	pairs := p.checkedPairs()
	found, err := p.probePairs(pairs, true)
	if err != nil {
		return err
	}
	report := probe.Judge(p.plan, string(p.backend), false, found.Found)
	if err := p.Dir.WriteJSON(LinkCheckFile, report); err != nil {
		return err
	}
	wrong := 0
	for k, f := range found.Found {
		there, back := p.plan.Paths[f.Pair.From][f.Pair.To], p.plan.Paths[f.Pair.To][f.Pair.From]
		pair := fidelity.PairRTT{
			From: report.Pairs[k].From, To: report.Pairs[k].To,
			Planned: time.Duration(there.OneWayDelay + back.OneWayDelay), Jitter: spread(there) + spread(back),
		}
		if q := report.Pairs[k].RTT; q != nil {
			pair.Measured = time.Duration(q.Measured * 1e6)
		}
		silent := 1 - (1-float64(there.MeanLoss()))*(1-float64(back.MeanLoss()))
		if pair.Measured == 0 && math.Pow(silent, float64(f.Asked)) > likelySilent {
			continue // that nothing came back is the plan
		}
		p.monitor.whole.Pairs = append(p.monitor.whole.Pairs, pair)
		if v := fidelity.Judge(fidelity.Measurements{Pairs: []fidelity.PairRTT{pair}}); v.Verdict != fidelity.Valid {
			wrong++
		}
	}
	line := fmt.Sprintf("%d round trips measured in %.1f s, all as planned", len(pairs), time.Since(begin).Seconds())
	if wrong > 0 {
		line = fmt.Sprintf("%d round trips measured, %d NOT AS PLANNED; see %s", len(pairs), wrong, LinkCheckFile)
	}
	p.tell(note{Stage: line})
	return nil
}

// likelySilent is the chance from which silence is no surprise.
const likelySilent = 1e-4

func (p *play) checkedPairs() []probe.Pair {
	var pairs []probe.Pair
	coordinator, workers := p.plan.Index(scenarios.Coordinator), p.Scenario.Workers
	for k, w := range workers {
		here := p.plan.Index(scenarios.NodeName(w.ID))
		pairs = append(pairs, probe.Pair{From: here, To: coordinator})
		next := p.plan.Index(scenarios.NodeName(workers[(k+1)%len(workers)].ID))
		if next != here && (len(workers) > 2 || k == 0) { // two have one link between them
			pairs = append(pairs, probe.Pair{From: here, To: next})
		}
	}
	return pairs
}

// spread is how far jitter takes delays from the planned one at the most.
func spread(p shaping.PathPlan) time.Duration {
	return time.Duration(max(p.Slowest()-p.OneWayDelay, p.OneWayDelay-p.Fastest()))
}
