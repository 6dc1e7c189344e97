package scenarios

import (
	"testing"
	"time"
)

// TestPatienceFollowsTheLinks: the stall time-out is long enough for healthy workers on
// slow links.
func TestPatienceFollowsTheLinks(t *testing.T) {
	const text = `
seed: 1
inner_steps: 1
target_outer_steps: 1
horizon: 1000000
heartbeat_period: 1000
heartbeat_miss_threshold: 3
base_latency: 1
bandwidth_bpus: 1
state_bytes: 1
workers: [{id: 0, inner_step_mean: 1}, {id: 1, inner_step_mean: 1}]
real:
  time_scale: 100
`
	const queue = 68<<10 + 1514 // bytes: the least one, and a frame
	drain := func(bitsPerSecond float64) time.Duration {
		return time.Duration(8 * queue / bitsPerSecond * float64(time.Second))
	}
	for name, test := range map[string]struct {
		links string
		want  time.Duration // of the stall time-out, real
	}{
		"fast":                    {"links: {default: {rate_up: 1gbit, rate_down: 1gbit, one_way_delay: 10ms}}", minStallTimeout},
		"far":                     {"links: {default: {rate_up: 1gbit, rate_down: 1gbit, one_way_delay: 800ms, queue: 1ms}}", 2*8*800*time.Millisecond + 2*4*(2*drain(1e9))},
		"narrow":                  {"links: {default: {rate_up: 64kbit, rate_down: 1gbit, one_way_delay: 5ms, queue: 1ms}}", 2*8*5*time.Millisecond + 2*4*(drain(64e3)+drain(1e9))},
		"narrow during the run":   {"links: {default: {rate_up: 1gbit, rate_down: 1gbit, one_way_delay: 5ms, queue: 1ms}}\n  injects: [{op: Link, at: 10, until: 1000, id: 0, rate_up: 100kbit}]", 2*8*5*time.Millisecond + 4*(drain(100e3)+drain(1e9)) + 4*2*drain(1e9)},
		"far, but told otherwise": {"stall_timeout: 3s\n  links: {default: {rate_up: 1gbit, rate_down: 1gbit, one_way_delay: 800ms, queue: 1ms}}", 3 * time.Second},
		"far, and dilated":        {"dilation: 2\n  links: {default: {rate_up: 1gbit, rate_down: 1gbit, one_way_delay: 800ms, queue: 1ms}}", 2*8*800*time.Millisecond + 2*4*(2*drain(1e9))},
	} {
		s, err := Parse("x.yaml", []byte(text+"  "+test.links+"\n"))
		if err != nil {
			t.Fatal(name, err)
		}
		r, err := s.Resolve("")
		if err != nil {
			t.Fatal(name, err)
		}
		got := r.RealDuration(r.StallAfter)
		if off := got - test.want; off < -time.Millisecond || off > 20*time.Millisecond {
			t.Errorf("%s: a reduction may stall for %v, want %v", name, got, test.want)
		}
	}
}
