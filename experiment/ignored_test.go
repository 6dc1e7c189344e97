package experiment_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"testbed/experiment"
	"testbed/node"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/shaping"
	"testbed/sim"
	"testbed/train/work"
)

// everything is a scenario that says something of nearly every field.
const everything = `
seed: 7
workers:
  - {id: 0, join_at: 0, inner_step_mean: 1000}
  - {id: 1, join_at: 0, inner_step_mean: 1000}
  - {id: 2, join_at: 0, inner_step_mean: 4000}
  - {id: 3, join_at: 9000, inner_step_mean: 1100}
injects:
  - {op: Slow, id: 1, at: 12000, factor: 3}
  - {op: Pause, id: 0, at: 20000}
  - {op: Resume, id: 0, at: 24000}
inner_steps: 2
target_outer_steps: 12
horizon: 400000
heartbeat_period: 1000
heartbeat_miss_threshold: 4
base_latency: 100
bandwidth_bpus: 100
state_bytes: 40000
policy:
  rejoin: after_rounds
  rejoin_rounds: 2
  straggler: {min_slack: 200, sideline_limit: 1, finish_steps: true}
real:
  time_scale: 50
  parameters: 50000
  checkpoint_every: 2
  upload: {every: 3}
  links:
    default: {rate_up: 200mbit, rate_down: 300mbit, queue: 20ms, one_way_delay: 3ms, jitter: 1ms, loss: 0.1%}
    pairs: [{from: w0, to: w1, one_way_delay: 30ms}, {from: w2, to: w3, one_way_delay: 30ms}]
work:
  steps: {distribution: lognormal, sigma: 0.2}
  classes: [{name: old, ids: [1], factor: 1.5}]
  noise: {slow_factor: 2, mean_ok: 5000, mean_slow: 2000}
`

// cuts or crash replace the pause, for fields that count only if a reduction stalls or
// a worker dies.
const (
	crash = "  - {op: Crash, id: 2, at: 16000}\n"
	pause = "  - {op: Pause, id: 0, at: 20000}\n  - {op: Resume, id: 0, at: 24000}\n"
	cuts  = "  injects: [{op: Cut, at: 15000, until: 150000, from: w0, to: w1}, {op: Cut, at: 15000, until: 150000, from: w1, to: w0}]\n"
)

// changes has another value for every field.
var changes = map[string]string{
	"seed": "8", "workers[*].join_at": "0", "workers[*].inner_step_mean": "1500",
	"inner_steps": "3", "target_outer_steps": "11", "horizon": "30000", "heartbeat_period": "700", "heartbeat_miss_threshold": "2",
	"base_latency": "300", "bandwidth_bpus": "10", "state_bytes": "80000",
	"injects[0].at": "13000", "injects[0].factor": "5",
	"real.injects[0].at": "9000", "policy.join": "blocking", "policy.rejoin": "never", "policy.rejoin_rounds": "5", "policy.staleness_weight": "0.5",
	"policy.straggler.quorum": "0.4", "policy.straggler.k": "9", "policy.straggler.min_slack": "5000", "policy.straggler.sideline_limit": "0",
	"policy.straggler.window": "1", "policy.straggler.min_history": "3", "policy.straggler.finish_steps": "false",
	"real.time_scale": "70", "real.dilation": "2", "real.compute": "measured", "real.parameters": "60000", "real.min_slack": "20ms", "real.stall_timeout": "9s",
	"real.heed_unreachable": "true", "real.checkpoint_every": "3", "real.upload.every": "4", "real.tcp": "reno",
	"real.links.default.rate_up": "20mbit", "real.links.default.rate_down": "30mbit", "real.links.default.queue": "50ms", "real.links.default.one_way_delay": "9ms",
	"real.links.default.access_one_way_delay": "4ms", "real.links.default.rate": "5mbit",
	"real.links.default.jitter": "2ms", "real.links.default.loss": "3%", "real.links.default.duplicate": "1%",
	"real.links.default.reorder": "1%", "real.links.default.corrupt": "1%",
	"real.all_reduce.algorithm": "direct", "real.all_reduce.order": "planned", "real.all_reduce.connections": "3", "real.all_reduce.bits": "4", "real.all_reduce.block": "64",
	"real.all_reduce.entropy": "off", "real.all_reduce.error_feedback": "true",
	"work.steps.sigma": "0.5", "work.steps.distribution": "uniform", "work.classes[0].factor": "3", "work.noise.slow_factor": "4", "work.noise.mean_ok": "900", "work.noise.mean_slow": "9000",
	"train.outer.rate": "0.3", "train.outer.momentum": "0.5", "train.outer.overlap": "2", "train.outer.fragments": "2",
}

// TestNoFieldIsIgnoredInSilence changes every field in turn, in every world and with every
// kind of task: either the result is another one, or the world says that it ignores the
// field. For real runs the result is what their nodes and links are told.
func TestNoFieldIsIgnoredInSilence(t *testing.T) {
	cut := strings.Replace(strings.Replace(everything, pause, "", 1), "work:\n", cuts+"work:\n", 1)
	dead := strings.Replace(everything, pause, crash, 1)
	for task, section := range map[string]string{"a stand-in": "", "a program": "train: {task: program, program: [none], tokens_per_step: 10}\n", "a language model": "train: {task: charlm}\n"} {
		var of []*scenarios.Scenario
		for _, text := range []string{everything, cut, dead} {
			switch task {
			case "a program": // where computing is measured unless told otherwise
				text = strings.Replace(text, "real:\n", "real:\n  compute: planned\n", 1)
			case "a language model": // which has its own
				text = strings.Replace(text, "  parameters: 50000\n", "", 1)
			}
			s, err := scenarios.Parse("x.yaml", []byte(text+section))
			if err != nil {
				t.Fatal(err)
			}
			of = append(of, s)
		}
		for _, world := range []string{record.Sim, record.SimLinks, record.Real} {
			for field, value := range changes {
				if field == "real.parameters" && task == "a language model" {
					continue // it is refused
				}
				matters, says := tries(t, of, world, field, value)
				if !matters && !says {
					t.Errorf("%s, in the world %s: %s=%s makes no difference, and nobody says so", task, world, field, value)
				}
				if matters && says {
					t.Errorf("%s, in the world %s: %s=%s makes a difference, and is called ignored", task, world, field, value)
				}
			}
		}
	}
}

// tries changes a field of scenarios and reports whether that makes a difference to any,
// and whether the world says that it ignores the field.
func tries(t *testing.T, of []*scenarios.Scenario, world, field, value string) (matters, says bool) {
	t.Helper()
	for k, s := range of {
		set, err := scenarios.NewSetting(field, value)
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.With(set)
		if err != nil {
			if k != 1 && strings.Contains(field, "real.injects") {
				continue // it has none
			}
			t.Fatal(err)
		}
		says = says || slices.ContainsFunc(c.Ignored(world, false), func(i record.Ignored) bool {
			return field == i.Field || strings.HasPrefix(field, i.Field+".") || strings.HasPrefix(field, i.Field+"[")
		})
		matters = matters || outcome(t, c, world) != outcome(t, s, world)
	}
	return matters, says
}

// TestEveryFieldIsTried: the list of changes has every field that a scenario can set to a
// single value, but for those of other policies and of parts that are there in no scenario
// of the tests above.
func TestEveryFieldIsTried(t *testing.T) {
	tried := func(path string) bool {
		for field := range changes {
			if field == path || strings.HasPrefix(path, field+".") {
				return true
			}
		}
		return false
	}
	for _, section := range []struct {
		of     reflect.Type
		prefix string
		but    []string
	}{
		{reflect.TypeFor[scenarios.Scenario](), "", []string{"name", "description", "workers", "injects", "policy", "real", "work", "train"}},
		{reflect.TypeFor[scenarios.Real](), "real.", []string{"links", "all_reduce", "injects", "upload"}},
		{reflect.TypeFor[shaping.Path](), "real.links.default.", []string{"path_preset", "loss_burst", "jitter_distribution"}},
		{reflect.TypeFor[shaping.Access](), "real.links.default.", []string{"access_preset"}},
		{reflect.TypeFor[policy.Straggler](), "policy.straggler.", nil},
		{reflect.TypeFor[work.Noise](), "work.noise.", nil},
	} {
		for f := range section.of.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if name != "" && name != "-" && !slices.Contains(section.but, name) && !tried(section.prefix+name) {
				t.Errorf("nobody tries whether %s%s counts", section.prefix, name)
			}
		}
	}
}

// outcome is what comes of a scenario in a world.
func outcome(t *testing.T, s *scenarios.Scenario, world string) string {
	t.Helper()
	var all []any
	note := func(e record.Event) {
		if e.Type != record.RunStart {
			all = append(all, e)
		}
	}
	var sum record.Summary
	var err error
	switch world {
	case record.Sim:
		sum, err = experiment.OnChurn(s, scenarios.Straggler, note)
	case record.SimLinks:
		sum, err = experiment.OnLinks(s, scenarios.Straggler, sim.Costs{Efficiency: 0.8}, note)
	default:
		r, failed := s.Resolve(scenarios.Straggler)
		if failed != nil {
			t.Fatal(failed)
		}
		all = append(all, node.NewCoordinatorSettings(r), r.Plan, r.Faults, r.Injects, r.Upload)
		for _, w := range r.Workers {
			all = append(all, node.NewWorkerSettings(r, w, 0))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	sum.TimeScale, sum.Seed, sum.Ignored = 0, 0, nil // these only repeat what the scenario says
	text, err := json.Marshal(append(all, sum))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
