package calibrate

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"time"

	"testbed/scenarios"
)

// Experiment is a scenario to run.
type Experiment struct {
	Name, Policy string
	Source       []byte // the scenario, as YAML
}

// setting has the values that experiments vary.
type setting struct {
	Workers, Parameters int
	Rate                string
	OneWay              time.Duration
	Algorithm           string
	Jitter              int // of inner steps, in µs
	Joiners             int // number of Workers that join one after the other
	Sideline            bool
	Crash               int // time of a crash in µs; 0: none
	Rounds              int
}

// Times of the experiments, in µs. With a time scale of 1 they are real times.
const (
	stepTime  = 100_000
	heartbeat = 400_000
	missed    = 3
	joinEvery = 800_000
)

// Experiments returns the experiments of calibrate. Each differs from a middle
// setting in one value, so that effects can be separated. None of them is a
// scenario of the library.
func Experiments() []Experiment {
	middle := setting{Workers: 4, Parameters: 600_000, Rate: "200mbit", OneWay: 8 * time.Millisecond, Algorithm: "ring", Rounds: 7}
	var all []Experiment
	add := func(name string, change func(*setting)) {
		s := middle
		change(&s)
		all = append(all, Experiment{Name: name, Policy: s.policy(), Source: s.source(name)})
	}
	add("middle", func(*setting) {})
	for _, n := range []int{20_000, 200_000, 1_200_000, 2_000_000} {
		add(fmt.Sprintf("payload-%d", n), func(s *setting) { s.Parameters = n })
	}
	for _, n := range []int{2, 3, 6} {
		add(fmt.Sprintf("workers-%d", n), func(s *setting) { s.Workers = n })
	}
	for _, r := range []string{"50mbit", "100mbit", "400mbit"} {
		add("rate-"+r, func(s *setting) { s.Rate = r })
	}
	for _, d := range []int{1, 20, 40} {
		add(fmt.Sprintf("delay-%dms", d), func(s *setting) { s.OneWay = time.Duration(d) * time.Millisecond })
	}
	for _, n := range []int{200_000, 1_200_000} {
		add(fmt.Sprintf("direct-%d", n), func(s *setting) { s.Parameters, s.Algorithm = n, "direct" })
	}
	add("jitter", func(s *setting) { s.Parameters, s.Jitter, s.Rounds = 20_000, 40_000, 12 })
	for _, n := range []int{100_000, 1_000_000} {
		add(fmt.Sprintf("join-%d", n), func(s *setting) { s.Parameters, s.Workers, s.Joiners, s.Rounds = n, 5, 3, 10 })
	}
	for _, n := range []int{100_000, 1_000_000} {
		add(fmt.Sprintf("sideline-%d", n), func(s *setting) { s.Parameters, s.Sideline, s.Rounds = n, true, 9 })
	}
	for _, at := range []int{550_000, 790_000} { // between heartbeats, and just before one
		add(fmt.Sprintf("crash-%d", at/1000), func(s *setting) { s.Parameters, s.Crash, s.Rounds = 20_000, at, 5 })
	}
	return all
}

// Named returns the experiments of these names in their order, or all if there
// are no names.
func Named(names []string) ([]Experiment, error) {
	all := Experiments()
	if len(names) == 0 {
		return all, nil
	}
	var some []Experiment
	for _, name := range names {
		i := slices.IndexFunc(all, func(e Experiment) bool { return e.Name == name })
		if i < 0 {
			var there []string
			for _, e := range all {
				there = append(there, e.Name)
			}
			return nil, fmt.Errorf("there is no experiment %q; choose from %s", name, strings.Join(there, ", "))
		}
		some = append(some, all[i])
	}
	return some, nil
}

func (s setting) policy() string {
	if s.Sideline {
		return scenarios.Straggler
	}
	return scenarios.Baseline
}

var experiment = template.Must(template.New("experiment").Parse(`description: calibration, {{.Name}}
seed: 7
workers:
{{- range .Workers}}
  - {id: {{.ID}}, join_at: {{.JoinAt}}, inner_step_mean: {{$.Step}}, inner_step_jitter: {{$.Jitter}}}
{{- end}}
injects:
{{- if .Sideline}}
  - {op: Slow, id: 0, at: 900000, factor: 8}
  - {op: Restore, id: 0, at: 1100000}
  - {op: Slow, id: 1, at: 2100000, factor: 8}
  - {op: Restore, id: 1, at: 2300000}
{{- else if .Crash}}
  - {op: Crash, id: 1, at: {{.Crash}}}
{{- else}} []
{{- end}}
inner_steps: 2
target_outer_steps: {{.Rounds}}
horizon: 120000000
heartbeat_period: {{.Heartbeat}}
heartbeat_miss_threshold: {{.Missed}}
base_latency: {{.Latency}}
bandwidth_bpus: 1
state_bytes: 1
policy: {straggler: {sideline_limit: 5}}
real:
  time_scale: 1
  parameters: {{.Parameters}}
  all_reduce: {algorithm: {{.Algorithm}}, entropy: "off"}
  links:
    default: {rate_up: {{.Rate}}, rate_down: {{.Rate}}, queue: 20ms, one_way_delay: {{.OneWay}}}
`))

func (s setting) source(name string) []byte {
	type worker struct{ ID, JoinAt int }
	var workers []worker
	first := s.Workers - s.Joiners
	for id := range s.Workers {
		workers = append(workers, worker{id, max(0, id-first+1) * joinEvery})
	}
	var out bytes.Buffer
	err := experiment.Execute(&out, map[string]any{
		"Name": name, "Workers": workers, "Step": stepTime, "Jitter": s.Jitter, "Sideline": s.Sideline, "Crash": s.Crash,
		"Rounds": s.Rounds, "Heartbeat": heartbeat, "Missed": missed, "Latency": s.OneWay.Microseconds(),
		"Parameters": s.Parameters, "Algorithm": s.Algorithm, "Rate": s.Rate, "OneWay": s.OneWay,
	})
	if err != nil {
		panic(err) // the template is fixed
	}
	return out.Bytes()
}
