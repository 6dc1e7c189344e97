package cluster

import (
	"fmt"
	"math"
	"slices"
	"time"

	"testbed/shaping"
)

// unlimited is the rate, in bit/s, that stands for unlimited flows in the
// search for the least traffic between hosts.
const unlimited = 10e9

// maxPasses is the most passes over all pairs of groups in the search for
// swaps.
const maxPasses = 3

// board is a placement during the search.
type board struct {
	plan     *shaping.Plan // by the machine's clock
	hosts    []Host
	underlay Underlay
	of       []int
	worker   []bool
	flows    [][]neighbour // by node, of both directions
	quick    [][]quickPath // by node: paths too quick for some pair of hosts
}

type neighbour struct {
	node   int
	weight float64
}

type quickPath struct {
	from, to int
	takes    time.Duration
}

// group is a group of nodes that share a host.
type group struct {
	nodes   []int
	workers int
	load    float64
}

func newBoard(network *Network, hosts []Host, underlay Underlay) (*board, error) {
	slow, err := network.slow()
	if err != nil {
		return nil, err
	}
	kinds, err := RoundKinds(network)
	if err != nil {
		return nil, err
	}
	n := len(slow.Nodes)
	b := &board{plan: slow, hosts: hosts, underlay: underlay, of: make([]int, n), worker: make([]bool, n), flows: make([][]neighbour, n), quick: make([][]quickPath, n)}
	for i := range n {
		b.worker[i] = network.isWorker(i)
	}
	for _, kind := range kinds {
		for _, f := range kind.Flows {
			weight := kind.Often * unlimited
			if f.Rate > 0 {
				weight = kind.Often * f.Rate
			}
			b.flows[f.From] = append(b.flows[f.From], neighbour{f.To, weight})
			b.flows[f.To] = append(b.flows[f.To], neighbour{f.From, weight})
		}
	}
	steps := underlay.steps()
	slowest := steps[len(steps)-1]
	for i, row := range slow.Paths {
		for j, p := range row {
			if takes := planned(p); i != j && !p.Refused && takes < slowest {
				b.quick[i] = append(b.quick[i], quickPath{i, j, takes})
				b.quick[j] = append(b.quick[j], quickPath{i, j, takes})
			}
		}
	}
	return b, nil
}

// groups joins the nodes between which a path takes less than near, and all
// nodes other than workers. The first group has the latter; the others are in
// the order of the ring.
func (b *board) groups(order []int, near time.Duration) []group {
	root := make([]int, len(b.of))
	leader := -1
	for i := range root {
		root[i] = i
		if !b.worker[i] && leader < 0 {
			leader = i
		} else if !b.worker[i] {
			root[i] = leader
		}
	}
	find := func(i int) int {
		for root[i] != i {
			i = root[i]
		}
		return i
	}
	for _, paths := range b.quick {
		for _, q := range paths {
			if x, y := find(q.from), find(q.to); q.takes < near && x != y {
				root[max(x, y)] = min(x, y)
			}
		}
	}
	at := map[int]int{}
	var all []group
	put := func(i int, load float64) {
		r := find(i)
		if _, ok := at[r]; !ok {
			at[r] = len(all)
			all = append(all, group{})
		}
		g := &all[at[r]]
		g.nodes, g.load = append(g.nodes, i), g.load+load
		if b.worker[i] {
			g.workers++
		}
	}
	for i := range b.of {
		if !b.worker[i] {
			put(i, otherLoad)
		}
	}
	for _, i := range order {
		put(i, 1)
	}
	return all
}

// score rates a placement: by conflicts first, then balance, then traffic
// between hosts. Less is better.
type score struct {
	conflicts    int
	balance, cut float64
}

func (a score) less(b score) bool {
	const same = 1e-9 // sums in another order differ by that much
	switch {
	case a.conflicts != b.conflicts:
		return a.conflicts < b.conflicts
	case a.balance != b.balance && !(math.Abs(a.balance-b.balance) <= same*b.balance):
		return a.balance < b.balance
	default:
		return a.cut < b.cut*(1-same)-same
	}
}

// arrange places groups. Each host can have one with workers.
func (b *board) arrange(groups []group) {
	lead, rest := groups[0], groups[1:]
	best, found := score{conflicts: math.MaxInt}, []int(nil)
	turns := max(len(rest), 1)
	if lead.workers > 0 {
		turns = 1 // the ring begins at the leader
	}
	for _, pieces := range [][]int{b.even(rest), b.pieces(lead, rest)} {
		for turn := range turns {
			b.lay(lead, slices.Concat(rest[turn:], rest[:turn]), pieces)
			now := b.score(groups...)
			now.balance = b.balance()
			if now.less(best) {
				best, found = now, slices.Clone(b.of)
			}
		}
	}
	b.of = found
	b.swap(rest)
}

// even cuts groups into as many pieces as there are hosts. Their sizes differ
// by one at most; the first is the smallest.
func (b *board) even(rest []group) []int {
	sizes, n := make([]int, len(b.hosts)), len(rest)
	for k := range n {
		sizes[len(sizes)-1-(n-1-k)*len(sizes)/n]++
	}
	return sizes
}

// pieces cuts the groups, in their order, into one piece for each host, so that
// the sum of load² ÷ processors is the least: then loads are in proportion to
// processors. It returns the number of each host's groups.
func (b *board) pieces(lead group, rest []group) []int {
	n, hosts := len(rest), len(b.hosts)
	sum := make([]float64, n+1)
	for k, g := range rest {
		sum[k+1] = sum[k] + g.load
	}
	cost := make([][]float64, hosts+1) // of the first k groups on the first h hosts
	from := make([][]int, hosts+1)
	for h := range cost {
		cost[h], from[h] = slices.Repeat([]float64{math.Inf(1)}, n+1), make([]int, n+1)
	}
	cost[0][0] = 0
	for h := range hosts {
		for k := range n + 1 {
			for first := range k + 1 {
				load := sum[k] - sum[first]
				if h == 0 {
					load += lead.load
				}
				if first == k && !(h == 0 && lead.workers > 0) {
					continue // each host has a worker
				}
				if c := cost[h][first] + b.strain(h, load); c < cost[h+1][k]*(1-1e-9) {
					cost[h+1][k], from[h+1][k] = c, first
				}
			}
		}
	}
	sizes := make([]int, hosts)
	for h, k := hosts, n; h > 0; h-- {
		sizes[h-1] = k - from[h][k]
		k = from[h][k]
	}
	return sizes
}

func (b *board) strain(host int, load float64) float64 {
	return load * load / float64(max(b.hosts[host].Processors, 1))
}

func (b *board) lay(lead group, rest []group, pieces []int) {
	b.put(lead, 0)
	for host, n := range pieces {
		for _, g := range rest[:n] {
			b.put(g, host)
		}
		rest = rest[n:]
	}
}

func (b *board) put(g group, host int) {
	for _, i := range g.nodes {
		b.of[i] = host
	}
}

// score is the score of the groups' nodes, without the balance.
func (b *board) score(groups ...group) (s score) {
	for _, g := range groups {
		for _, i := range g.nodes {
			for _, q := range b.quick[i] {
				if b.tooQuick(q) {
					s.conflicts++
				}
			}
			for _, n := range b.flows[i] {
				if b.of[i] != b.of[n.node] {
					s.cut += n.weight
				}
			}
		}
	}
	return s
}

// balance is the sum of all hosts' strains. It is infinite for a host without a
// worker.
func (b *board) balance() (sum float64) {
	loads, workers := make([]float64, len(b.hosts)), make([]int, len(b.hosts))
	for i, host := range b.of {
		if b.worker[i] {
			loads[host]++
			workers[host]++
		} else {
			loads[host] += otherLoad
		}
	}
	for host, load := range loads {
		sum += b.strain(host, load)
		if workers[host] == 0 {
			return math.Inf(1)
		}
	}
	return sum
}

// swap exchanges groups as long as that improves the score.
func (b *board) swap(groups []group) {
	for range maxPasses {
		better := false
		for k, g := range groups {
			for _, other := range groups[:k] {
				at, to := b.of[g.nodes[0]], b.of[other.nodes[0]]
				if at == to {
					continue
				}
				balance := func() float64 {
					if g.load == other.load {
						return 0 // it stays
					}
					return b.balance()
				}
				before := b.score(g, other)
				before.balance = balance()
				b.put(g, to)
				b.put(other, at)
				after := b.score(g, other)
				if after.balance = balance(); after.less(before) {
					better = true
					continue
				}
				b.put(g, at)
				b.put(other, to)
			}
		}
		if !better {
			return
		}
	}
}

func (b *board) tooQuick(q quickPath) bool {
	from, to := b.of[q.from], b.of[q.to]
	return from != to && q.takes < b.underlay[from][to]
}

// conflictError is a path with a planned delay below the hosts' network's.
type conflictError struct {
	from, to       string
	fromAt, toAt   string
	planned, takes time.Duration
}

func (c *conflictError) Error() string {
	return fmt.Sprintf("the path %s→%s has a planned delay of %v, but the network between their hosts, %s and %s, takes %v (half of the round trip, 99.9th percentile)",
		c.from, c.to, c.planned.Round(time.Microsecond), c.fromAt, c.toAt, c.takes.Round(time.Microsecond))
}

// conflict is the worst conflict of the placement, nil if there is none.
func (b *board) conflict() (worst *conflictError) {
	for _, paths := range b.quick {
		for _, q := range paths {
			if !b.tooQuick(q) {
				continue
			}
			from, to := b.of[q.from], b.of[q.to]
			if takes := b.underlay[from][to]; worst == nil || takes-q.takes > worst.takes-worst.planned {
				worst = &conflictError{b.plan.Nodes[q.from].Name, b.plan.Nodes[q.to].Name, b.hosts[from].Name, b.hosts[to].Name, q.takes, takes}
			}
		}
	}
	return worst
}

// refusal explains why nodes cannot be placed: the problem of the placement
// with the fewest conflicts.
func (b *board) refusal(order []int) error {
	b.arrange(b.groups(order, 0))
	return fmt.Errorf("%w, and every placement tried on %d hosts has such a path; plan longer delays, or use fewer hosts", b.conflict(), len(b.hosts))
}
