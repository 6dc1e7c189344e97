package scenarios_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"testbed/allreduce"
	"testbed/allreduce/reduction"
	"testbed/policy"
	"testbed/scenarios"
	"testbed/shaping"
)

// valid is a scenario on numbered lines; the tests below change it.
const valid = `seed: 42
workers:
  - {id: 0, join_at: 0, inner_step_mean: 1000, inner_step_jitter: 0}
  - {id: 1, join_at: 500, inner_step_mean: 1000, inner_step_jitter: 0}
injects:
  - {op: Slow, id: 1, at: 0, factor: 10}
inner_steps: 2
target_outer_steps: 5
horizon: 5000000
heartbeat_period: 1000
heartbeat_miss_threshold: 5
base_latency: 100
bandwidth_bpus: 10
state_bytes: 100
policy:
  straggler: {quorum: 0.75}
real:
  time_scale: 300
  links:
    default: {rate_up: 100mbit}
`

const (
	inject  = "{op: Slow, id: 1, at: 0, factor: 10}"
	worker1 = "{id: 1, join_at: 500, inner_step_mean: 1000, inner_step_jitter: 0}"
)

// TestBadInput changes one thing in a valid scenario and compares the one
// error that comes of it.
func TestBadInput(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"unknown field", "horizon:", "horizn:", "bad.yaml:9: horizn: unknown field; did you mean horizon?"},
		{"unknown field of a worker", worker1, "{id: 1, inner_step_maen: 3}", "bad.yaml:4: workers[1].inner_step_maen: unknown field; did you mean inner_step_mean?"},
		{"unknown field without a likeness", "quorum: 0.75", "patience: 3", "bad.yaml:16: policy.straggler.patience: unknown field; the known fields are quorum, k, window, min_history, min_slack, sideline_limit, finish_steps"},
		{"field of a section without any", "straggler: {quorum: 0.75}", "baseline: {quorum: 1}", "bad.yaml:16: policy.baseline.quorum: unknown field; no fields are allowed"},
		{"unknown policy", "straggler: {quorum: 0.75}", "stragler: {quorum: 1}", "bad.yaml:16: policy.stragler: unknown field; did you mean straggler?"},
		{"unknown link property", "rate_up:", "rateup:", "bad.yaml:20: real.links.default.rateup: unknown field; did you mean rate_up?"},
		{"name with a slash", "seed: 42", "seed: 42\nname: a/x", `bad.yaml:2: name: "a/x" has a slash, but files are named after the scenario; write a name without slashes`},
		{"unlike any field", "seed: 42", "seed: 42\ncolour: x", "bad.yaml:2: colour: unknown field; the known fields are name, description, seed, workers, injects, inner_steps, target_outer_steps, horizon, heartbeat_period, heartbeat_miss_threshold, base_latency, bandwidth_bpus, state_bytes, policy, real, work, train"},

		{"duplicate id", "id: 1, join", "id: 0, join", "bad.yaml:4: workers[1].id: worker 0 is already workers[0]; give each worker an id of its own"},
		{"inject for nobody", "op: Slow, id: 1", "op: Slow, id: 7", "bad.yaml:6: injects[0].id: there is no worker 7; the workers are 0, 1"},
		{"partition of nobody", inject, "{op: Partition, ids: [1, 7], at: 0}", "bad.yaml:6: injects[0].ids[1]: there is no worker 7; the workers are 0, 1"},
		{"partition of one twice", inject, "{op: Partition, ids: [1, 1], at: 0}", "bad.yaml:6: injects[0].ids[1]: worker 1 is named twice; keep one"},
		{"partition without ids", inject, "{op: Partition, at: 0}", "bad.yaml:6: injects[0].ids is missing: Partition needs the ids of the workers to cut off"},
		{"partition of none", inject, "{op: Partition, ids: [], at: 0}", "bad.yaml:6: injects[0].ids is empty: name the workers to which Partition applies"},
		{"heal of none", inject, "{op: ClearPartition, ids: [], at: 0}", "bad.yaml:6: injects[0].ids is empty: name the workers to which ClearPartition applies"},
		{"partition with id", inject, "{op: Partition, id: 1, at: 0}", "bad.yaml:6: injects[0].id: Partition takes a list: write ids: [1]"},
		{"crash with ids", inject, "{op: Crash, ids: [1], at: 0}", "bad.yaml:6: injects[0].ids: Crash takes one worker; write id instead of ids"},
		{"crash of nobody named", inject, "{op: Crash, at: 0}", "bad.yaml:6: injects[0].id is missing: Crash needs the id of a worker"},
		{"crash of the coordinator with id", inject, "{op: CoordinatorCrash, id: 1, at: 0}", "bad.yaml:6: injects[0].id: CoordinatorCrash takes no worker; remove it"},
		{"crash of the coordinator with ids", inject, "{op: CoordinatorCrash, ids: [1], at: 0}", "bad.yaml:6: injects[0].ids: CoordinatorCrash takes no worker; remove it"},
		{"crash of the coordinator for less than no time", inject, "{op: CoordinatorCrash, at: 0, down: -1}", "bad.yaml:6: injects[0].down is -1: it must not be negative"},
		{"crash for a while", inject, "{op: Crash, id: 1, at: 900, down: 5}", "bad.yaml:6: injects[0].down: Crash takes no down; remove it"},
		{"uploads backwards", "time_scale: 300", "upload: {every: -1}", "bad.yaml:18: real.upload.every is -1: it must not be negative"},
		{"no upload yields", "time_scale: 300", "upload: {every: 0, yields: true}", "bad.yaml:18: real.upload.yields has no effect without uploads: give real.upload.every, or remove real.upload.yields"},
		{"checkpoints backwards", "time_scale: 300", "checkpoint_every: -1", "bad.yaml:18: real.checkpoint_every is -1: it must not be negative"},
		{"crash with factor", inject, "{op: Crash, id: 1, at: 900, factor: 2}", "bad.yaml:6: injects[0].factor: Crash takes no factor; remove it"},
		{"slow without factor", inject, "{op: Slow, id: 1, at: 0}", "bad.yaml:6: injects[0].factor is missing: Slow needs a factor such as 10"},
		{"more steps than the run has", "join_at: 500", "join_at: 500, initial_step: 5", "bad.yaml:4: workers[1].initial_step is 5: it must lie between 0 and 4"},
		{"crash that forgets", inject, "{op: Crash, id: 1, at: 900, forgets: true}", "bad.yaml:6: injects[0].forgets: Crash takes no forgets; remove it"},
		{"crash with heartbeats", inject, "{op: Crash, id: 1, at: 900, heartbeats: true}", "bad.yaml:6: injects[0].heartbeats: Crash takes no heartbeats; remove it"},
		{"a third lighthouse", "join_at: 500", "join_at: 500, lighthouse: 2", "bad.yaml:4: workers[1].lighthouse is 2: it must lie between 0 and 1"},
		{"restart at a third lighthouse", inject, "{op: Restart, id: 1, at: 900, lighthouse: -1}", "bad.yaml:6: injects[0].lighthouse is -1: it must lie between 0 and 1"},
		{"crash at a lighthouse", inject, "{op: Crash, id: 1, at: 900, lighthouse: 0}", "bad.yaml:6: injects[0].lighthouse: Crash takes no lighthouse; remove it"},
		{"crash alone", inject, "{op: Crash, id: 1, at: 900, alone: true}", "bad.yaml:6: injects[0].alone: Crash takes no alone; remove it"},
		{"failure of nobody's reduction", inject, "{op: FailReduce, at: 900}", "bad.yaml:6: injects[0].id is missing: FailReduce needs the id of a worker"},
		{"unknown op", "op: Slow", "op: slow", `bad.yaml:6: injects[0].op: "slow" is not an inject; choose one of Crash, Leave, Slow, Restore, Pause, Resume, Partition, ClearPartition, CoordinatorCrash, Restart, Fail, Preempt, FailReduce`},
		{"crash that comes back", inject, "{op: Crash, id: 1, at: 900, after: 5}", "bad.yaml:6: injects[0].after: Crash takes no after; remove it"},
		{"restart with notice", inject, "{op: Restart, id: 1, at: 900, notice: 5}", "bad.yaml:6: injects[0].notice: Restart takes no notice; remove it"},
		{"restart into the past", inject, "{op: Restart, id: 1, at: 900, after: -5}", "bad.yaml:6: injects[0].after is -5: it must not be negative"},
		{"restart of nobody", inject, "{op: Restart, at: 900}", "bad.yaml:6: injects[0].id is missing: Restart needs the id of a worker"},
		{"restart before joining", inject, "{op: Restart, id: 1, at: 499, after: 5}", "bad.yaml:6: injects[0].at is 499, but worker 1 joins at 500: a Restart before that has no effect"},
		{"restart of one that is not back", inject, "{op: Restart, id: 1, at: 900, after: 10}\n  - {op: Restart, id: 1, at: 700, after: 200}", "bad.yaml:6: injects[0].at is 900, but the new process of worker 1 begins at 900: restart the worker after that time, or remove one Restart"},
		{"resume of a restarted worker", inject, "{op: Pause, id: 1, at: 900}\n  - {op: Restart, id: 1, at: 910}\n  - {op: Resume, id: 1, at: 920}", "bad.yaml:8: injects[2].at is 920, but worker 1 is not paused then: pause the worker before, or remove the Resume"},
		{"last words before joining", inject, "{op: Fail, id: 1, at: 499}", "bad.yaml:6: injects[0].at is 499, but worker 1 joins at 500: a Fail before that has no effect"},
		{"preemption with negative notice", inject, "{op: Preempt, id: 1, at: 900, notice: -1}", "bad.yaml:6: injects[0].notice is -1: it must not be negative"},
		{"crash before joining", inject, "{op: Crash, id: 1, at: 499}", "bad.yaml:6: injects[0].at is 499, but worker 1 joins at 500: a Crash before that has no effect"},
		{"leave before joining", inject, "{op: Leave, id: 1, at: 0}", "bad.yaml:6: injects[0].at is 0, but worker 1 joins at 500: a Leave before that has no effect"},

		{"pause before joining", inject, "{op: Pause, id: 1, at: 499}", "bad.yaml:6: injects[0].at is 499, but worker 1 joins at 500: a Pause before that has no effect"},
		{"pause of a paused worker", inject, "{op: Pause, id: 1, at: 900}\n  - {op: Pause, id: 1, at: 700}", "bad.yaml:6: injects[0].at is 900, but worker 1 has been paused since 700: resume the worker before, or remove one Pause"},
		{"resume without a pause", inject, "{op: Resume, id: 1, at: 900}\n  - {op: Pause, id: 1, at: 901}", "bad.yaml:6: injects[0].at is 900, but worker 1 is not paused then: pause the worker before, or remove the Resume"},
		{"pause of a list", inject, "{op: Pause, ids: [1], at: 900}", "bad.yaml:6: injects[0].ids: Pause takes one worker; write id instead of ids"},

		{"negative time", "at: 0, factor", "at: -5, factor", "bad.yaml:6: injects[0].at is -5: it must not be negative"},
		{"negative join", "join_at: 500", "join_at: -1", "bad.yaml:4: workers[1].join_at is -1: it must not be negative"},
		{"negative latency", "base_latency: 100", "base_latency: -100", "bad.yaml:12: base_latency is -100: it must not be negative"},
		{"negative seed", "seed: 42", "seed: -1", "bad.yaml:1: seed is -1: it must not be negative"},
		{"jitter above the mean", "inner_step_mean: 1000, inner_step_jitter: 0}\ninjects", "inner_step_mean: 10, inner_step_jitter: 11}\ninjects", "bad.yaml:4: workers[1].inner_step_jitter is 11, more than the mean of 10: a step cannot take a negative time"},
		{"no inner steps", "inner_steps: 2", "inner_steps: 0", "bad.yaml:7: inner_steps is 0: it must lie between 1 and 1000000"},
		{"no bandwidth", "bandwidth_bpus: 10", "bandwidth_bpus: 0", "bad.yaml:13: bandwidth_bpus is 0: it must lie between 1 and 1000000000"},
		{"no workers", valid[strings.Index(valid, "workers:"):strings.Index(valid, "injects:")], "workers: []\n", "bad.yaml:2: workers is empty: a run needs at least one worker"},

		{"quorum 0", "quorum: 0.75", "quorum: 0", "bad.yaml:16: policy.straggler.quorum is 0: it must lie in (0, 1]"},
		{"quorum above 1", "quorum: 0.75", "quorum: 1.01", "bad.yaml:16: policy.straggler.quorum is 1.01: it must lie in (0, 1]"},
		{"quorum NaN", "quorum: 0.75", "quorum: .nan", "bad.yaml:16: policy.straggler.quorum is NaN: it must lie in (0, 1]"},
		{"rejoin mode", "policy:\n  straggler:", "policy:\n  rejoin: always\n  straggler:", "bad.yaml:16: policy.rejoin: \"always\" is not a way to rejoin; choose one of never, after_rounds"},
		{"rejoin in the past", "policy:\n  straggler:", "policy:\n  rejoin_rounds: -1\n  straggler:", "bad.yaml:16: policy.rejoin_rounds is -1: it must not be negative"},
		{"join mode", "policy:\n  straggler:", "policy:\n  join: never\n  straggler:", "bad.yaml:16: policy.join: \"never\" is not a way to join; choose one of running, next, zeros, blocking"},
		{"staleness above 1", "policy:\n  straggler:", "policy:\n  staleness_weight: 1.5\n  straggler:", "bad.yaml:16: policy.staleness_weight is 1.5: it must lie in [0, 1], where 0 discards late contributions"},
		{"staleness NaN", "policy:\n  straggler:", "policy:\n  staleness_weight: .nan\n  straggler:", "bad.yaml:16: policy.staleness_weight is NaN: it must lie in [0, 1], where 0 discards late contributions"},
		{"negative slack", "quorum: 0.75", "min_slack: -1", "bad.yaml:16: policy.straggler.min_slack is -1 µs: it must lie between 0 and 1e+15 µs"},
		{"horizon before the first join", "join_at: 0, inner_step_mean: 1000, inner_step_jitter: 0}\n  - {id: 1, join_at: 500,", "join_at: 9000000, inner_step_mean: 1}\n  - {id: 1, join_at: 5000000,", "bad.yaml:9: horizon is 5000000, but the first worker joins at 5000000: the horizon must lie after it"},

		{"join beyond the horizon", "join_at: 500", "join_at: 5000001", "bad.yaml:4: workers[1].join_at is 5000001, but the horizon is 5000000, and a run ends at its horizon: give an earlier time, raise the horizon, or remove the entry"},
		{"inject beyond the horizon", "op: Slow, id: 1, at: 0", "op: Slow, id: 1, at: 6000000", "bad.yaml:6: injects[0].at is 6000000, but the horizon is 5000000, and a run ends at its horizon: give an earlier time, raise the horizon, or remove the entry"},

		{"missing field", "horizon: 5000000\n", "", "bad.yaml:1: horizon is missing: add it"},
		{"missing field of a worker", worker1, "{id: 1}", "bad.yaml:4: workers[1].inner_step_mean is missing: add it"},
		{"missing op", inject, "{at: 1}", "bad.yaml:6: injects[0].op is missing: add it"},
		{"no value", "seed: 42", "seed:", "bad.yaml:1: seed has no value: give one or remove the field"},
		{"word for a number", "seed: 42", "seed: many", `bad.yaml:1: seed: "many" is not a whole number from 0`},
		{"quoted number", "horizon: 5000000", `horizon: "5000000"`, `bad.yaml:9: horizon: "5000000" is text; write the whole number without quotes`},
		{"bool for a number", "factor: 10", "factor: yes", `bad.yaml:6: injects[0].factor: "yes" is not a number`},
		{"fraction for a whole number", "inner_steps: 2", "inner_steps: 1.5", `bad.yaml:7: inner_steps: "1.5" is not a whole number; write only digits`},
		{"exponent for a whole number", "horizon: 5000000", "horizon: 5e6", `bad.yaml:9: horizon: "5e6" is not a whole number; write only digits`},
		{"infinity for a whole number", "horizon: 5000000", "horizon: -.inf", `bad.yaml:9: horizon: "-.inf" is not a whole number; write only digits`},
		{"leading zero", "seed: 42", "seed: 042", `bad.yaml:1: seed: "042" begins with a zero; remove the zero`},
		{"list for a number", "seed: 42", "seed: [42]", "bad.yaml:1: seed must be a single whole number from 0"},
		{"object for a list", "- " + inject, "slow: " + inject, "bad.yaml:6: injects must be a list"},
		{"number for an object", "real:\n  time_scale: 300\n  links:\n    default: {rate_up: 100mbit}", "real: 3", "bad.yaml:17: real must be an object with the fields time_scale, dilation, compute, parameters, min_slack, stall_timeout, heed_unreachable, checkpoint_every, upload, tcp, links, all_reduce, injects"},
		{"no congestion control", "time_scale: 300", "time_scale: 300\n  tcp: New Reno", `bad.yaml:19: real.tcp is "New Reno": name a congestion control of the kernel, such as reno, cubic or bbr`},
		{"list for a worker", worker1, "[1, 2]", "bad.yaml:4: workers[1] must be an object with the fields id, ids, join_at, inner_step_mean, inner_step_jitter, initial_step, lighthouse"},
		{"list for a link property", "rate_up: 100mbit", "rate_up: [1]", `bad.yaml:20: real.links.default.rate_up must be a single value such as "10ms" or "100mbit"`},
		{"rate without a unit", "rate_up: 100mbit", "rate_up: 100", `bad.yaml:20: real.links.default.rate_up: rate "100" is not a number with a unit: write it as tc does, for example 100mbit`},
		{"list for nodes", "default: {rate_up: 100mbit}", "nodes: []", "bad.yaml:20: real.links.nodes must be an object"},

		{"duplicate key", "inner_steps: 2", "inner_steps: 2\ninner_steps: 3", "bad.yaml:8: inner_steps is given twice: keep one"},
		{"duplicate node", "default: {rate_up: 100mbit}", "nodes: {w1: {}, w1: {}}", "bad.yaml:20: real.links.nodes.w1 is given twice: keep one"},
		{"anchor", "seed: 42", "seed: &s 42", "bad.yaml:1: seed: anchors and aliases are not supported; write the value itself"},
		{"alias", "default: {rate_up: 100mbit}", "default: &d {rate_up: 100mbit}\n    nodes: {w0: *d}", "bad.yaml:20: real.links.default: anchors and aliases are not supported; write the value itself\nbad.yaml:21: real.links.nodes.w0: anchors and aliases are not supported; write the value itself"},
		{"anchored key", "seed: 42", "&s seed: 42", "bad.yaml:1: has a key that is not a plain word: write the name of a field"},
		{"merge key", "default: {rate_up: 100mbit}", "nodes: {<<: {}}", "bad.yaml:20: real.links.nodes has a key that is not a plain word: write a name"},
		{"list as a key", "seed: 42", "[seed]: 42", "bad.yaml:1: has a key that is not a plain word: write the name of a field"},
		{"tag", "seed: 42", "seed: !!float 42", "bad.yaml:1: seed: tags such as !!float are not supported; write the plain value"},
		{"two documents", "state_bytes: 100\n", "state_bytes: 100\n---\n", "bad.yaml:15: the file holds more than one document; keep one scenario per file"},
		{"broken second document", "state_bytes: 100\n", "state_bytes: 100\n---\n]\n", "bad.yaml:15: did not find expected node content"},
		{"broken syntax", "workers:", "workers: [", "bad.yaml:2: did not find expected node content"},

		{"NaN factor", "factor: 10", "factor: .nan", "bad.yaml:6: injects[0].factor is NaN: it must lie in (0, 1000000]"},
		{"infinite factor", "factor: 10", "factor: .inf", "bad.yaml:6: injects[0].factor is +Inf: it must lie in (0, 1000000]"},
		{"factor 0", "factor: 10", "factor: 0", "bad.yaml:6: injects[0].factor is 0: it must lie in (0, 1000000]"},
		{"huge time", "horizon: 5000000", "horizon: 5000000000000", "bad.yaml:9: horizon is 5000000000000: it must lie between 1 and 1000000000000"},
		{"beyond 64 bits", "horizon: 5000000", "horizon: 99999999999999999999", "bad.yaml:9: horizon is 99999999999999999999, which is too large for this field"},
		{"beyond 63 bits", "horizon: 5000000", "horizon: 18446744073709551615", "bad.yaml:9: horizon is 18446744073709551615, which is too large for this field"},
		{"huge id", "id: 1, join", "id: 1000001, join", "bad.yaml:4: workers[1].id is 1000001: it must lie between 0 and 1000000"},
		{"huge time scale", "time_scale: 300", "time_scale: 1e300", "bad.yaml:18: real.time_scale is 1e+300: it must lie in (0, 1000000]"},
		{"time scale NaN", "time_scale: 300", "time_scale: .nan", "bad.yaml:18: real.time_scale is NaN: it must lie in (0, 1000000]"},
		{"time scale beyond the links", "time_scale: 300", "time_scale: 1000000", "bad.yaml:18: real.time_scale makes the base_latency of 100 µs last 1m40s on the real network, above the limit of 1m0s: lower real.time_scale or give real.links.default.one_way_delay"},
		{"quicker than time", "time_scale: 300", "dilation: 0.5", "bad.yaml:18: real.dilation is 0.5: it must lie in [1, 1000]: a run takes longer by this factor on the machine's clock"},
		{"no dilation", "time_scale: 300", "dilation: 0", "bad.yaml:18: real.dilation is 0: it must lie in [1, 1000]: a run takes longer by this factor on the machine's clock"},
		{"dilation beyond the links", "time_scale: 300", "dilation: 1000\n  time_scale: 1000", "bad.yaml:18: real.dilation is 1000: one_way_delay: from coordinator to w0, with a dilation of 1000: 1m40s is above the limit of 1m0s, including the access links; lower the dilation"},
		{"no such algorithm", "time_scale: 300", "all_reduce: {algorithm: tree}", "bad.yaml:18: real.all_reduce.algorithm: \"tree\" is not an algorithm; choose one of ring, direct, hierarchical"},
		{"no such order", "time_scale: 300", "all_reduce: {order: best}", "bad.yaml:18: real.all_reduce.order: \"best\" is not an order; choose one of naive, planned, measured, planned_rates, measured_rates, given_rates"},
		{"order of no ring", "time_scale: 300", "all_reduce: {algorithm: direct, order: planned}", "bad.yaml:18: real.all_reduce.order is planned, but only the ring has an order: remove the order, or the algorithm direct"},
		{"rates for another order", "time_scale: 300", "all_reduce: {rates: [[unlimited, 1mbit], [1mbit, unlimited]]}", "bad.yaml:18: real.all_reduce.rates is given, but the order is naive: remove it, or write order: given_rates"},
		{"no rates", "time_scale: 300", "all_reduce: {order: given_rates}", "bad.yaml:18: real.all_reduce.rates is missing, but the order is given_rates: give a row for each worker, with a rate to each worker"},
		{"rates of one worker", "time_scale: 300", "all_reduce: {order: given_rates, rates: [[unlimited, 1mbit]]}", "bad.yaml:18: real.all_reduce.rates must have one row for each worker, in the order of the workers (rows: 1, workers: 2)"},
		{"rates to one worker", "time_scale: 300", "all_reduce: {order: given_rates, rates: [[unlimited, 1mbit], [1mbit]]}", "bad.yaml:18: real.all_reduce.rates[1] must have one rate to each worker, in the order of the workers (rates: 1, workers: 2); the rate to the worker itself is ignored"},
		{"a rate without a unit", "time_scale: 300", "all_reduce: {order: given_rates, rates: [[unlimited, 1mbit], [1, unlimited]]}", `bad.yaml:18: real.all_reduce.rates[1][0]: rate "1" is not a number with a unit: write it as tc does, for example 100mbit`},
		{"worker in no group", "default: {rate_up: 100mbit}", "groups: {eu: {nodes: [w1]}}\n  all_reduce: {algorithm: hierarchical}", "bad.yaml:21: real.all_reduce.algorithm is hierarchical, but w0 is in no group: put every worker into one of real.links.groups"},
		{"odd bits", "time_scale: 300", "all_reduce: {bits: 6}", "bad.yaml:18: real.all_reduce.bits is 6: choose 8 or 4 for codes, 16 for bfloat16, or 32 for float32"},
		{"floats shortened", "time_scale: 300", "all_reduce: {bits: 32, entropy: 'on'}", "bad.yaml:18: real.all_reduce.entropy is on, but values of 32 bits have no codes to shorten: remove it, or set bits to 8 or 4"},
		{"odd block", "time_scale: 300", "all_reduce: {block: 100}", "bad.yaml:18: real.all_reduce.block is 100: it must be a multiple of 16 from 16 to 4096"},
		{"odd entropy", "time_scale: 300", "all_reduce: {entropy: maybe}", "bad.yaml:18: real.all_reduce.entropy is \"maybe\": choose one of auto, on, off"},
		{"many connections", "time_scale: 300", "all_reduce: {connections: 65}", "bad.yaml:18: real.all_reduce.connections is 65: it must lie between 0 and 64"},
		{"too many parameters", "time_scale: 300", "parameters: 70000000000", "bad.yaml:18: real.parameters is 70000000000: it must lie between 1 and 68719476736"},

		{"link of nobody", "default: {rate_up: 100mbit}", "nodes: {w1: {}, w7: {}}", `bad.yaml:20: real.links.nodes.w7: there is no node "w7"; the nodes are coordinator, w0, w1`},
		{"jitter above the delay", "rate_up: 100mbit", "jitter: 2s", "bad.yaml:20: real.links.default.jitter: 2s exceeds the one-way delay of 30ms, and a packet cannot arrive before it was sent; lower the jitter or raise one_way_delay"},
		{"two problems, one error", "default: {rate_up: 100mbit}", "nodes: {w8: {}, w7: {}}", `bad.yaml:20: real.links.nodes.w7: there is no node "w7"; the nodes are coordinator, w0, w1` + "\n" + `bad.yaml:20: real.links.nodes.w8: there is no node "w8"; the nodes are coordinator, w0, w1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if strings.Count(valid, c.old) != 1 {
				t.Fatalf("%q is %d times in the valid scenario", c.old, strings.Count(valid, c.old))
			}
			check(t, strings.Replace(valid, c.old, c.new, 1), c.want)
		})
	}
	for name, text := range map[string]string{"empty": "", "comment only": "# nothing\n"} {
		t.Run(name, func(t *testing.T) {
			check(t, text, "bad.yaml: the file is empty; `testbed list` names scenarios to start from")
		})
	}
	t.Run("no object", func(t *testing.T) {
		check(t, "- 1\n", "bad.yaml:1: must be an object with the fields name, description, seed, workers, injects, inner_steps, target_outer_steps, horizon, heartbeat_period, heartbeat_miss_threshold, base_latency, bandwidth_bpus, state_bytes, policy, real, work, train")
	})
	t.Run("too long", func(t *testing.T) {
		check(t, strings.Repeat("#", 4<<20+1), "bad.yaml: the file has 4194305 bytes, above the limit of 4194304")
	})
	t.Run("not UTF-8", func(t *testing.T) {
		check(t, "seed: \xff\n", "bad.yaml: invalid leading UTF-8 octet")
	})
	t.Run("many workers", func(t *testing.T) {
		check(t, strings.Replace(crowd(10), "injects: []", "injects: [{op: Crash, id: 99, at: 0}]", 1),
			"bad.yaml:12: injects[0].id: there is no worker 99; the workers are 0, 1, 2, 3, 4, 5, 6, 7, …")
	})
}

func check(t *testing.T, text, want string) {
	t.Helper()
	s, err := scenarios.Parse("bad.yaml", []byte(text))
	var e *scenarios.Error
	if !errors.As(err, &e) {
		t.Fatalf("error = %v (%+v), want %s", err, s, want)
	}
	if err.Error() != want {
		t.Errorf("error\n  %s\nwant\n  %s", err, want)
	}
}

func TestTheValidScenarioIsValid(t *testing.T) {
	s, err := scenarios.Parse("dir/some.name.yaml", []byte(valid))
	if err != nil {
		t.Fatal(err)
	}
	if s.Name != "some.name" || s.Workers[1].JoinAt != 500 || s.Real.TimeScale != 300 || s.Real.Parameters != scenarios.DefaultParameters {
		t.Errorf("read as %+v", s)
	}
	if want := policy.DefaultStraggler(); !reflect.DeepEqual(straggler(s), want) {
		t.Errorf("policy.straggler = %+v, want %+v", straggler(s), want)
	}
}

func TestACrashAtTheTimeOfJoiningIsValid(t *testing.T) {
	if _, err := scenarios.Parse("x.yaml", []byte(strings.Replace(valid, inject, "{op: Crash, id: 1, at: 500}", 1))); err != nil {
		t.Error(err)
	}
}

// churnJSON is churn's own file of the published scenario, in its README's
// layout and with its elision written out.
const churnJSON = `{
  "seed": 42,
  "workers": [ {"id": 0, "join_at": 0, "inner_step_mean": 1000, "inner_step_jitter": 0}, {"id": 1, "join_at": 0, "inner_step_mean": 1000, "inner_step_jitter": 0}, {"id": 2, "join_at": 0, "inner_step_mean": 1000, "inner_step_jitter": 0}, {"id": 3, "join_at": 0, "inner_step_mean": 1000, "inner_step_jitter": 0} ],
  "injects": [ {"op": "Slow", "id": 3, "at": 0, "factor": 10} ],
  "inner_steps": 2, "target_outer_steps": 5, "horizon": 5000000,
  "heartbeat_period": 1000, "heartbeat_miss_threshold": 5,
  "base_latency": 100, "bandwidth_bpus": 10, "state_bytes": 100
}
`

// TestChurnsJSONLoadsUnchanged in churn's layout, compact, and pretty-printed
// with spaces, tabs and Windows line ends; it is the library's scenario but
// for what churn does not have.
func TestChurnsJSONLoadsUnchanged(t *testing.T) {
	var any map[string]any
	if err := json.Unmarshal([]byte(churnJSON), &any); err != nil {
		t.Fatal(err)
	}
	compact, err := json.Marshal(any)
	if err != nil {
		t.Fatal(err)
	}
	tabs, err := json.MarshalIndent(any, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	want, err := scenarios.Load("persistent_straggler")
	if err != nil {
		t.Fatal(err)
	}
	plain := *want
	plain.Description, plain.Real = "", scenarios.Real{TimeScale: scenarios.DefaultTimeScale, Dilation: 1, Parameters: scenarios.DefaultParameters, MinSlack: shaping.Duration(90 * time.Millisecond), CheckpointEvery: scenarios.DefaultCheckpointEvery,
		AllReduce: reduction.Spec{Algorithm: "ring", Order: "naive", Format: allreduce.DefaultFormat, Entropy: "auto"}}
	for name, text := range map[string]string{
		"README": churnJSON, "compact": string(compact), "tabs": string(tabs), "CRLF": strings.ReplaceAll(string(tabs), "\n", "\r\n"),
	} {
		got, err := scenarios.Parse("persistent_straggler.json", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(&plain, got, memories); diff != "" {
			t.Errorf("%s differs from the library (-library +JSON):\n%s", name, diff)
		}
	}
}

func TestErrorsInPrettyPrintedJSONHaveTheirLine(t *testing.T) {
	text := strings.Replace(churnJSON, `"base_latency": 100`, "\t\"base_latency\": -100", 1)
	_, err := scenarios.Parse("x.json", []byte(text))
	if want := "x.json:7: base_latency is -100: it must not be negative"; err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
}

// TestLibrary reads every scenario and sends it through JSON, as it is handed
// to child processes.
func TestLibrary(t *testing.T) {
	all, err := scenarios.Library()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
		if s.Description == "" {
			t.Errorf("%s has no description", s.Name)
		}
		roundTrip(t, s)
		loadBack(t, s)
	}
	if !slices.Contains(names, "persistent_straggler") || !slices.IsSorted(names) {
		t.Errorf("the library has %v", names)
	}
}

func roundTrip(t *testing.T, s *scenarios.Scenario) {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back scenarios.Scenario
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	// The files of traces are not passed on: their paces are.
	if diff := cmp.Diff(s, &back, cmpopts.IgnoreFields(scenarios.Scenario{}, "Traces"), memories); diff != "" {
		t.Errorf("%s comes back from JSON changed:\n%s", s.Name, diff)
	}
}

// loadBack reads a scenario of the library from a file of the user's that holds
// what `testbed list --json` prints of it. A trace is found in the library.
func loadBack(t *testing.T, s *scenarios.Scenario) {
	t.Helper()
	text, err := json.Marshal(s.Plain())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "mine.json")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	back, err := scenarios.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, back, memories); diff != "" {
		t.Errorf("%s reads back from its JSON changed:\n%s", s.Name, diff)
	}
}

func TestLoadNamesTheLibrary(t *testing.T) {
	t.Chdir(t.TempDir())
	_, err := scenarios.Load("homogenous")
	want := "homogenous: there is neither such a file nor such a scenario in the library; the library contains charlm_regions, charlm_straggler, churn_storm, coordinator_crash, crash_mid_round, diurnal, donor_dies, flapping_link, graceful_leave, homogeneous, joiner_dies, late_join, lognormal_16, mixed_gpus, mobile_uplink, noisy_neighbours, partition_heal, pause_resume, persistent_straggler, prime_defaults, short_stalls, spot_fleet, three_regions, torchft_groups, torchft_mtbf_15s, torchft_mtbf_60s, torchft_t01, torchft_t02, torchft_t03, torchft_t04, torchft_t05, torchft_t06, torchft_t07, torchft_t08, torchft_t09, torchft_t10, torchft_t11, torchft_t12, torchft_t13, torchft_t14, torchft_t15, torchft_t16, torchft_t17, torchft_t18, transient_slow"
	if err == nil || err.Error() != want {
		t.Errorf("error\n  %v\nwant\n  %s", err, want)
	}
	if err := os.WriteFile("mine.yaml", []byte(valid), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mine.yaml", "./mine.yaml", filepath.Join(".", "mine.yaml")} {
		if s, err := scenarios.Load(name); err != nil || s.Name != "mine" {
			t.Errorf("Load(%q) = %v, %v", name, s, err)
		}
	}
	if _, err := scenarios.Load("."); err == nil || !strings.HasPrefix(err.Error(), ".: cannot be read: ") {
		t.Errorf("loading a directory: %v", err)
	}
}

func TestMachineOfAnUnknownPolicy(t *testing.T) {
	s, err := scenarios.Load("homogeneous")
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Machine("strict")
	if want := `policy: "strict" is not a policy; choose one of baseline, adaptive, backup, deadline, quorum, sample, straggler, torchft, or name a program of your own as program:PATH`; err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
	if cfg, err := s.Machine(scenarios.Straggler); err != nil || cfg.Policy.(*policy.Straggler).Quorum != 0.75 {
		t.Errorf("Machine(straggler) = %+v, %v", cfg, err)
	}
}

// crowd is a scenario of n workers.
func crowd(n int) string {
	var b strings.Builder
	b.WriteString("workers:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {id: %d, inner_step_mean: 1000}\n", i)
	}
	b.WriteString("injects: []\nseed: 1\ninner_steps: 2\ntarget_outer_steps: 5\nhorizon: 5000000\nheartbeat_period: 1000\nheartbeat_miss_threshold: 5\nbase_latency: 100\nbandwidth_bpus: 10\nstate_bytes: 100\n")
	return b.String()
}

// TestParsingAllocatesInProportion: ten times the workers allocate about ten
// times as much, where a table of their pairs would allocate a hundred times.
func TestParsingAllocatesInProportion(t *testing.T) {
	cost := func(n int) uint64 {
		text := []byte(crowd(n))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := scenarios.Parse("crowd.yaml", text); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	small, large := cost(1_000), cost(10_000)
	if large > 20*small {
		t.Errorf("1,000 workers allocate %d bytes, 10,000 allocate %d", small, large)
	}
}

// FuzzParse: whatever the text, the outcome is an *Error or a scenario that
// survives JSON and reads back as itself.
func FuzzParse(f *testing.F) {
	f.Add([]byte(valid))
	f.Add([]byte(churnJSON))
	f.Add([]byte(strings.Replace(valid, "default:", "pairs: [{from: w0, to: w1, loss: 0.1%}]\n    nodes: {w1: {queue: 5ms}}\n    default:", 1)))
	f.Add([]byte(strings.Replace(valid, "links:", "injects: [{op: Flap, at: 1, id: 0, period: 9000, down: 400}, {op: Refuse, at: 2, until: 3, between: [w0, w1]}, {op: Cut, at: 5, between: [w1, w0]}]\n  links:", 1)))
	f.Add([]byte(strings.Replace(valid, "links:", "injects: [{op: LinkTrace, at: 1, id: 0, direction: up, file: x.trace}]\n  links:", 1)))
	f.Add([]byte("name: \"a\\x83b\"\n" + valid))
	f.Add([]byte(valid + section))
	f.Add([]byte("a: &a [*a, *a]\n"))
	f.Add([]byte("? [x]\n: |\n  y\n...\n--- !!seq\n- ~"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := scenarios.Parse("fuzz.yaml", text)
		if err != nil {
			var e *scenarios.Error
			if !errors.As(err, &e) || e.Problem == "" || e.File != "fuzz.yaml" {
				t.Fatalf("error %#v", err)
			}
			return
		}
		roundTrip(t, s)
		if text, err = s.Text(); err != nil {
			t.Fatal(err)
		}
		back, err := scenarios.Parse(s.Name+".json", text)
		if err != nil {
			t.Fatalf("its JSON is refused: %v\n%s", err, text)
		}
		if diff := cmp.Diff(s, back, memories); diff != "" {
			t.Fatalf("its JSON reads differently:\n%s", diff)
		}
	})
}

func TestRealDurationStaysInItsRange(t *testing.T) {
	s := scenarios.Scenario{Real: scenarios.Real{TimeScale: 1e6}}
	if d := s.RealDuration(1e12); d != math.MaxInt64 {
		t.Errorf("eleven days stretched a million times are %d ns, want the largest Duration", d)
	}
	if d := s.RealDuration(3); d != 3*time.Second {
		t.Errorf("3 µs stretched a million times are %v", d)
	}
}

// straggler is the parameters of the straggler policy, to be changed in place.
func straggler(s *scenarios.Scenario) *policy.Straggler {
	return s.Policy.Parameters[scenarios.Straggler].(*policy.Straggler)
}

// memories compares policies whole.
var memories = cmp.Exporter(func(reflect.Type) bool { return true })
