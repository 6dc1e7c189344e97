package scenarios_test

import (
	"errors"
	"strings"
	"testing"

	"testbed/scenarios"
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
