package scenarios

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"testbed/allreduce/reduction"
	"testbed/record"
)

// ignoring is a field that worlds ignore, with everything below it. A name that
// begins with a dot is any property of a link with that name.
type ignoring struct {
	field  string
	worlds []string
	why    string
	trains bool // the simulator uses it if it trains
}

var (
	churn     = []string{record.Sim}
	simulated = []string{record.Sim, record.SimLinks}
	onLinks   = []string{record.SimLinks, record.Real}
)

var ignored = []ignoring{
	{"bandwidth_bpus", onLinks, "only churn's network uses this field", false},
	{"state_bytes", onLinks, "only churn's network uses this field", false},
	{"base_latency", onLinks, "real.links.default.one_way_delay is given", false},
	{"real.links", churn, "churn's network has neither links nor real time", false},
	{"real.injects", churn, "churn's network has neither links nor real time", false},
	{"real.time_scale", churn, "churn's network has neither links nor real time", false},
	{"real.min_slack", churn, "churn's network has neither links nor real time", false},
	{"real.parameters", churn, "state_bytes is the size of transfers on churn's network", true},
	{"real.upload", churn, "churn's network has no store", false},
	{"real.all_reduce.algorithm", churn, "an all-reduce takes a fixed time on churn's network", false},
	{"real.all_reduce.order", churn, "an all-reduce takes a fixed time on churn's network", false},
	{"real.all_reduce.rates", churn, "an all-reduce takes a fixed time on churn's network", false},
	{"real.all_reduce.bits", churn, "an all-reduce takes a fixed time on churn's network", true},
	{"real.all_reduce.block", churn, "an all-reduce takes a fixed time on churn's network", true},
	{"real.all_reduce.entropy", churn, "an all-reduce takes a fixed time on churn's network", false},
	{"real.all_reduce.connections", churn, "an all-reduce takes a fixed time on churn's network", false},
	{"real.all_reduce.error_feedback", simulated, "nothing is trained without --train", true},
	{"real.dilation", simulated, "the speed of the machine does not affect the simulator", false},
	{"real.compute", simulated, "the simulator takes the duration of inner steps from the scenario", false},
	{"real.stall_timeout", churn, "an all-reduce takes a fixed time on churn's network", false},
	{"real.heed_unreachable", churn, "churn's network has no pings", false},
	{"real.checkpoint_every", simulated, "the simulator keeps no checkpoints", false},
	{"real.tcp", simulated, "the simulator has no TCP", false},
	{".queue", []string{record.SimLinks}, "the simulator's links lose nothing to queues", false},
	{".duplicate", []string{record.SimLinks}, "the simulator's links duplicate nothing", false},
	{".reorder", []string{record.SimLinks}, "the simulator's links keep the order of packets", false},
	{".corrupt", []string{record.SimLinks}, "the simulator's links corrupt nothing", false},
	{"train.task", simulated, "nothing is trained without --train", true},
	{"train.text", simulated, "nothing is trained without --train", true},
	{"train.split", simulated, "nothing is trained without --train", true},
	{"train.inner", simulated, "nothing is trained without --train", true},
	{"train.program", simulated, "nothing is trained without --train", true},
	{"train.time_limit", simulated, "nothing is trained without --train", true},
	{"train.outer.rate", simulated, "nothing is trained without --train", true},
	{"train.outer.momentum", simulated, "nothing is trained without --train", true},
	{"train.outer.mix", simulated, "nothing is trained without --train", true},
	{"train.outer.correction", simulated, "nothing is trained without --train", true},
}

// Ignored lists the fields that the scenario gives and a world ignores:
// record.Sim, record.SimLinks or record.Real. trained reports that the
// simulator trains.
func (s *Scenario) Ignored(world string, trained bool) []record.Ignored {
	var all []record.Ignored
	given := s.given()
	for _, rule := range ignored {
		if !slices.Contains(rule.worlds, world) || rule.trains && trained {
			continue
		}
		for _, path := range given {
			field := rule.field
			switch {
			case field[0] == '.':
				if !strings.HasSuffix(path, field) || !strings.HasPrefix(path, "real.links.") && !strings.HasPrefix(path, "real.injects") {
					continue
				}
				field = path
			case path != field && !strings.HasPrefix(path, field+".") && !strings.HasPrefix(path, field+"["):
				continue
			}
			if one := (record.Ignored{Field: field, Why: rule.why}); !slices.Contains(all, one) {
				all = append(all, one)
			}
		}
	}
	return all
}

// given are the paths of the fields that some world ignores and the scenario
// gives: fields whose values differ from the defaults.
func (s *Scenario) given() []string {
	type part struct {
		Real  Real           `json:"real"`
		Train map[string]any `json:"train"`
	}
	flat := func(p part) map[string]any {
		var tree any
		all := map[string]any{}
		if text, err := json.Marshal(p); err == nil && json.Unmarshal(text, &tree) == nil {
			flatten(all, "", tree)
		}
		return all
	}
	is, otherwise := part{Real: s.Real}, part{Real: Real{TimeScale: DefaultTimeScale, Dilation: 1, Parameters: DefaultParameters, CheckpointEvery: DefaultCheckpointEvery,
		MinSlack: defaultMinSlack(len(s.Workers)), AllReduce: reduction.Default}}
	is.Real.Injects = slices.Clone(s.Real.Injects)
	for k := range is.Real.Injects {
		is.Real.Injects[k].Pace = nil
	}
	if t := s.Train; t != nil {
		plain := *t
		plain.Corpus = nil
		text, err := json.Marshal(plain)
		if err == nil {
			err = json.Unmarshal(text, &is.Train)
		}
		if t.Real() && !t.Foreign() || err != nil {
			otherwise.Real.Parameters = s.Real.Parameters // the model's own
		}
		if is.Train["task"] == "quadratic" {
			delete(is.Train, "task")
		}
	}
	if is.Real.Compute == ComputePlanned {
		is.Real.Compute = ""
	}
	before := flat(otherwise)
	paths := []string{"bandwidth_bpus", "state_bytes"}
	if s.Real.Links.Default.OneWayDelay != nil {
		paths = append(paths, "base_latency")
	}
	for path, value := range flat(is) {
		if old, had := before[path]; (!had || !reflect.DeepEqual(old, value)) && value != nil {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// flatten lists the leaves of a tree of JSON by their paths.
func flatten(all map[string]any, path string, tree any) {
	switch tree := tree.(type) {
	case map[string]any:
		for name, below := range tree {
			flatten(all, strings.TrimPrefix(path+"."+name, "."), below)
		}
	case []any:
		for k, below := range tree {
			flatten(all, fmt.Sprintf("%s[%d]", path, k), below)
		}
	default:
		all[path] = tree
	}
}

// WriteIgnored writes, in words, the fields that a world ignores, in a line
// that begins with title. It skips the fields that every scenario has to give,
// unless all is set.
func WriteIgnored(out io.Writer, title string, list []record.Ignored, all bool) {
	var reasons []string
	fields := map[string][]string{}
	for _, one := range list {
		if !all && slices.Contains([]string{"bandwidth_bpus", "state_bytes", "base_latency"}, one.Field) {
			continue
		}
		if fields[one.Why] == nil {
			reasons = append(reasons, one.Why)
		}
		fields[one.Why] = append(fields[one.Why], one.Field)
	}
	for k, why := range reasons {
		reasons[k] = strings.Join(fields[why], ", ") + " (" + why + ")"
	}
	if len(reasons) > 0 {
		fmt.Fprintf(out, "%s: %s\n", title, strings.Join(reasons, "; "))
	}
}
