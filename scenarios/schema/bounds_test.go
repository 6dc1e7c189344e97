package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"testbed/policy"
	"testbed/scenarios"
	"testbed/shaping"
)

// samples are scenarios in which every field that is a number, a time or a rate stands
// once at least, beside values with which it may have the widest range.
var samples = []string{`
seed: 0
workers:
  - {id: 0, inner_step_mean: 1000000000000, inner_step_jitter: 0}
  - {id: 1, inner_step_mean: 1, join_at: 0, initial_step: 0, lighthouse: 0}
  - {id: 2, inner_step_mean: 1}
inner_steps: 1000000
target_outer_steps: 1000000
horizon: 1000000000000
heartbeat_period: 1
heartbeat_miss_threshold: 1
base_latency: 0
bandwidth_bpus: 1
state_bytes: 1
injects:
  - {op: Slow, at: 1, id: 0, factor: 1}
  - {op: CoordinatorCrash, at: 1, down: 1}
  - {op: Restart, at: 1, id: 0, after: 1, lighthouse: 1}
  - {op: Preempt, at: 1, id: 1, notice: 1}
policy:
  rejoin_rounds: 1
  staleness_weight: 0.5
  adaptive: {quorum: 0.5, z: 3, window: 8, gain: 0.05, prior: 0.3}
  backup: {b: 1}
  deadline: {after: 1, factor: 2, quorum: 0.5}
  quorum: {min_replicas: 1, join_timeout: 1}
  sample: {fraction: 0.5}
  straggler: {quorum: 0.5, k: 3, window: 8, min_history: 1, min_slack: 1, sideline_limit: 1}
  torchft: {min_replicas: 1, join_timeout: 1, heartbeat_timeout: 1, quorum_timeout: 1, timeout: 1, quorum_retries: 1, max_retries: 1, restarts: 1, shrink_until: 1}
real:
  time_scale: 1
  dilation: 1
  min_slack: 1s
  stall_timeout: 1s
  checkpoint_every: 1
  upload: {every: 1}
  all_reduce: {connections: 1, block: 1024}
`, `
real:
  time_scale: 1000000
  links:
    default: LINK
    groups: {a: {nodes: [w0], ACCESS}, b: {nodes: [w1], ACCESS}}
    nodes: {w2: {ACCESS}}
    paths: [{from: a, to: b, PATH}]
    pairs: [{from: w0, to: w2, PATH}]
  injects:
    - {op: Link, at: 0, until: 2, id: 0, ACCESS}
    - {op: Link, at: 1, from: w0, to: w1, PATH}
    - {op: Flap, at: 1, id: 0, period: 1000000000000, down: 1}
`, `
real:
  links:
    default: {BURST}
    paths: []
    pairs: [{from: w0, to: w2, BURST}]
    groups: {a: {nodes: [w0]}, b: {nodes: [w1]}}
`, `
work:
  steps: {distribution: pareto, sigma: 0.3}
  classes: [{name: a, ids: [0], factor: 1, phase: 0.5}]
  noise: {slow_factor: 2, mean_ok: 1, mean_slow: 1}
  thermal: {slow_factor: 2, heat: 1, cool: 1}
  diurnal: {amplitude: 0.5, period: 1, phase: 0.5}
`, `
work:
  steps: {distribution: pareto, shape: 2}
`, `
train:
  task: charlm
  model: {layers: 1, width: 1, heads: 1, context: 1, batch: 1}
  inner: {rate: 0.5, decay: 0.5, warmup: 1}
  outer: {rate: 0.7, momentum: 0.9, fragments: 1, mix: 0.5, overlap: 1}
policy: {staleness_weight: 0}
`, `
train: {regions: {every: 1, workers: {a: [0, 1, 2]}}}
real: {upload: {every: 0}}
policy: {staleness_weight: 0}
`, `
train: {group_world_size: 1}
`, `
train: {task: program, program: ["true"], tokens_per_step: 1, time_limit: 1s}
real: {parameters: 1}
`}

// shorthands stand in samples.
var shorthands = strings.NewReplacer(
	"LINK", "{ACCESS, PATH}",
	"BURST", "loss_burst: {enter: 0.5, leave: 0.5, loss_inside: 1, loss_outside: 0}",
	"ACCESS", "rate_up: 1mbit, rate_down: 1mbit, queue: 1ms, access_one_way_delay: 0s",
	"PATH", "one_way_delay: 30s, rate: 1mbit, jitter: 1ms, loss: 0.5, duplicate: 0.5, reorder: 0.5, corrupt: 0.5")

// unbounded are fields whose largest value depends on what else the scenario has.
var unbounded = []string{"Train.group_world_size", "Regions.every", "OuterOptimiser.fragments"}

// bounds asks the loader how small and how large each value may be, and puts that into
// the schema.
func (b *builder) bounds(t *testing.T, root *object) {
	p := prober{t: t, b: b, known: map[string]*object{}}
	base := p.sample(samples[0])
	for _, text := range samples {
		p.doc = merge(base, p.sample(text)).(map[string]any)
		if err := p.load(); err != nil {
			t.Fatalf("a sample is no scenario: %v\n%s", err, text)
		}
		p.walk(root, p.doc, "", nil)
	}
	for o, l := range b.leaves {
		if p.probe(o) != nil && p.known[l.owner+"."+l.field] == nil {
			t.Errorf("no sample has %s.%s, so that its range is not known", l.owner, l.field)
		}
	}
	for o, l := range b.leaves {
		if from := p.known[l.owner+"."+l.field]; from != nil && from != o {
			for _, name := range []string{"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"} {
				if bound := from.get(name); bound != nil && o.get(name) == nil {
					o.add(name, bound)
				}
			}
			l.more = b.leaves[from].more
		}
	}
}

// prober tries values in a scenario.
type prober struct {
	t     *testing.T
	b     *builder
	doc   map[string]any
	known map[string]*object // by struct and field
}

func (p *prober) sample(text string) map[string]any {
	var doc map[string]any
	if err := yaml.Unmarshal([]byte(shorthands.Replace(shorthands.Replace(text))), &doc); err != nil {
		p.t.Fatal(err)
	}
	return doc
}

// merge lays a document over another one.
func merge(under, over any) any {
	a, ok := under.(map[string]any)
	c, both := over.(map[string]any)
	if !ok || !both {
		return over
	}
	all := maps.Clone(a)
	for name, value := range c {
		if all[name] = merge(a[name], value); value == nil {
			delete(all, name)
		}
	}
	return all
}

func (p *prober) load() error {
	data, err := json.Marshal(p.doc)
	if err != nil {
		p.t.Fatal(err)
	}
	_, err = scenarios.Parse("sample.json", data)
	return err
}

// walk probes the values of the document that no sample before had.
func (p *prober) walk(schema *object, value any, path string, set func(any)) {
	if ref, ok := schema.get("$ref").(string); ok {
		schema = p.b.defs.get(strings.TrimPrefix(ref, "#/$defs/")).(*object)
	}
	if l := p.b.leaves[schema]; l != nil && p.probe(schema) != nil && p.known[l.owner+"."+l.field] == nil {
		p.known[l.owner+"."+l.field] = schema
		p.probe(schema)(schema, path, value, set)
		set(value)
	}
	switch v := value.(type) {
	case map[string]any:
		properties, _ := schema.get("properties").(*object)
		for name, inner := range v {
			var next *object
			if properties != nil {
				next, _ = properties.get(name).(*object)
			}
			if next == nil {
				next, _ = schema.get("additionalProperties").(*object)
			}
			p.walk(next, inner, strings.TrimPrefix(path+"."+name, "."), func(x any) { v[name] = x })
		}
	case []any:
		items, ok := schema.get("items").(*object)
		for i, inner := range v {
			if ok {
				p.walk(items, inner, fmt.Sprintf("%s[%d]", path, i), func(x any) { v[i] = x })
			}
		}
	}
}

// probe is how the range of a value is found; nil: it has none.
func (p *prober) probe(schema *object) func(o *object, path string, value any, set func(any)) {
	l := p.b.leaves[schema]
	t := l.of
	if t == reflect.TypeFor[*policy.ID]() || schema.get("enum") != nil { // a worker that there is
		return nil
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[shaping.Duration](), t == reflect.TypeFor[shaping.Rate](), t == reflect.TypeFor[shaping.Queue]():
		return p.texts
	case t.Kind() == reflect.Float64:
		return p.float
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		return p.whole
	}
	return nil
}

// refused says whether the loader refuses a value of the field for what it is.
func (p *prober) refused(path string) bool {
	e, ok := errors.AsType[*scenarios.Error](p.load())
	return ok && (e.Field == path || slices.ContainsFunc(e.More, func(more *scenarios.Error) bool { return more.Field == path }))
}

// edge is the last number that is accepted on the way from one that is to another, and
// whether the other is refused.
func edge(from, to int64, refused func(int64) bool) (last int64, bounded bool) {
	if !refused(to) {
		return 0, false
	}
	away := int64(1)
	if to < from {
		away = -1
	}
	for _, guess := range found { // most have a bound that another field has
		if inside := (guess-from)*away >= 0 && (to-guess)*away > 0; inside && !refused(guess) && refused(guess+away) {
			return guess, true
		}
	}
	defer func() { found = append(found, last) }()
	for from != to+1 && from != to-1 {
		if middle := from/2 + to/2 + (from%2+to%2)/2; refused(middle) {
			to = middle
		} else {
			from = middle
		}
	}
	return from, true
}

// found are the edges so far.
var found = []int64{0, 1}

const far = int64(1e18)

func (p *prober) whole(o *object, path string, value any, set func(any)) {
	step, from := int64(1), int64(value.(int))
	if of, ok := o.get("multipleOf").(int); ok {
		step, from = int64(of), from/int64(of)
	}
	refused := func(n int64) bool {
		set(n * step)
		return p.refused(path)
	}
	if least, ok := edge(from, -far/step, refused); ok {
		o.add("minimum", least*step)
	}
	if l := p.b.leaves[o]; slices.Contains(unbounded, l.owner+"."+l.field) {
		return
	}
	if most, ok := edge(from, far/step, refused); ok {
		o.add("maximum", most*step)
	}
}

func (p *prober) float(o *object, path string, value any, set func(any)) {
	// Neighbouring numbers have neighbouring bits.
	order := func(x float64) int64 {
		if n := int64(math.Float64bits(x)); n >= 0 {
			return n
		}
		return -int64(math.Float64bits(-x))
	}
	number := func(n int64) float64 {
		if n < 0 {
			return -math.Float64frombits(uint64(-n))
		}
		return math.Float64frombits(uint64(n))
	}
	refused := func(n int64) bool {
		set(json.Number(strconv.FormatFloat(number(n), 'f', -1, 64)))
		return p.refused(path)
	}
	from, ok := value.(float64)
	if !ok {
		from = float64(value.(int))
	}
	for _, side := range []struct {
		name, exclusive string
		to              float64
		next            int64
	}{{"minimum", "exclusiveMinimum", -1e30, -1}, {"maximum", "exclusiveMaximum", 1e30, 1}} {
		last, bounded := edge(order(from), order(side.to), refused)
		if !bounded {
			continue
		}
		in, out := number(last), number(last+side.next)
		if len(fmt.Sprint(in)) <= len(fmt.Sprint(out)) {
			o.add(side.name, in)
		} else {
			o.add(side.exclusive, out)
		}
	}
}

// texts finds the bounds of values with units.
func (p *prober) texts(o *object, path string, value any, set func(any)) {
	l := p.b.leaves[o]
	bounds := func(from int64, text func(int64) string, word func(int64) string) {
		refused := func(n int64) bool {
			set(text(n))
			return p.refused(path)
		}
		least, low := edge(from, 0, refused)
		most, high := edge(from, far, refused)
		switch {
		case low && high:
			l.more = append(l.more, word(least)+" to "+word(most))
		case low:
			l.more = append(l.more, "at least "+word(least))
		case high:
			l.more = append(l.more, "at most "+word(most))
		}
	}
	seconds := func(n int64) string { return time.Duration(n).String() }
	switch {
	case strings.HasSuffix(l.of.String(), "Rate"):
		bounds(1e6, func(n int64) string { return fmt.Sprintf("%dbit", n) }, func(n int64) string { return shaping.Rate(n).String() })
	case strings.HasSuffix(l.of.String(), "Queue"):
		bounds(1e6, seconds, seconds)
		bounds(1e6, func(n int64) string { return fmt.Sprintf("%db", n) }, func(n int64) string { return shaping.Queue{Bytes: int(n)}.String() })
	default:
		from, err := time.ParseDuration(value.(string))
		if err != nil {
			p.t.Fatal(err)
		}
		bounds(int64(max(from, 1)), seconds, seconds)
	}
}
