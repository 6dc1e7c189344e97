package shaping_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"testbed/internal/errs"
	"testbed/shaping"
)

var nodes = []string{"coordinator", "w0", "w1"}

func ms(n int) *shaping.Duration {
	return new(shaping.Duration(n) * shaping.Duration(time.Millisecond))
}

func TestNewPlanResolvesDefaults(t *testing.T) {
	spec := shaping.Spec{
		Default: shaping.Properties{
			Access: shaping.Access{RateUp: new(shaping.Rate(100e6))},
			Path:   shaping.Path{OneWayDelay: ms(10), Jitter: ms(1)},
		},
		Nodes: map[string]shaping.Access{"w1": {RateUp: new(shaping.Rate(24e6)), Queue: &shaping.Queue{Time: *ms(50)}}},
		Pairs: []shaping.Pair{{From: "w0", To: "w1", Path: shaping.Path{OneWayDelay: ms(31), Loss: new(shaping.Probability(0.5))}}},
	}
	plan, err := shaping.NewPlan(spec, nodes, time.Second, 7)
	if err != nil {
		t.Fatal(err)
	}
	written, err := json.MarshalIndent(plan, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"name": "w1",
   "addr": "10.0.0.3/16",
   "mac": "02:54:42:00:00:03",
   "rate_up": "24mbit",
   "rate_down": "unlimited",
   "queue": "50ms"`,
		`"one_way_delay": "31ms",
    "jitter": "1ms",
    "loss": "50%"`,
		`"queue": "20ms"`, `"one_way_delay": "10ms"`, `"seed": 7`,
	} {
		if !strings.Contains(string(written), want) {
			t.Errorf("the plan lacks\n%s\nin\n%s", want, written)
		}
	}
	var back shaping.Plan
	if err := json.Unmarshal(written, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plan, &back, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("the plan's JSON reads back differently:\n%s", diff)
	}
	if got := plan.Paths[2][1]; got.OneWayDelay != *ms(10) || got.Loss != 0 {
		t.Errorf("a pair is directed, but w1 to w0 became %+v", got)
	}
	if plan.Paths[1][1] != (shaping.PathPlan{}) {
		t.Errorf("a node has a path to itself: %+v", plan.Paths[1][1])
	}
}

func TestNewPlanUsesTheScenariosLatencyWhereNoneIsGiven(t *testing.T) {
	plan, err := shaping.NewPlan(shaping.Spec{}, nodes, 10*time.Millisecond, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := plan.Paths[0][1], (shaping.PathPlan{OneWayDelay: *ms(10)}); got != want {
		t.Errorf("path = %+v, want %+v", got, want)
	}
}

func TestNewPlanNamesTheFieldAndTheMend(t *testing.T) {
	pair := func(from, to string, p shaping.Path) shaping.Spec {
		return shaping.Spec{Pairs: []shaping.Pair{{From: "w1", To: "w0"}, {From: from, To: to, Path: p}}}
	}
	for _, c := range []struct {
		name string
		spec shaping.Spec
		want string
	}{
		{"unknown from", pair("w9", "w0", shaping.Path{}), `real.links.pairs[1].from: there is no node "w9"; the nodes are coordinator, w0, w1`},
		{"unknown to", pair("w0", "x", shaping.Path{}), `real.links.pairs[1].to: there is no node "x"; the nodes are coordinator, w0, w1`},
		{"self", pair("w0", "w0", shaping.Path{}), `real.links.pairs[1].to: "w0" is also the pair's "from"; a pair joins two different nodes`},
		{"duplicate", pair("w1", "w0", shaping.Path{}), `real.links.pairs[1]: the pair from w1 to w0 is already given by pairs[0]; merge the two`},
		{"jitter", pair("w0", "w1", shaping.Path{Jitter: ms(20)}), `real.links.pairs[1].jitter: 20ms exceeds the one-way delay of 5ms, and a packet cannot arrive before it was sent; lower the jitter or raise one_way_delay`},
		{"loss", pair("w0", "w1", shaping.Path{Loss: new(shaping.Probability(1.5))}), `real.links.pairs[1].loss: 1.5 is not a probability; write 0% to 100%`},
		{"negative delay", pair("w0", "w1", shaping.Path{OneWayDelay: ms(-1)}), `real.links.pairs[1].one_way_delay: -1ms is negative`},
		{"endless delay", pair("w0", "w1", shaping.Path{OneWayDelay: ms(1e6)}), `real.links.pairs[1].one_way_delay: 16m40s is above the limit of 1m0s`},
		{"node", shaping.Spec{Nodes: map[string]shaping.Access{"w7": {}}}, `real.links.nodes.w7: there is no node "w7"; the nodes are coordinator, w0, w1`},
		{"rate", shaping.Spec{Nodes: map[string]shaping.Access{"w1": {RateUp: new(shaping.Rate(-5))}}}, `real.links.nodes.w1.rate_up: -5 bit/s is negative; leave it out for an unlimited rate`},
		{"queue", shaping.Spec{Default: shaping.Properties{Access: shaping.Access{Queue: &shaping.Queue{Time: *ms(-3)}}}}, `real.links.default.queue: -3ms is negative`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := shaping.NewPlan(c.spec, nodes, 5*time.Millisecond, 0)
			var field *errs.FieldError
			if !errors.As(err, &field) {
				t.Fatalf("error = %v, want a FieldError", err)
			}
			lines := strings.Split(err.Error(), "\n")
			if lines[0] != c.want {
				t.Errorf("error\n%s\nwant\n%s", lines[0], c.want)
			}
		})
	}
}

func TestNewPlanScales(t *testing.T) {
	names := make([]string, 1200)
	for i := range names {
		names[i] = fmt.Sprintf("w%d", i)
	}
	plan, err := shaping.NewPlan(shaping.Spec{}, names, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	addrs, macs := map[netip.Prefix]bool{}, map[shaping.MAC]bool{}
	for _, n := range plan.Nodes {
		addrs[n.Addr], macs[n.MAC] = true, true
	}
	if len(addrs) != len(names) || len(macs) != len(names) {
		t.Errorf("%d nodes have %d addresses and %d MACs", len(names), len(addrs), len(macs))
	}
	if got := plan.Nodes[1199].Addr.String(); got != "10.0.4.176/16" {
		t.Errorf("node 1199 has address %s", got)
	}
	for _, bad := range []string{"", "has space", "a/b", "sixteen-letters-", "lo", "-x", "w0"} {
		if _, err := shaping.NewPlan(shaping.Spec{}, []string{"w0", bad}, 0, 0); err == nil {
			t.Errorf("a node named %q was accepted beside w0", bad)
		}
	}
}

func TestQueueBytes(t *testing.T) {
	node := shaping.NodePlan{Queue: shaping.Queue{Time: *ms(20)}}
	for rate, want := range map[shaping.Rate]int{100e6: 250_000, 1e6: shaping.MinQueueBytes, 1e12: 1 << 30} {
		if got := node.QueueBytes(rate); got != want {
			t.Errorf("QueueBytes(%v) = %d, want %d", rate, got, want)
		}
	}
}

func TestNear(t *testing.T) {
	us := func(n int) *shaping.Duration { return new(shaping.Duration(n) * shaping.Duration(time.Microsecond)) }
	loss := new(shaping.Probability(0.01))
	workers := []string{"w0", "w1", "w2"}
	for _, c := range []struct {
		name  string
		delay int // one way, of all, in microseconds
		pair  shaping.Path
		to    string
		want  bool
	}{
		{"no delay", 0, shaping.Path{}, "w2", true},
		{"0.9 ms", 900, shaping.Path{}, "w2", true},
		{"1 ms", 1000, shaping.Path{}, "w2", false},
		{"one way longer, the round trip still short", 500, shaping.Path{OneWayDelay: us(1400)}, "w2", true},
		{"one way much longer", 500, shaping.Path{OneWayDelay: us(1600)}, "w2", false},
		{"a lossy way", 0, shaping.Path{Loss: loss}, "w2", false},
		{"jitter", 500, shaping.Path{Jitter: us(100)}, "w2", false},
		{"a long way to another node", 0, shaping.Path{OneWayDelay: us(50_000), Loss: loss}, "coordinator", true},
	} {
		spec := shaping.Spec{Default: shaping.Properties{Path: shaping.Path{OneWayDelay: us(c.delay)}}, Pairs: []shaping.Pair{{From: "w0", To: c.to, Path: c.pair}}}
		plan, err := shaping.NewPlan(spec, append([]string{"coordinator"}, workers...), 0, 1)
		if err != nil {
			t.Fatal(c.name, err)
		}
		if got := plan.ShortPaths(workers, 2*time.Millisecond); got != c.want {
			t.Errorf("%s: short %v, want %v", c.name, got, c.want)
		}
	}
}
