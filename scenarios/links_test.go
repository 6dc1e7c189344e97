package scenarios_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"testbed/policy"
	"testbed/scenarios"
	"testbed/shaping"
)

const tiny = `seed: 1
workers: [{id: 0, inner_step_mean: 1000}, {id: 1, inner_step_mean: 1000}]
inner_steps: 1
target_outer_steps: 1
horizon: 1000000
heartbeat_period: 1000
heartbeat_miss_threshold: 5
base_latency: 100
bandwidth_bpus: 10
state_bytes: 100
`

func TestLinksAreReadStrictly(t *testing.T) {
	const good = tiny + `real:
  links:
    default: {access_preset: dsl, queue: 256kb, jitter: 1ms, jitter_distribution: normal}
    groups:
      all: {nodes: [w0-w1], rate_up: 10mbit}
    paths:
      - {between: [all, all], path_preset: dallas-tokyo, loss_burst: {enter: 1%, leave: 10%, loss_inside: 100%}}
    pairs: [{from: w0, to: w1, duplicate: 1%, reorder: 1%, corrupt: 1%}]
`
	if _, err := scenarios.Parse("x.yaml", []byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, want string }{
		{"dsl", "isdn", `x.yaml:13: real.links.default.access_preset: no access preset "isdn"`},
		{"[w0-w1]", "[w0-w7]", `x.yaml:15: real.links.groups.all.nodes[0]: no node "w7", an end of the range`},
		{"leave: 10%, ", "", `x.yaml:17: real.links.paths[0].loss_burst.leave: is missing; add it`},
		{"reorder: 1%", "reordr: 1%", `x.yaml:18: real.links.pairs[0].reordr: unknown field; did you mean reorder?`},
		{"corrupt: 1%", "corrupt: 101%", `x.yaml:18: real.links.pairs[0].corrupt: probability "101%" is above 100%`},
	} {
		text := strings.Replace(good, c.from, c.to, 1)
		_, err := scenarios.Parse("x.yaml", []byte(text))
		var bad *scenarios.Error
		if !errors.As(err, &bad) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s instead of %s gives\n%v, want\n%s", c.to, c.from, err, c.want)
		}
	}
}

const changing = tiny + `injects:
  - {op: Partition, at: 100, ids: [0, 1]}
  - {op: ClearPartition, at: 200, ids: [1]}
  - {op: ClearPartition, at: 300}
real:
  links: {default: {one_way_delay: 10ms}}
  injects:
    - {op: Link, at: 150, id: 1, rate_up: 1mbit, queue: 100ms}
    - {op: Link, at: 50, until: 160, from: w0, to: coordinator, loss: 5%, jitter: 8ms}
    - {op: Cut, at: 250, until: 260, from: w1, to: w0}
`

func TestLinkFaultsAreWhatIsActive(t *testing.T) {
	s, err := scenarios.Parse("x.yaml", []byte(changing))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.LinkFaultTimes(), []policy.Time{50, 100, 150, 160, 200, 250, 260, 300}; !reflect.DeepEqual(got, want) {
		t.Errorf("times %v, want %v", got, want)
	}
	slow := s.Real.Injects[0].Access
	lossy := s.Real.Injects[1].Path
	both, one := shaping.Partition{Nodes: []string{"w0", "w1"}}, shaping.Partition{Nodes: []string{"w0"}}
	link := shaping.AccessChange{Node: "w1", Access: slow}
	path := shaping.PathChange{From: "w0", To: "coordinator", Path: lossy}
	cut := shaping.Cut{Paths: []shaping.Direction{{From: "w1", To: "w0"}}}
	for at, want := range map[policy.Time][]shaping.Fault{
		0: nil, 50: {path}, 100: {both, path}, 150: {both, path, link}, 160: {both, link},
		200: {one, link}, 250: {one, link, cut}, 260: {one, link}, 300: {link},
	} {
		if got := s.LinkFaults(at); !reflect.DeepEqual(got, want) {
			t.Errorf("at %d: %+v, want %+v", at, got, want)
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back scenarios.Scenario
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back.Real, s.Real) {
		t.Errorf("through JSON: %v\n%+v\n%+v", err, back.Real, s.Real)
	}
}

func TestLinkInjectsNameTheFieldAndTheMend(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"{op: Link, at: 150", "{op: Slow, at: 150", `x.yaml:18: real.injects[0].op: "Slow" is no inject of a link; choose one of Link, Cut`},
		{"id: 1, rate_up", "id: 9, rate_up", `x.yaml:18: real.injects[0].id: there is no worker 9; the workers are 0, 1`},
		{"id: 1, rate_up: 1mbit, queue: 100ms", "id: 1", `x.yaml:18: real.injects[0]: changes nothing; give at least one property, for example rate_up`},
		{"id: 1, rate_up", "id: 1, loss: 1%, rate_up", `x.yaml:18: real.injects[0]: changes a path, but names an access link; give from and to instead of id`},
		{"id: 1, rate_up", "from: w0, to: w1, rate_up", `x.yaml:18: real.injects[0]: changes an access link, but names a path; give id instead of from and to`},
		{"id: 1, rate_up", "id: 1, from: w0, rate_up", `x.yaml:18: real.injects[0].id: there is from or to beside it; give id for an access link, or from and to for a path`},
		{"until: 160", "until: 50", `x.yaml:19: real.injects[1].until: is 50, but the inject begins at 50; let it end later, or leave until out`},
		{"to: coordinator", "to: w7", `x.yaml:19: real.injects[1].to: no node "w7"; the nodes are coordinator, w0, w1`},
		{"jitter: 8ms", "jitter: 18ms", `x.yaml:19: real.injects[1].jitter: from w0 to coordinator: 18ms exceeds the one-way delay of 10ms`},
		{"from: w1, to: w0}", "from: w1, to: w9}", `x.yaml:20: real.injects[2].to: no node "w9"; the nodes are coordinator, w0, w1`},
		{"from: w1, to: w0}", "id: 1}", `x.yaml:20: real.injects[2].id: Cut takes a path: give from and to; Partition cuts a worker off`},
		{"from: w1, to: w0}", "from: w1, to: w0, loss: 1%}", `x.yaml:20: real.injects[2]: Cut takes no properties; remove them, or write Link`},
		{"{op: Cut, at: 250, until: 260, from: w1, to: w0}", "{op: Link, at: 60, from: w0, to: coordinator, one_way_delay: 1ms}", `x.yaml:20: real.injects[2].jitter: from w0 to coordinator: 8ms exceeds the one-way delay of 1ms`},
	} {
		text := strings.Replace(changing, c.from, c.to, 1)
		_, err := scenarios.Parse("x.yaml", []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s instead of %s gives\n%v, want\n%s", c.to, c.from, err, c.want)
		}
	}
}
