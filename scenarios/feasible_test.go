package scenarios

import (
	"strings"
	"testing"
)

// TestTooFarForTheHorizon: links that cannot carry the rounds before the horizon are
// refused, with the figures.
func TestTooFarForTheHorizon(t *testing.T) {
	const text = `
seed: 1
inner_steps: 1
target_outer_steps: 3
horizon: 1000000
heartbeat_period: 1000
heartbeat_miss_threshold: 3
base_latency: 1
bandwidth_bpus: 1
state_bytes: 1
workers: [{id: 0, inner_step_mean: 1}, {id: 1, inner_step_mean: 1}, {id: 2, inner_step_mean: 1}]
real:
  time_scale: 100
`
	for name, test := range map[string]struct{ real, want string }{
		"near": {"links: {default: {rate_up: 1gbit, rate_down: 1gbit, one_way_delay: 10ms}}", ""},
		"far":  {"parameters: 1000\n  links: {default: {one_way_delay: 12s}}", "horizon is 1000000 µs (1m40s of real time), but the rounds of the run (3) take at least 1m48s on the links of the scenario: each round takes a round trip of 24s to the nearest worker and 12s to send 0.000251 MB between the two nearest workers"},
		"far for some, whom a policy may leave out": {"parameters: 1000\n  links: {default: {one_way_delay: 1ms}, nodes: {w2: {access_one_way_delay: 50s}}}", ""},
		"narrow":                           {"parameters: 50000000\n  links: {default: {rate_up: 1mbit, rate_down: 1gbit, one_way_delay: 1ms}}", "on the links of the scenario: each round takes a round trip of 2ms to the nearest worker and 1m40.391632s to send 12.5 MB between the two nearest workers"},
		"narrow, and the time suffices":    {"parameters: 5000000\n  links: {default: {rate_up: 1mbit, rate_down: 1gbit, one_way_delay: 1ms}}", ""},
		"narrow, and nothing is shortened": {"parameters: 5000000\n  all_reduce: {entropy: off}\n  links: {default: {rate_up: 1mbit, rate_down: 1gbit, one_way_delay: 1ms}}", "and 40.157256s to send 5.02 MB"},
		"far, until a link changes":        {"links: {default: {one_way_delay: 12s}}\n  injects: [{op: Link, at: 10, until: 1000, id: 0, access_one_way_delay: 1ms}]", ""},
	} {
		s, err := Parse("x.yaml", []byte(text+"  "+test.real+"\n"))
		if err != nil {
			t.Fatal(name, err)
		}
		r, err := s.Resolve("")
		if err != nil {
			t.Fatal(name, err)
		}
		switch err := s.CheckTime(r); {
		case err == nil && test.want != "":
			t.Errorf("%s: accepted, want %q", name, test.want)
		case err != nil && (test.want == "" || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
