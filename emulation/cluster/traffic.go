package cluster

import (
	"slices"
	"time"

	"testbed/allreduce"
	"testbed/allreduce/ringorder"
	"testbed/policy"
	"testbed/shaping"
)

// Flow is the traffic from one worker to another in the reductions of a round.
type Flow struct {
	From, To int // nodes of the plan
	// Rate is the most that the links allow it, in bit/s by the machine's clock.
	// Flows that share a rate get parts in proportion to their bytes. Zero: none
	// of the links has a rate.
	Rate float64
	// Need is the rate that a network has to carry so that nothing comes late. The
	// planned delay gives the last bytes time to make up for a lower rate.
	Need float64
}

// RoundKind is a kind of round, by its groups of workers that reduce together.
type RoundKind struct {
	Flows []Flow
	Often float64 // the share of rounds of this kind
}

// RoundKinds are the kinds of rounds on a network, with the traffic of their
// reductions.
func RoundKinds(n *Network) (kinds []RoundKind, err error) {
	slow, err := n.slow()
	if err != nil {
		return nil, err
	}
	t := traffic{Network: n, plan: slow, ways: ringorder.Planned(n.Reduction, n.Workers, n.Plan), index: map[policy.ID]int{}, parameters: n.Parameters}
	for _, id := range n.Workers {
		t.index[id] = slow.Index(id.Node())
	}
	if n.Grouping != nil && !n.Grouping.Regional() { // each rank of a replica group has a part of the state
		t.parameters /= n.Grouping.Len()
	}
	every := 1 // one of all rounds is global
	for !n.Grouping.Global(every) {
		every++
	}
	shares := []float64{1 / float64(every)}
	if every > 1 {
		shares = append(shares, 1-shares[0])
	}
	all := slices.Sorted(slices.Values(n.Workers))
	for k, often := range shares {
		kind := RoundKind{Often: often}
		for _, ring := range n.Grouping.Rings(every-k, all) {
			flows, err := t.reduction(ring.Workers)
			if err != nil {
				return nil, err
			}
			kind.Flows = append(kind.Flows, flows...)
		}
		kinds = append(kinds, kind)
	}
	return kinds, nil
}

type traffic struct {
	*Network
	plan       *shaping.Plan // by the machine's clock
	ways       ringorder.Ways
	index      map[policy.ID]int // in the plan
	parameters int               // of a reduction
}

// pair is an ordered pair of nodes.
type pair struct{ from, to int }

// reduction is the traffic of these workers' reduction, in the order of its
// ring.
func (t *traffic) reduction(ids []policy.ID) ([]Flow, error) {
	n := len(ids)
	if n < 2 {
		return nil, nil
	}
	chunks, order := map[pair]float64{}, []pair{}
	add := func(from, to policy.ID, more float64) {
		p := pair{t.index[from], t.index[to]}
		if chunks[p] == 0 {
			order = append(order, p)
		}
		chunks[p] += more
	}
	if algorithm, _ := allreduce.ParseAlgorithm(t.Reduction.Algorithm); algorithm == allreduce.Ring { // the scenario is valid
		if t.ways.Known() {
			ring, err := t.ways.Order(ids)
			if err != nil {
				return nil, err
			}
			ids = ring.Order
		}
		for k, id := range ids {
			add(id, ids[(k+1)%n], float64(algorithm.Hops(n)))
		}
	} else {
		numbers := make([]int, n) // direct: as if all were one group
		if algorithm == allreduce.Hierarchical {
			for k, id := range ids {
				numbers[k] = t.Groups[slices.Index(t.Workers, id)]
			}
		}
		groups := allreduce.NewGroups(numbers)
		both := func(a, b int) {
			if a != b {
				add(ids[a], ids[b], 1)
				add(ids[b], ids[a], 1)
			}
		}
		for chunk := range ids {
			for group := range groups.Len() {
				leader := groups.Leader(group, chunk)
				both(leader, chunk)
				for _, member := range groups.Members(group) {
					both(member, leader)
				}
			}
		}
	}
	perChunk := float64(t.parameters) * float64(t.Reduction.Bits) / float64(n)
	return t.flows(order, chunks, perChunk), nil
}

// flows divides the rates of the access links among their flows.
func (t *traffic) flows(order []pair, chunks map[pair]float64, perChunk float64) (flows []Flow) {
	up, down := map[int]float64{}, map[int]float64{}
	for p, c := range chunks {
		up[p.from] += c
		down[p.to] += c
	}
	for _, p := range order {
		c := chunks[p]
		rate := lowest(float64(t.plan.Nodes[p.from].RateUp)*c/up[p.from], float64(t.plan.Nodes[p.to].RateDown)*c/down[p.to],
			float64(t.plan.Paths[p.from][p.to].Rate))
		flows = append(flows, Flow{p.from, p.to, rate, need(rate, c*perChunk, t.plan.Paths[p.from][p.to])})
	}
	return flows
}

// lowest is the lowest of the rates; zero means unlimited.
func lowest(rates ...float64) (low float64) {
	for _, r := range rates {
		if r > 0 && (low == 0 || r < low) {
			low = r
		}
	}
	return low
}

// need is the rate to carry for so many bits that come at a rate, on a path
// whose delay they may use up.
func need(rate, bits float64, path shaping.PathPlan) float64 {
	if rate == 0 || bits == 0 {
		return 0
	}
	return bits / (bits/rate + max(time.Duration(path.Fastest()), 0).Seconds())
}

// Traffic is the rate that reductions need between hosts, in bit/s from row to
// column: the maximum over all kinds of rounds. unlimited reports that flows
// without a rate are between hosts; they are not included.
func Traffic(n *Network, of []int) (needs [][]float64, unlimited bool, err error) {
	kinds, err := RoundKinds(n)
	hosts := slices.Max(of) + 1
	needs = matrix(hosts)
	for _, kind := range kinds {
		sum := matrix(hosts)
		for _, f := range kind.Flows {
			if a, b := of[f.From], of[f.To]; a != b {
				sum[a][b] += f.Need
				unlimited = unlimited || f.Rate == 0
			}
		}
		for a := range sum {
			for b := range sum[a] {
				needs[a][b] = max(needs[a][b], sum[a][b])
			}
		}
	}
	return needs, unlimited, err
}

// Fetches is the highest rate that a state fetch by one worker from another
// needs between their hosts, in Traffic's format.
func Fetches(n *Network, of []int) ([][]float64, error) {
	slow, err := n.slow()
	if err != nil {
		return nil, err
	}
	const bits = 2 * 32 // of a parameter and its momentum
	needs := matrix(slices.Max(of) + 1)
	for _, from := range n.Workers {
		i := n.Plan.Index(from.Node())
		for _, to := range n.Workers {
			j := n.Plan.Index(to.Node())
			if a, b := of[i], of[j]; a != b {
				needs[a][b] = max(needs[a][b], need(float64(slow.Rate(i, j)), bits*float64(n.Parameters), slow.Paths[i][j]))
			}
		}
	}
	return needs, nil
}

func matrix(n int) [][]float64 {
	m := make([][]float64, n)
	for i := range m {
		m[i] = make([]float64, n)
	}
	return m
}
