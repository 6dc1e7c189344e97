package scenarios_test

import (
	"fmt"
	"strings"
	"testing"

	"testbed/scenarios"
)

// TestAllProblemsAtOnce: one error has a line for each thing that is wrong or missing, in
// the order of the file, and none for what only comes of it.
func TestAllProblemsAtOnce(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"missing, misspelt, of the wrong kind, and out of range", `seed: many
workers:
  - {id: 0, inner_step_maen: 1000}
  - {id: 1, join_at: -1, inner_step_mean: 0}
  - {ids: 2-4}
  - {id: 1, inner_step_mean: 5}
injects:
  - {op: Slwo, id: 1, at: 0, factor: 10}
  - {op: Crash, id: 9, at: 6}
inner_steps: 0
heartbeat_period: 1000
base_latency: 100
bandwidth_bpus: 10
state_bytes: 100
policy:
  straggler: {quorum: 2, k: -1}
  join: never
real:
  time_scale: 0
  tcp: "?"
  all_reduce: {bits: 6, connections: -1}
  links:
    nodes: {w0: {rate_up: fast}}
`, `bad.yaml:1: seed: "many" is not a whole number from 0
bad.yaml:1: target_outer_steps is missing: add it
bad.yaml:1: horizon is missing: add it
bad.yaml:1: heartbeat_miss_threshold is missing: add it
bad.yaml:3: workers[0].inner_step_maen: unknown field; did you mean inner_step_mean?
bad.yaml:4: workers[1].join_at is -1: it must not be negative
bad.yaml:4: workers[1].inner_step_mean is 0: it must lie between 1 and 1000000000000
bad.yaml:5: workers[2].inner_step_mean is missing: add it
bad.yaml:6: workers[5].id: worker 1 is already workers[1]; give each worker an id of its own
bad.yaml:8: injects[0].op: "Slwo" is not an inject; choose one of Crash, Leave, Slow, Restore, Pause, Resume, Partition, ClearPartition, CoordinatorCrash, Restart, Fail, Preempt, FailReduce
bad.yaml:10: inner_steps is 0: it must lie between 1 and 1000000
bad.yaml:16: policy.straggler.quorum is 2: it must lie in (0, 1]
bad.yaml:16: policy.straggler.k is -1: it must lie in [0, 1000]
bad.yaml:17: policy.join: "never" is not a way to join; choose one of running, next, zeros, blocking
bad.yaml:19: real.time_scale is 0: it must lie in (0, 1000000]
bad.yaml:20: real.tcp is "?": name a congestion control of the kernel, such as reno, cubic or bbr
bad.yaml:21: real.all_reduce.bits is 6: choose 8 or 4 for codes, 16 for bfloat16, or 32 for float32
bad.yaml:21: real.all_reduce.connections is -1: it must not be negative
bad.yaml:23: real.links.nodes.w0.rate_up: rate "fast" is not a number with a unit: write it as tc does, for example 100mbit`},
		{"two injects and a worker of a class", strings.Replace(valid, inject, "{op: Crash, id: 7, at: 900}\n  - {op: Crash, id: 1, at: 5}", 1) + "work:\n  classes: [{name: a, ids: [3], factor: 1}]\n",
			`bad.yaml:6: injects[0].id: there is no worker 7; the workers are 0, 1
bad.yaml:7: injects[1].at is 5, but worker 1 joins at 500: a Crash before that has no effect
bad.yaml:23: work.classes[0].ids[0]: there is no worker 3; the workers are 0, 1`},
		{"JSON in one line", `{"seed": 1, "workers": [{"id": 0}, {"id": 1}]}`,
			`bad.yaml:1: workers[0].inner_step_mean is missing: add it
bad.yaml:1: workers[1].inner_step_mean is missing: add it
bad.yaml:1: inner_steps is missing: add it
bad.yaml:1: target_outer_steps is missing: add it
bad.yaml:1: horizon is missing: add it
bad.yaml:1: heartbeat_period is missing: add it
bad.yaml:1: heartbeat_miss_threshold is missing: add it
bad.yaml:1: base_latency is missing: add it
bad.yaml:1: bandwidth_bpus is missing: add it
bad.yaml:1: state_bytes is missing: add it`},
	} {
		t.Run(c.name, func(t *testing.T) { check(t, c.text, c.want) })
	}
}

// TestManyProblems: an error that nobody would read to its end says so.
func TestManyProblems(t *testing.T) {
	var workers strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&workers, "  - {id: %d}\n", i)
	}
	_, err := scenarios.Parse("bad.yaml", []byte("workers:\n"+workers.String()))
	if lines := strings.Split(fmt.Sprint(err), "\n"); len(lines) != 21 || lines[20] != "bad.yaml: there are more problems than the 20 listed ones" {
		t.Errorf("%d lines: %v", len(lines), err)
	}
}

// TestUnits: a time is written with a unit wherever one is, a size and a rate too, in
// YAML and in JSON, in files and in settings; a plain number means what it always did.
func TestUnits(t *testing.T) {
	plain, err := scenarios.Parse("a.yaml", []byte(`seed: 1
workers: [{id: 0, inner_step_mean: 30000, inner_step_jitter: 1500, join_at: 0}, {id: 1, inner_step_mean: 30000, join_at: 1500000}]
injects: [{op: Restart, id: 0, at: 120000000, after: 250}, {op: Preempt, id: 1, at: 2000000, notice: 1000}, {op: CoordinatorCrash, at: 3000000, down: 5000}]
inner_steps: 1
target_outer_steps: 5
horizon: 3600000000
heartbeat_period: 1000
heartbeat_miss_threshold: 5
base_latency: 100
bandwidth_bpus: 125
state_bytes: 67108864
policy: {straggler: {min_slack: 2000}, quorum: {join_timeout: 60000000}, deadline: {after: 7000}, torchft: {join_timeout: 1000, timeout: 2000}}
work: {noise: {slow_factor: 2, mean_ok: 1000, mean_slow: 2000}, thermal: {slow_factor: 2, heat: 3000, cool: 4000}, diurnal: {amplitude: 0.5, period: 5000}}
real: {time_scale: 1000, injects: [{op: Cut, from: w0, to: w1, at: 1000, until: 2000}, {op: Flap, id: 0, at: 3000, period: 4000, down: 1000}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"a.yaml": `seed: 1
workers: [{id: 0, inner_step_mean: 30ms, inner_step_jitter: 1.5ms, join_at: 0s}, {id: 1, inner_step_mean: "30ms", join_at: 1.5s}]
injects: [{op: Restart, id: 0, at: 2m, after: 250us}, {op: Preempt, id: 1, at: 2 s, notice: 1ms}, {op: CoordinatorCrash, at: 3s, down: 5ms}]
inner_steps: 1
target_outer_steps: 5
horizon: 1h
heartbeat_period: 1ms
heartbeat_miss_threshold: 5
base_latency: 0.1ms
bandwidth_bpus: 1gbit
state_bytes: 64MiB
policy: {straggler: {min_slack: 2ms}, quorum: {join_timeout: 1m}, deadline: {after: 7ms}, torchft: {join_timeout: 1ms, timeout: 2ms}}
work: {noise: {slow_factor: 2, mean_ok: 1ms, mean_slow: 2ms}, thermal: {slow_factor: 2, heat: 3ms, cool: 4ms}, diurnal: {amplitude: 0.5, period: 5ms}}
real: {time_scale: 1000, injects: [{op: Cut, from: w0, to: w1, at: 1ms, until: 2ms}, {op: Flap, id: 0, at: 3ms, period: 4ms, down: 1ms}]}
`, "a.json": `{"seed": 1,
"workers": [{"id": 0, "inner_step_mean": "30ms", "inner_step_jitter": "1.5ms", "join_at": "0s"}, {"id": 1, "inner_step_mean": "30ms", "join_at": "1.5s"}],
"injects": [{"op": "Restart", "id": 0, "at": "2m", "after": "250us"}, {"op": "Preempt", "id": 1, "at": "2 s", "notice": "1ms"}, {"op": "CoordinatorCrash", "at": "3s", "down": "5ms"}],
"inner_steps": 1, "target_outer_steps": 5, "horizon": "1h", "heartbeat_period": "1ms", "heartbeat_miss_threshold": 5, "base_latency": "0.1ms", "bandwidth_bpus": "1gbit", "state_bytes": "64MiB",
"policy": {"straggler": {"min_slack": "2ms"}, "quorum": {"join_timeout": "1m"}, "deadline": {"after": "7ms"}, "torchft": {"join_timeout": "1ms", "timeout": "2ms"}},
"work": {"noise": {"slow_factor": 2, "mean_ok": "1ms", "mean_slow": "2ms"}, "thermal": {"slow_factor": 2, "heat": "3ms", "cool": "4ms"}, "diurnal": {"amplitude": 0.5, "period": "5ms"}},
"real": {"time_scale": 1000, "injects": [{"op": "Cut", "from": "w0", "to": "w1", "at": "1ms", "until": "2ms"}, {"op": "Flap", "id": 0, "at": "3ms", "period": "4ms", "down": "1ms"}]}}
`} {
		s, err := scenarios.Parse(name, []byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want, err := plain.Text()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.Text(); err != nil || string(got) != string(want) {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, want)
		}
	}
	for field, value := range map[string]string{"horizon": "59m", "workers[*].inner_step_mean": "31ms", "injects[0].after": "1ms", "policy.straggler.min_slack": "3ms", "bandwidth_bpus": "8mbit", "state_bytes": "1kB", "work.diurnal.period": "6ms"} {
		set, err := scenarios.NewSetting(field, value)
		if err != nil {
			t.Errorf("%s=%s: %v", field, value, err)
			continue
		}
		if _, err := plain.With(set); err != nil {
			t.Errorf("%s=%s: %v", field, value, err)
		}
	}
}

func TestUnitsThatLoseOrHaveTwoMeanings(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"lossy", "horizon: 5000000", "horizon: 1.5us", `bad.yaml:9: horizon: "1.5us" is 1.5 µs, but the field needs a whole number; write 1us or 2us`},
		{"minutes or hours", "horizon: 5000000", "horizon: '1:30'", `bad.yaml:9: horizon: "1:30" can be read in two ways; write 1h30m or 1m30s`},
		{"minutes or millions", "horizon: 5000000", "horizon: 5M", `bad.yaml:9: horizon: "5M" can be read in two ways; write 5m for minutes, or the number of µs in digits for millions`},
		{"no time", "horizon: 5000000", "horizon: 5MB", `bad.yaml:9: horizon: "5MB" has the unit MB, which is not a unit of a time; write for example 30ms, 1.5s or 2m`},
		{"negative", "horizon: 5000000", "horizon: -5ms", `bad.yaml:9: horizon is -5000: it must not be negative`},
		{"too long", "horizon: 5000000", "horizon: 99999999999999999h", `bad.yaml:9: horizon is 359999999999999996400000000, which is too large for this field`},
		{"a count", "inner_steps: 2", "inner_steps: 2ms", `bad.yaml:7: inner_steps: "2ms" is not a whole number`},
		{"powers of 1000 or 1024", "state_bytes: 100", "state_bytes: 100mb", `bad.yaml:14: state_bytes: "100mb" can be read in two ways; write 100MB for powers of 1000, or 100MiB for powers of 1024`},
		{"a rate that is not whole", "bandwidth_bpus: 10", "bandwidth_bpus: 100mbit", `bad.yaml:13: bandwidth_bpus: "100mbit" is 12.5 B/µs, but the field needs a whole number; write 12 (96mbit) or 13 (104mbit)`},
		{"a rate below the least", "bandwidth_bpus: 10", "bandwidth_bpus: 1mbit", `bad.yaml:13: bandwidth_bpus: "1mbit" is 0.125 B/µs, but the field needs a whole number from 1; write 1 (8mbit)`},
		{"bits or bytes", "bandwidth_bpus: 10", "bandwidth_bpus: 80Mbps", `bad.yaml:13: bandwidth_bpus: rate "80Mbps" can be read in two ways: write 80mbit for bits per second, or 80mbps for bytes per second, as tc does`},
	} {
		t.Run(c.name, func(t *testing.T) { check(t, strings.Replace(valid, c.old, c.new, 1), c.want) })
	}
}
