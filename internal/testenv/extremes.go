package testenv

// extremes begins the scenarios of Extremes.
const extremes = `seed: 7
inner_steps: 2
target_outer_steps: 3
horizon: 5000000
heartbeat_period: 1000
heartbeat_miss_threshold: 50
base_latency: 100
bandwidth_bpus: 10
state_bytes: 100
workers: [{id: 0, inner_step_mean: 1000}, {id: 1, inner_step_mean: 1000}, {id: 2, inner_step_mean: 1000}]
real:
  time_scale: 100
`

// Extremes are scenarios, by name, in which every property of paths is at its
// extremes, or the rate is far below a megabit. Their links must be as planned
// on every backend.
var Extremes = map[string]string{
	"paths": extremes + `
  links:
    default: {rate_up: 10mbit, rate_down: 10mbit, one_way_delay: 20ms, queue: 100ms}
    pairs:
      - {from: w0, to: w1, corrupt: 100%}
      - {from: w1, to: w0, duplicate: 100%}
      - {from: w0, to: w2, reorder: 100%}
      - {from: w2, to: w0, loss: 50%, duplicate: 100%}
      - {from: w1, to: w2, loss: 100%}
      - {from: w2, to: w1, loss: 99%}
      - {from: w0, to: coordinator, corrupt: 30%, duplicate: 20%, reorder: 10%, loss: 5%}
      - {from: coordinator, to: w0, loss_burst: {enter: 3%, leave: 30%, loss_inside: 90%}}
      - {from: w1, to: coordinator, jitter: 20ms}
`,
	"a slow link": extremes + `
  links: {default: {rate_up: 64kbit, rate_down: 64kbit, one_way_delay: 20ms, queue: 3s}}
`,
}
