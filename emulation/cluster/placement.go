package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"testbed/allreduce/reduction"
	"testbed/allreduce/ringorder"
	"testbed/internal/errs"
	"testbed/policy"
	"testbed/scenarios/resolved"
	"testbed/shaping"
)

// Network is a network whose nodes are to be placed, with its traffic. A
// benchmark without a scenario has only Plan and Workers.
type Network struct {
	Plan      *shaping.Plan
	Dilation  float64 // factor by which everything takes longer by the machine's clock, at least 1
	Workers   []policy.ID
	Reduction reduction.Spec
	// Groups are the numbers of the workers' groups of links, for a hierarchical
	// reduction.
	Groups []int
	// Grouping says which workers reduce with which in a round; nil: all together.
	Grouping   *policy.Grouping
	Parameters int // number of reduced parameters
}

// NetworkOf is the network of a scenario.
func NetworkOf(s *resolved.Scenario) *Network {
	return &Network{
		Plan: s.Plan, Dilation: s.Slowdown(), Workers: s.IDs(), Reduction: s.Reduction, Groups: s.LinkGroups, Grouping: s.Grouping, Parameters: s.Parameters,
	}
}

// slow is the plan by the machine's clock.
func (n *Network) slow() (*shaping.Plan, error) {
	slow, err := n.Plan.Dilated(n.Dilation)
	if err != nil {
		return nil, fmt.Errorf("real.dilation: %w", err)
	}
	return slow, nil
}

// isWorker reports whether the node at that place of the plan is a worker.
func (n *Network) isWorker(node int) bool {
	id, is := policy.ParseNode(n.Plan.Nodes[node].Name)
	return is && slices.Contains(n.Workers, id)
}

// Host describes a host before nodes are placed. The first host is the leader.
type Host struct {
	Name       string `json:"name"`
	Processors int    `json:"processors"`
}

// Underlay is the one-way delays of the network between hosts, from row to column. A
// nil one is faster than any plan.
type Underlay [][]time.Duration

// otherLoad is the load of a node other than a worker, if a worker's is 1: the
// coordinator of persistent_straggler took 0.15 s of processor time, a worker
// 0.21 s.
const otherLoad = 0.7

// ChoosePlacement places the nodes of a network. First, pairs with a planned
// delay below the underlay's share a host. Second, work is in proportion to the
// hosts' processors; all workers count alike, since in a round all of them
// compute and send as much. Third, traffic between hosts is minimal. Each host
// has a worker, and the leader has all other nodes. It returns the host of each
// node, or an error that names two nodes which cannot be placed.
func ChoosePlacement(n *Network, hosts []Host, underlay Underlay) ([]int, error) {
	if err := n.checkCount(len(hosts)); err != nil {
		return nil, err
	}
	b, err := newBoard(n, hosts, underlay)
	if err != nil {
		return nil, err
	}
	order, err := n.ringOrder()
	if err != nil {
		return nil, err
	}
	// Nodes nearer than the two nearest hosts have to share a host. If that does
	// not suffice, because other hosts are farther apart, nodes nearer than those
	// share a host, and so on.
	for _, near := range underlay.steps() {
		groups := b.groups(order, near)
		if withWorkers := len(groups) - 1 + min(groups[0].workers, 1); withWorkers < len(hosts) {
			break
		}
		if b.arrange(groups); b.conflict() == nil {
			return b.of, nil
		}
	}
	return nil, b.refusal(order)
}

// ContiguousPlacement places the nodes on so many equal hosts without
// measurements: contiguous pieces of the ring, as a rule.
func ContiguousPlacement(n *Network, hosts int) ([]int, error) {
	return ChoosePlacement(n, make([]Host, max(hosts, 0)), nil)
}

// checkCount reports too few workers for a number of hosts.
func (n *Network) checkCount(hosts int) error {
	workers := len(n.Workers)
	if hosts < 1 {
		return fmt.Errorf("the number of hosts is %d; it must be at least 1", hosts)
	}
	if hosts > workers {
		return fmt.Errorf("the number of hosts is %d, but each host needs a worker; it must be at most %d, the number of workers", hosts, workers)
	}
	return nil
}

// ringOrder is the workers' nodes in the order of the ring, as far as the plan
// determines it.
func (n *Network) ringOrder() (nodes []int, err error) {
	ring, err := ringorder.Planned(n.Reduction, n.Workers, n.Plan).OfAll()
	if err != nil {
		return nil, err
	}
	var ids []policy.ID
	if ring != nil {
		ids = ring.Order
	} else {
		ids = slices.Sorted(slices.Values(n.Workers))
	}
	for _, id := range ids {
		nodes = append(nodes, n.Plan.Index(id.Node()))
	}
	return nodes, nil
}

// ParsePlacement reads a placement in a person's notation: the workers of each
// host, the leader first, with / between hosts and commas between nodes, ranges
// and patterns (shaping.Match). Other nodes are on the leader and may be
// omitted.
func ParsePlacement(text string, n *Network, hosts int) ([]int, error) {
	if err := n.checkCount(hosts); err != nil {
		return nil, err
	}
	parts := strings.Split(text, "/")
	if len(parts) != hosts {
		return nil, fmt.Errorf("%q names nodes for %s, but the run has %s; separate the hosts by \"/\", as in w0,w1/w2/w3-w5", text, errs.Count(len(parts), "host"), errs.Count(hosts, "host"))
	}
	names := make([]string, len(n.Plan.Nodes))
	of := make([]int, len(n.Plan.Nodes))
	for i, node := range n.Plan.Nodes {
		names[i], of[i] = node.Name, -1
	}
	for host, part := range parts {
		some := false
		for term := range strings.SplitSeq(part, ",") {
			found, problem := shaping.Match(names, strings.TrimSpace(term))
			if problem != "" {
				return nil, fmt.Errorf("host %d: %s", host, problem)
			}
			for _, i := range found {
				worker := n.isWorker(i)
				switch {
				case of[i] >= 0:
					return nil, fmt.Errorf("%s is named twice, for host %d and for host %d; name it once", names[i], of[i], host)
				case !worker && host != 0:
					return nil, fmt.Errorf("%s is on host %d, but belongs on the leader, host 0; move %[1]s there, or leave it out", names[i], host)
				}
				of[i], some = host, some || worker
			}
		}
		if !some {
			return nil, fmt.Errorf("host %d has no worker; name a worker for this host, or use fewer hosts", host)
		}
	}
	for i, host := range of {
		switch {
		case host >= 0:
		case n.isWorker(i):
			return nil, fmt.Errorf("%s is on no host; name every worker", names[i])
		default:
			of[i] = 0
		}
	}
	return of, nil
}

// NodesByHost are the names of the nodes on each host, in the order of the plan.
func NodesByHost(plan *shaping.Plan, of []int) [][]string {
	var all [][]string
	for i, host := range of {
		for len(all) <= host {
			all = append(all, nil)
		}
		all[host] = append(all[host], plan.Nodes[i].Name)
	}
	return all
}

// mega writes a rate in bit/s as a rounded number of Mbit/s, without an exponent.
func mega(rate float64) string {
	if x := rate / 1e6; x < 999.5 {
		return fmt.Sprintf("%.3g", x)
	}
	return fmt.Sprintf("%.0f", rate/1e6)
}

// DescribePlacement describes which nodes are on which host, the rates that they need
// between hosts, and the delay that the hosts' network must not exceed: the least delay
// of a path between two of them.
func DescribePlacement(n *Network, of []int) (lines []string, err error) {
	nodes := NodesByHost(n.Plan, of)
	for host, names := range nodes {
		who := fmt.Sprintf("host %d", host)
		if host == 0 {
			who += ", the leader"
		}
		lines = append(lines, fmt.Sprintf("%s: %s", who, strings.Join(names, " ")))
	}
	if len(nodes) < 2 {
		return lines, nil
	}
	slow, err := n.slow()
	if err != nil {
		return nil, err
	}
	fastest := pair{-1, -1}
	for i, row := range slow.Paths {
		for j, p := range row {
			if of[i] != of[j] && !p.Refused && (fastest.from < 0 || planned(p) < planned(slow.Paths[fastest.from][fastest.to])) {
				fastest = pair{i, j}
			}
		}
	}
	if fastest.from >= 0 {
		lines = append(lines, fmt.Sprintf("of all planned paths between hosts, %s→%s has the least delay, %v: the hosts' network must have a smaller delay",
			slow.Nodes[fastest.from].Name, slow.Nodes[fastest.to].Name, planned(slow.Paths[fastest.from][fastest.to]).Round(time.Microsecond)))
	}
	needs, unlimited, err := Traffic(n, of)
	if err != nil {
		return nil, err
	}
	for a, row := range needs {
		for b, need := range row {
			if need > 0 {
				lines = append(lines, fmt.Sprintf("from host %d to host %d, reductions need up to %s Mbit/s", a, b, mega(need)))
			}
		}
	}
	fetches, err := Fetches(n, of)
	if err != nil {
		return nil, err
	}
	most := 0.0
	for _, row := range fetches {
		most = max(most, slices.Max(row))
	}
	if most > 0 {
		lines = append(lines, fmt.Sprintf("a worker that fetches the state needs up to %s Mbit/s", mega(most)))
	}
	if unlimited {
		lines = append(lines, "the traffic of paths without a rate limit is not counted")
	}
	return lines, nil
}

// planned is the least planned delay of a path.
func planned(p shaping.PathPlan) time.Duration {
	if p.Reorder > 0 {
		return 0 // overtaking packets are due at once
	}
	return max(time.Duration(p.Fastest()), 0)
}

// steps are the delays of an underlay, shortest first, after zero.
func (u Underlay) steps() []time.Duration {
	all := []time.Duration{0}
	for i, row := range u {
		for j, d := range row {
			if i != j {
				all = append(all, d)
			}
		}
	}
	slices.SortFunc(all, cmp.Compare)
	return slices.Compact(all)
}
