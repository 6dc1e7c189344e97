//go:build linux

package linkcheck

import (
	"math"
	"slices"
	"time"

	"testbed/allreduce/reduction"
	"testbed/allreduce/ringorder"
	"testbed/emulation/cluster"
	"testbed/emulation/network"
	"testbed/policy"
	"testbed/shaping"
	"testbed/shaping/fidelity"
	"testbed/shaping/probe"
)

// Checked is the result of Check.
type Checked struct {
	Report probe.Report
	Found  []probe.Found
	// Pairs are the round trips for the verdict on the run, without those that the
	// plan never answers. Wrong of them deviate from the plan.
	Pairs []fidelity.PairRTT
	Wrong int
	// Ways are the delays and rates by which rings are ordered: the plan's, except
	// those that the scenario wants measured.
	Ways ringorder.Ways
}

// Check measures the round trips that a run of these workers depends on before
// it starts: each worker's to the coordinator and to its neighbour on the ring,
// or to all others if the ring is ordered by them. It measures the rates
// between workers if the ring is ordered by rates.
func Check(s *network.Supervisor, hosts *cluster.Hosts, links *network.Network, workers []policy.ID, spec reduction.Spec) (*Checked, error) {
	plan, order := links.Plan, spec.Order
	rated := ratedPairs(plan, workers, order)
	crew, err := newCrew(s, hosts, links, proberSpec{Plan: plan, Pairs: union(pairs(plan, workers, order), rated)})
	if err != nil {
		return nil, err
	}
	survey := probe.NewSurvey(plan, crew.spec.Pairs, crew.do, func(stage string) { s.Tell("%s", stage) })
	found, err := survey.Check()
	if err == nil {
		err = survey.Rates(found, rated)
	}
	if err == nil {
		err = crew.end()
	}
	if err != nil {
		return nil, err
	}
	c := judge(plan, string(links.Backend), found)
	c.Report.Undilate(links.Dilation)
	c.Ways = ways(links.Undilated, workers, spec, links.Dilation, found)
	return c, nil
}

// ways are the planned ways, not dilated, with measured rates or halves of
// measured round trips if these are wanted and available.
func ways(plan *shaping.Plan, workers []policy.ID, spec reduction.Spec, dilation float64, found []probe.Found) ringorder.Ways {
	w := ringorder.Planned(spec, workers, plan)
	index := map[int]int{} // by a worker's index of its node in the plan
	for k, id := range w.Workers {
		index[plan.Index(id.Node())] = k
	}
	for _, f := range found {
		from, isWorker := index[f.Pair.From]
		to, areWorkers := index[f.Pair.To]
		if !isWorker || !areWorkers {
			continue
		}
		switch rtt := Median(f); {
		case spec.Order == reduction.OrderMeasured && rtt > 0:
			w.Delays[from][to] = rtt.Seconds() / 2 / dilation
			w.Delays[to][from] = w.Delays[from][to]
		case spec.Order == reduction.OrderMeasuredRates && f.Rate.Planned > 0 && !f.Rate.AsPlanned():
			// A path as planned keeps the planned rate, so that measurement errors do
			// not affect the order.
			w.Rates[from][to] = max(shaping.Rate(f.Rate.Measured*dilation), leastRate)
		}
	}
	return w
}

// leastRate stands for a path on which nothing arrives. A rate of zero would
// mean unlimited.
const leastRate = shaping.Rate(1000)

func judge(plan *shaping.Plan, backend string, found []probe.Found) *Checked {
	c := &Checked{Report: probe.Judge(plan, backend, false, found), Found: found}
	for k, f := range found {
		there, back := plan.Paths[f.Pair.From][f.Pair.To], plan.Paths[f.Pair.To][f.Pair.From]
		report := c.Report.Pairs[k]
		pair := fidelity.PairRTT{
			From: report.From, To: report.To,
			Planned: time.Duration(there.OneWayDelay + back.OneWayDelay), Jitter: spread(there) + spread(back),
			Sending: plan.Sending(f.Pair.From, f.Pair.To, probe.Frame) + plan.Sending(f.Pair.To, f.Pair.From, probe.Frame),
		}
		if q := report.RTT; q != nil {
			pair.Measured = time.Duration(q.Measured * 1e6)
		}
		silent := 1 - (1-float64(there.MeanLoss()))*(1-float64(back.MeanLoss()))
		if pair.Measured == 0 && math.Pow(silent, float64(f.Asked)) > likelySilent {
			continue // no answer is as planned
		}
		c.Pairs = append(c.Pairs, pair)
		if v := fidelity.Judge(fidelity.Measurements{Pairs: []fidelity.PairRTT{pair}}); v.Verdict != fidelity.Valid {
			c.Wrong++
		}
	}
	return c
}

// Median returns the median round trip of a pair, 0 if unknown.
func Median(f probe.Found) time.Duration {
	if len(f.RTTs) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(f.RTTs))[(len(f.RTTs)-1)/2]
}

// likelySilent is the probability above which silence is no surprise.
const likelySilent = 1e-4

// pairs are the pairs that a run depends on.
func pairs(plan *shaping.Plan, workers []policy.ID, order string) []probe.Pair {
	var pairs []probe.Pair
	coordinator := plan.Index(policy.CoordinatorNode)
	for k, id := range workers {
		here := plan.Index(id.Node())
		pairs = append(pairs, probe.Pair{From: here, To: coordinator})
		if order == reduction.OrderMeasured {
			for _, other := range workers[k+1:] {
				pairs = append(pairs, probe.Pair{From: here, To: plan.Index(other.Node())})
			}
			continue
		}
		next := plan.Index(workers[(k+1)%len(workers)].Node())
		if next != here && (len(workers) > 2 || k == 0) { // two workers have one link between them
			pairs = append(pairs, probe.Pair{From: here, To: next})
		}
	}
	return pairs
}

// ratedPairs are the pairs whose rates a run must measure to order its ring.
func ratedPairs(plan *shaping.Plan, workers []policy.ID, order string) (pairs []probe.Pair) {
	if order != reduction.OrderMeasuredRates {
		return nil
	}
	for _, a := range workers {
		for _, b := range workers {
			if a != b {
				pairs = append(pairs, probe.Pair{From: plan.Index(a.Node()), To: plan.Index(b.Node())})
			}
		}
	}
	return pairs
}

// union are the pairs of both, each once.
func union(a, b []probe.Pair) []probe.Pair {
	for _, p := range b {
		if !slices.Contains(a, p) {
			a = append(a, p)
		}
	}
	return a
}

// spread is the largest deviation of delays from the planned one because of
// jitter.
func spread(p shaping.PathPlan) time.Duration {
	return time.Duration(max(p.Slowest()-p.OneWayDelay, p.OneWayDelay-p.Fastest()))
}
