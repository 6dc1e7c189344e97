package cluster_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/allreduce"
	"testbed/allreduce/reduction"
	"testbed/emulation/cluster"
	"testbed/internal/randscenario"
	"testbed/internal/rapidtest"
	"testbed/policy"
	"testbed/scenarios"
	"testbed/shaping"
)

// network is that of a scenario.
func network(t interface{ Fatal(...any) }, s *scenarios.Scenario) *cluster.Network {
	resolved, err := s.Resolve("")
	if err != nil {
		t.Fatal(err)
	}
	return cluster.NetworkOf(resolved)
}

// drawn is a network with links of all sorts.
func drawn(t *rapid.T) *cluster.Network {
	s := randscenario.Draw(t)
	s.Real.TimeScale, s.Real.Parameters, s.Real.AllReduce = 1, 100_000, reduction.Default
	s.Real.AllReduce.Algorithm = rapid.SampledFrom(allreduce.AlgorithmNames()).Draw(t, "algorithm")
	delay := func() *shaping.Duration {
		return new(shaping.Duration(rapid.SampledFrom([]time.Duration{10 * time.Microsecond, time.Millisecond, 10 * time.Millisecond}).Draw(t, "delay")))
	}
	rate := func() *shaping.Rate {
		return new(shaping.Rate(rapid.SampledFrom([]float64{0, 1e6, 20e6, 1e9}).Draw(t, "rate")))
	}
	links := &s.Real.Links
	links.Default = shaping.Properties{Access: shaping.Access{RateUp: rate(), RateDown: rate()}, Path: shaping.Path{OneWayDelay: new(shaping.Duration(10 * time.Millisecond))}}
	links.Nodes = map[string]shaping.Access{}
	nodes := s.Nodes()
	for _, name := range nodes {
		links.Nodes[name] = shaping.Access{RateUp: rate()}
	}
	for range rapid.IntRange(0, 4).Draw(t, "pairs") {
		from, to := rapid.SampledFrom(nodes).Draw(t, "from"), rapid.SampledFrom(nodes).Draw(t, "to")
		if from != to && !slices.ContainsFunc(links.Pairs, func(p shaping.Pair) bool { return p.From == from && p.To == to }) {
			links.Pairs = append(links.Pairs, shaping.Pair{From: from, To: to, Path: shaping.Path{OneWayDelay: delay()}})
		}
	}
	return network(t, s)
}

func hosts(processors ...int) (all []cluster.Host) {
	for k, p := range processors {
		all = append(all, cluster.Host{Name: fmt.Sprintf("h%d", k), Processors: p})
	}
	return all
}

// contiguous are pieces of the ids' order that differ by one at most, the leader's
// being the smallest.
func contiguous(n *cluster.Network, hosts int) []int {
	of := make([]int, len(n.Plan.Nodes))
	workers := len(n.Workers)
	for k, id := range n.Workers {
		of[n.Plan.Index(id.Node())] = hosts - 1 - (workers-1-k)*hosts/workers
	}
	return of
}

// TestChoose: every node is on one host, each host has a worker, and the leader what
// is none; who is nearer than two hosts shares one, or there is a reason that names
// two nodes; and no more goes between hosts than with contiguous pieces.
func TestChoose(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		net := drawn(t)
		plan, n := net.Plan, rapid.IntRange(1, len(net.Workers)+1).Draw(t, "hosts")
		same := make([]int, n)
		for k := range same {
			same[k] = 4
		}
		var underlay cluster.Underlay
		if rapid.Bool().Draw(t, "measured") {
			for range n {
				row := make([]time.Duration, n)
				for k := range row {
					row[k] = rapid.SampledFrom([]time.Duration{50 * time.Microsecond, 2 * time.Millisecond, 20 * time.Millisecond}).Draw(t, "one way")
				}
				underlay = append(underlay, row)
			}
		}
		of, err := cluster.ChoosePlacement(net, hosts(same...), underlay)
		if err != nil {
			if n <= len(net.Workers) && !(underlay != nil && strings.Contains(err.Error(), "has a planned delay") && strings.Contains(err.Error(), "→w") || strings.Contains(err.Error(), "→coordinator")) {
				t.Fatalf("%d hosts for %d workers: %v", n, len(net.Workers), err)
			}
			return
		}
		sizes := make([]int, n)
		for i, node := range plan.Nodes {
			if node.Name != policy.CoordinatorNode {
				sizes[of[i]]++
			} else if of[i] != 0 {
				t.Fatal("the coordinator is not at the leader")
			}
		}
		if slices.Min(sizes) == 0 {
			t.Fatalf("pieces of %v", sizes)
		}
		for i, row := range plan.Paths {
			for j, p := range row {
				if a, b := of[i], of[j]; underlay != nil && a != b && time.Duration(p.OneWayDelay) < underlay[a][b] {
					t.Fatalf("%s→%s takes %v, and is between hosts that are %v apart", plan.Nodes[i].Name, plan.Nodes[j].Name, p.OneWayDelay, underlay[a][b])
				}
			}
		}
		if was := contiguous(net, n); underlay == nil && cut(t, net, of) > cut(t, net, was)*(1+1e-9) {
			t.Fatalf("%v has a larger cut than the contiguous %v", of, was)
		}
	})
}

// cut is what goes between hosts, a flow without a rate counting as 10 Gbit/s.
func cut(t *rapid.T, n *cluster.Network, of []int) (sum float64) {
	kinds, err := cluster.RoundKinds(n)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		for _, f := range kind.Flows {
			switch {
			case of[f.From] == of[f.To]:
			case f.Rate == 0:
				sum += kind.Often * 10e9
			default:
				sum += kind.Often * f.Rate
			}
		}
	}
	return sum
}

// crowd is the network of that many workers at 100 Mbit/s and 10 ms.
func crowd(t *testing.T, workers int, extra string) *cluster.Network {
	t.Helper()
	var b strings.Builder
	b.WriteString("seed: 1\ninner_steps: 1\ntarget_outer_steps: 2\nhorizon: 1000\nheartbeat_period: 100\nheartbeat_miss_threshold: 3\nbase_latency: 1\nbandwidth_bpus: 1\nstate_bytes: 1\nworkers:\n")
	for k := range workers {
		fmt.Fprintf(&b, "  - {id: %d, inner_step_mean: 100}\n", k)
	}
	fmt.Fprintf(&b, "real:\n  links:\n    default: {rate_up: 100mbit, rate_down: 100mbit, one_way_delay: 10ms}\n%s", extra)
	s, err := scenarios.Parse("crowd.yaml", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	return network(t, s)
}

func TestHostsHaveWorkByTheirProcessors(t *testing.T) {
	n := crowd(t, 13, "")
	of, err := cluster.ChoosePlacement(n, hosts(2, 8, 4), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := cluster.NodesByHost(n.Plan, of); len(got[0]) != 2 || len(got[1]) != 8 || len(got[2]) != 4 { // the coordinator, too
		t.Errorf("hosts of 2, 8 and 4 processors have %v", got)
	}
}

// TestNearNodesShareAHost also where they are far apart in the ring.
func TestNearNodesShareAHost(t *testing.T) {
	n := crowd(t, 6, `    pairs:
      - {from: w0, to: w3, one_way_delay: 20us}
      - {from: w5, to: w1, one_way_delay: 20us}
      - {from: coordinator, to: w4, one_way_delay: 20us}
`)
	slow := cluster.Underlay{{0, time.Millisecond}, {time.Millisecond, 0}}
	of, err := cluster.ChoosePlacement(n, hosts(4, 4), slow)
	at := func(name string) int { return of[n.Plan.Index(name)] }
	if err != nil || at("w0") != at("w3") || at("w5") != at("w1") || at("w4") != 0 {
		t.Errorf("%v, %v", cluster.NodesByHost(n.Plan, of), err)
	}
	if of, err = cluster.ChoosePlacement(n, hosts(4, 4), cluster.Underlay{{0, 11 * time.Millisecond}, {time.Millisecond, 0}}); err == nil ||
		!strings.Contains(err.Error(), "20µs, but the network between their hosts, h0 and h1, takes 11ms") {
		t.Errorf("%v, %v", of, err)
	}
}

func TestKinds(t *testing.T) {
	const nodes, rate = 4, 100e6
	for algorithm, want := range map[string]int{"ring": nodes, "direct": nodes * (nodes - 1)} {
		n := crowd(t, nodes, "  parameters: 10000000\n  all_reduce: {algorithm: "+algorithm+"}\n")
		kinds, err := cluster.RoundKinds(n)
		if err != nil || len(kinds) != 1 || len(kinds[0].Flows) != want {
			t.Fatalf("%s: %v, %v", algorithm, kinds, err)
		}
		sent := map[int]float64{}
		for _, f := range kinds[0].Flows {
			sent[f.From] += f.Rate
			if f.Need > f.Rate || f.Need < 0.95*f.Rate { // 10 million values take more than a second
				t.Errorf("%s: %v of %v is needed", algorithm, f.Need, f.Rate)
			}
		}
		for node, sum := range sent {
			if math.Abs(sum-rate) > 1 {
				t.Errorf("%s: node %d sends %v bit/s over a link of %v", algorithm, node, sum, rate)
			}
		}
	}
	n := crowd(t, nodes, "  dilation: 10\n  parameters: 10\n")
	kinds, err := cluster.RoundKinds(n)
	if err != nil || kinds[0].Flows[0].Rate != rate/10 || kinds[0].Flows[0].Need > rate/1000 {
		t.Errorf("ten parameters, ten times as slow: %v, %v", kinds, err)
	}
}

// TestKindsByGrouping: regions reduce by themselves in most rounds, and replica groups
// rank by rank in all.
func TestKindsByGrouping(t *testing.T) {
	const nodes = 4
	n := crowd(t, nodes, "  parameters: 10000000\n")
	of := func(k cluster.RoundKind) (pairs string, need float64) {
		for _, f := range k.Flows {
			pairs += fmt.Sprintf("%s>%s ", n.Plan.Nodes[f.From].Name, n.Plan.Nodes[f.To].Name)
		}
		return pairs, k.Flows[0].Need
	}
	n.Grouping = policy.NewRegions(4, map[string][]policy.ID{"a": {0, 3}, "b": {1, 2}})
	kinds, err := cluster.RoundKinds(n)
	if err != nil || len(kinds) != 2 || kinds[0].Often != 0.25 || kinds[1].Often != 0.75 {
		t.Fatalf("%+v, %v", kinds, err)
	}
	all, whole := of(kinds[0])
	if regional, _ := of(kinds[1]); all != "w0>w1 w1>w2 w2>w3 w3>w0 " || regional != "w0>w3 w3>w0 w1>w2 w2>w1 " {
		t.Errorf("all reduce %s, and regions %s", all, regional)
	}
	n.Grouping = policy.NewReplicaGroups(n.Workers, 2)
	if kinds, err = cluster.RoundKinds(n); err != nil || len(kinds) != 1 || kinds[0].Often != 1 {
		t.Fatalf("%+v, %v", kinds, err)
	}
	if ranks, need := of(kinds[0]); ranks != "w0>w2 w2>w0 w1>w3 w3>w1 " || need >= whole {
		t.Errorf("ranks reduce %s, and need %.0f bit/s where a ring of all needs %.0f", ranks, need, whole)
	}
}

func TestParse(t *testing.T) {
	n := crowd(t, 6, "")
	of, err := cluster.ParsePlacement("w5, w0-w1 / w2,w4/w3", n, 3)
	if want := []int{0, 0, 0, 1, 2, 1, 0}; err != nil || !slices.Equal(of, want) {
		t.Errorf("%v, %v; want %v", of, err, want)
	}
	for text, says := range map[string]string{
		"w0/w1-w5":                   "names nodes for 2 hosts, but the run has 3 hosts",
		"w0/w1/w2,w7":                `host 2: there is no node "w7"; the nodes are`,
		"w0,w1/w1,w2/w3-w5":          "w1 is named twice, for host 0 and for host 1; name it once",
		"w0/coordinator,w1/w2-w5":    "coordinator is on host 1, but belongs on the leader",
		"w0-w5/coordinator/w3":       "coordinator is on host 1",
		"coordinator/w0-w3/w4,w5":    "host 0 has no worker; name a worker for this host, or use fewer hosts",
		"w0/w1/w2,w3,w4":             "w5 is on no host; name every worker",
		"coordinator,w0/w1/w2-w5,w2": "w2 is named twice, for host 2 and for host 2; name it once",
	} {
		if of, err := cluster.ParsePlacement(text, n, 3); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, %v; want %q", text, of, err, says)
		}
	}
}
