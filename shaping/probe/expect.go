package probe

import (
	"math"
	"math/rand/v2"
	"slices"

	"testbed/shaping"
)

// Frame is the size of a probe's frame in bytes.
const Frame = shaping.UDPHeaders + 40

// Pair is an ordered pair of nodes, by their positions in the plan.
type Pair struct{ From, To int }

const (
	// maxWhole is the number of nodes up to which all pairs are measured: the
	// coordinator and eight workers.
	maxWhole = 9
	// sampled is the number of pairs drawn in larger networks, in addition to the
	// rings.
	sampled = 32
	// maxPairs limits the work: even so, 12 s of probes at 4,000 a second give
	// each pair a hundred.
	maxPairs = 256
)

// AllPairs returns the ordered pairs to measure. Up to 9 nodes, these are all
// pairs. Otherwise they are the neighbours on the ring of nodes, both ways, and
// a sample of the others that depends on the plan's seed alone. whole reports
// that these are all.
func AllPairs(plan *shaping.Plan) (pairs []Pair, whole bool) {
	n := len(plan.Nodes)
	if n <= maxWhole {
		for i := range n {
			for j := range n {
				if i != j {
					pairs = append(pairs, Pair{i, j})
				}
			}
		}
		return pairs, true
	}
	random := rand.New(rand.NewPCG(plan.Seed, uint64(n)))
	start := random.IntN(n) // a stretch of the ring if the whole is too long
	for k := range min(n, (maxPairs-sampled)/2) {
		a, b := (start+k)%n, (start+k+1)%n
		pairs = append(pairs, Pair{a, b}, Pair{b, a})
	}
	for range sampled {
		p := Pair{random.IntN(n), random.IntN(n)}
		if p.From != p.To && !slices.Contains(pairs, p) {
			pairs = append(pairs, p)
		}
	}
	return pairs, false
}

// rounds groups pairs so that in each round no node sends twice or receives
// twice, and the rates sum up to at most budget: such pairs do not disturb
// each other. A pair whose rate alone exceeds the budget has its own round.
func rounds(pairs []Pair, rate func(Pair) float64, budget float64) [][]Pair {
	var all [][]Pair
	// Distance around the ring first: the pairs at one distance share no
	// sender and no receiver.
	n := 0
	for _, p := range pairs {
		n = max(n, p.From+1, p.To+1)
	}
	distance := func(p Pair) int { return (p.To - p.From + n) % n }
	left := slices.Clone(pairs)
	slices.SortStableFunc(left, func(a, b Pair) int { return distance(a) - distance(b) })
	for len(left) > 0 {
		var round, rest []Pair
		sends, receives, sum := map[int]bool{}, map[int]bool{}, 0.0
		for _, p := range left {
			r := rate(p)
			if sends[p.From] || receives[p.To] || len(round) > 0 && sum+r > budget {
				rest = append(rest, p)
				continue
			}
			round = append(round, p)
			sends[p.From], receives[p.To], sum = true, true, sum+r
		}
		all, left = append(all, round), rest
	}
	return all
}

// Ceiling is the share of a rate, which counts Ethernet frames, that remains
// for the payload of full UDP datagrams.
const Ceiling = float64(shaping.FrameSize-shaping.UDPHeaders) / shaping.FrameSize

// alone is the rate in frames that the path can carry, or +Inf.
func alone(plan *shaping.Plan, p Pair) float64 {
	return orInf(plan.Rate(p.From, p.To))
}

func orInf(r shaping.Rate) float64 {
	if r == 0 {
		return math.Inf(1)
	}
	return float64(r)
}

// over is the factor by which the offered load exceeds a path's capacity, to
// measure the capacity.
const over = 1.1

// offers are the rates at which all pairs send at once; 0 if no rate is
// planned. Senders without a rate of their own leave room for the others.
func offers(plan *shaping.Plan, pairs []Pair) []float64 {
	senders := map[int]int{}
	for _, p := range pairs {
		senders[p.To]++
	}
	all := make([]float64, len(pairs))
	for k, p := range pairs {
		r := alone(plan, p)
		switch {
		case math.IsInf(r, 1):
		case plan.Nodes[p.From].RateUp == 0:
			all[k] = over * r / float64(senders[p.To])
		default:
			all[k] = over * r
		}
	}
	return all
}

// passage is the effect of a path on packets, in shares of those that enter it.
// A corrupted packet reaches its node, whose kernel drops it because of its
// checksum.
type passage struct {
	seen    float64 // of packets: at least one copy arrives whole
	crossed float64 // copies on the way, including corrupted ones
	whole   float64 // copies that arrive whole
}

// pass is the effect of the path from one node to another, on any backend. A
// duplicate makes up for a loss. A second copy may be lost in its turn, and
// each may be corrupted.
func pass(p shaping.PathPlan) passage {
	lost, twice, bad := float64(p.MeanLoss()), float64(p.Duplicate), float64(p.Corrupt)
	if p.Cut {
		return passage{}
	}
	one := (1-twice)*(1-lost) + twice*lost
	two := twice * (1 - lost)
	return passage{
		seen:    one*(1-bad) + two*(1-bad*(1-(1-lost)*(1-bad))),
		crossed: one + two*(2-lost),
		whole:   (one + two*(2-lost)) * (1 - bad),
	}
}

// together returns the rates that arrive when all pairs send at once at the
// offered rates. As in HTB, each sender's rate is shared by its destinations,
// and then each receiver's by its senders.
func together(plan *shaping.Plan, pairs []Pair, offered []float64) []float64 {
	rates := slices.Clone(offered)
	stage := func(of func(Pair) int, limit func(shaping.NodePlan) shaping.Rate) {
		for i, node := range plan.Nodes {
			var members []int
			for k, p := range pairs {
				if of(p) == i {
					members = append(members, k)
				}
			}
			fill(rates, members, orInf(limit(node)))
		}
	}
	stage(func(p Pair) int { return p.From }, func(n shaping.NodePlan) shaping.Rate { return n.RateUp })
	for k, p := range pairs {
		rates[k] = min(rates[k], orInf(plan.Paths[p.From][p.To].Rate))
	}
	for k, p := range pairs {
		rates[k] *= pass(plan.Paths[p.From][p.To]).crossed
	}
	stage(func(p Pair) int { return p.To }, func(n shaping.NodePlan) shaping.Rate { return n.RateDown })
	for k, p := range pairs {
		if through := pass(plan.Paths[p.From][p.To]); through.crossed > 0 {
			rates[k] *= through.whole / through.crossed
		}
	}
	return rates
}

// fill gives each member its rate if the limit allows it, and the other members
// equal parts of the rest (max-min fairness).
func fill(rates []float64, members []int, limit float64) {
	slices.SortFunc(members, func(a, b int) int {
		switch {
		case rates[a] < rates[b]:
			return -1
		case rates[a] > rates[b]:
			return 1
		}
		return 0
	})
	for n, k := range members {
		rates[k] = min(rates[k], limit/float64(len(members)-n))
		limit -= rates[k]
	}
}
