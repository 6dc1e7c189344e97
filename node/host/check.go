//go:build linux

package host

import (
	"fmt"
	"math"
	"slices"
	"time"

	"testbed/node"
	"testbed/scenarios"
	"testbed/shaping"
	"testbed/shaping/fidelity"
	"testbed/shaping/probe"
)

// checkLinks measures the round trips that a run depends on before it starts:
// each worker's to the coordinator and to its neighbour on the ring, or to all
// others where the ring's order shall come from them.
func (p *play) checkLinks() error {
	begin := time.Now()
	pairs := p.checkedPairs()
	found, err := p.probePairs(pairs, true)
	if err != nil {
		return err
	}
	p.delays = p.ringDelays(found.Found)
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

// ringDelays are what rings are ordered by: the planned one-way delays, or half
// of the round trips where these are wanted and there are any.
func (p *play) ringDelays(found []probe.Found) (d node.RingDelays) {
	order := p.Scenario.Real.AllReduce.Order
	if order != scenarios.OrderPlanned && order != scenarios.OrderMeasured {
		return d
	}
	var names []string
	for _, w := range p.Scenario.Workers {
		d.Workers, names = append(d.Workers, w.ID), append(names, scenarios.NodeName(w.ID))
	}
	d.Delays = p.plan.Delays(names)
	if order == scenarios.OrderPlanned {
		return d
	}
	for _, f := range found {
		from, to := slices.Index(names, p.plan.Nodes[f.Pair.From].Name), slices.Index(names, p.plan.Nodes[f.Pair.To].Name)
		if rtt := quantile(f.RTTs, 50); from >= 0 && to >= 0 && rtt > 0 {
			d.Delays[from][to], d.Delays[to][from] = rtt.Seconds()/2, rtt.Seconds()/2
		}
	}
	return d
}

// likelySilent is the chance from which silence is no surprise.
const likelySilent = 1e-4

func (p *play) checkedPairs() []probe.Pair {
	var pairs []probe.Pair
	coordinator, workers := p.plan.Index(scenarios.Coordinator), p.Scenario.Workers
	for k, w := range workers {
		here := p.plan.Index(scenarios.NodeName(w.ID))
		pairs = append(pairs, probe.Pair{From: here, To: coordinator})
		if p.Scenario.Real.AllReduce.Order == scenarios.OrderMeasured {
			for _, other := range workers[k+1:] {
				pairs = append(pairs, probe.Pair{From: here, To: p.plan.Index(scenarios.NodeName(other.ID))})
			}
			continue
		}
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
