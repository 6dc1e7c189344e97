package emulated

import (
	"bytes"
	"fmt"
	"math"
	"text/template"
	"time"

	"testbed/scenarios"
)

// Name is the name of the small scenario.
const Name = "emulated"

// Rounds is the number of rounds of a small scenario. The first one, which
// connects, is ignored.
const Rounds = 11

// No worker may be lost because the machine was busy for a while.
const (
	heartbeat = 500_000 // µs
	missed    = 10
)

var scenario = template.Must(template.New("scenario").Parse(`description: {{.Description}}
seed: {{.Seed}}
workers:
{{- range .Factors}}
  - {id: {{.ID}}, join_at: 0, inner_step_mean: {{$.Step}}}
{{- end}}
injects: []
inner_steps: {{.InnerSteps}}
target_outer_steps: {{.Rounds}}
horizon: {{.Horizon}}
heartbeat_period: {{.Heartbeat}}
heartbeat_miss_threshold: {{.Missed}}
base_latency: {{.OneWay.Microseconds}}
bandwidth_bpus: {{.Bpus}}
state_bytes: {{.Bytes}}
{{- if or .Sigma .Spread}}
work:
{{- if .Sigma}}
  steps: {distribution: lognormal, sigma: {{.Sigma}}}
{{- end}}
{{- if .Spread}}
  classes:
{{- range .Factors}}
    - {name: w{{.ID}}, ids: [{{.ID}}], factor: {{.Factor}}}
{{- end}}
{{- end}}
{{- end}}
real:
  time_scale: 1
  parameters: {{.Parameters}}
  checkpoint_every: 0
  all_reduce: {algorithm: {{.Algorithm}}, bits: {{.Bits}}, entropy: "off"}
  links:
    # The estimated run has no coordinator, so the links of this one have no delay.
    default: {rate_up: {{.Rate}}bit, rate_down: {{.Rate}}bit, queue: 20ms, one_way_delay: 0s}
    groups:
{{- range .Groups}}
      {{.Name}}: {nodes: [w{{.First}}-w{{.Last}}]}
{{- end}}
    paths:
{{- range .Groups}}
      - {between: [{{.Name}}, {{.Name}}], one_way_delay: {{$.Inside}}}
{{- $group := .}}
{{- range $.Groups}}
{{- if lt $group.First .First}}
      - {between: [{{$group.Name}}, {{.Name}}], one_way_delay: {{$.OneWay}}}
{{- end}}
{{- end}}
{{- end}}
`))

type factor struct {
	ID     int
	Factor float64
}

type group struct {
	Name        string
	First, Last int
}

// Scenario returns the small run to be played, and its text, which is YAML. A
// real second is one of scenario time.
func (s *Small) Scenario(seed uint64) (*scenarios.Scenario, []byte, error) {
	in := s.Run.Inputs
	nodes := int(in.NumNodes)
	oneWay := func(ms float64) time.Duration { return time.Duration(math.Round(ms / 2 * 1e6)) }
	step := math.Round(6e6 * in.Parameters * in.LocalBatch / (in.PFLOPSPerNode * 1e15 * in.MFU))
	f := map[string]any{
		"Description": fmt.Sprintf("A run of %v nodes at small scale. One second of it takes %.3g s.", s.Of.NumNodes, s.Scale), "Seed": seed,
		"Step": int64(step), "InnerSteps": in.InnerSteps, "Rounds": Rounds, "Heartbeat": heartbeat, "Missed": missed,
		"Horizon": int64(3600e6), "OneWay": oneWay(in.LatencyMs), "Inside": oneWay(in.LatencyMs),
		"Bpus": max(1, int64(in.BandwidthMbps/8)), "Bytes": int64(2 * in.Parameters / in.Compression),
		"Sigma": s.Run.StepSpread, "Spread": s.Run.NodeSpread > 0, "Parameters": int64(in.Parameters), "Bits": 16 / in.Compression,
		"Algorithm": "ring", "Rate": int64(math.Round(in.BandwidthMbps * 1e6)), "Groups": []group{{"workers", 0, nodes - 1}},
	}
	var factors []factor
	for id, x := range orderMeans(nodes, s.Run.NodeSpread) {
		factors = append(factors, factor{id, x})
	}
	f["Factors"] = factors
	if in.UseHierarchy {
		var groups []group
		for first := 0; first < nodes; first += int(in.NodesPerGroup) {
			groups = append(groups, group{fmt.Sprintf("region%d", len(groups)), first, first + int(in.NodesPerGroup) - 1})
		}
		f["Algorithm"], f["Inside"], f["Groups"] = "hierarchical", oneWay(in.RegionalLatency), groups
	}
	var text bytes.Buffer
	if err := scenario.Execute(&text, f); err != nil {
		panic(err) // the template is fixed
	}
	played, err := scenarios.Parse(Name+".yaml", text.Bytes())
	return played, text.Bytes(), err
}

// orderMeans returns the expected times of n nodes, from the fastest to the
// slowest. The logarithm of their times has a standard deviation of sigma, and
// their mean is 1. So n nodes differ as much as n nodes are expected to,
// whatever the seed.
func orderMeans(n int, sigma float64) []float64 {
	const (
		end  = 8.0 // standard deviations
		each = 1e-2
	)
	means := make([]float64, n)
	for k := range int(2 * end / each) {
		z := -end + (float64(k)+0.5)*each
		below, above := 0.5*math.Erfc(-z/math.Sqrt2), 0.5*math.Erfc(z/math.Sqrt2)
		weight := each * math.Exp(sigma*z-sigma*sigma/2-z*z/2) / math.Sqrt(2*math.Pi)
		ways := float64(n)
		for i := range n { // n · binomial(n−1, i)
			means[i] += weight * ways * math.Pow(below, float64(i)) * math.Pow(above, float64(n-1-i))
			ways *= float64(n-1-i) / float64(i+1)
		}
	}
	for i, m := range means {
		means[i] = math.Round(m*1e6) / 1e6 // the same on every machine
	}
	return means
}
