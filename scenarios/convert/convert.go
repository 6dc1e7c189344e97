// Package convert writes scenarios: as JSON or YAML that parses to the same
// scenario, and as files for churn, which have fewer fields.
package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"testbed/policy"
	"testbed/scenarios"
	"testbed/scenarios/faults"
	"testbed/scenarios/internal/jsonnode"
)

// Format is the format that a scenario is written in.
type Format string

// The formats.
const (
	Churn Format = "churn" // JSON of the fields that churn's README names
	JSON  Format = "json"
	YAML  Format = "yaml"
)

// Formats lists the formats.
var Formats = []Format{Churn, JSON, YAML}

// Set takes the format of that name. With String and Type, a Format is the value
// of a flag.
func (f *Format) Set(name string) error {
	if !slices.Contains(Formats, Format(name)) {
		return fmt.Errorf("there is no format %q; choose %s, %s or %s", name, Churn, JSON, YAML)
	}
	*f = Format(name)
	return nil
}

func (f Format) String() string { return string(f) }

// Type stands for the value in a flag's help.
func (f Format) Type() string { return "format" }

// FormatOf returns the format of a scenario's file: JSON if it is an object in
// braces, else YAML.
func FormatOf(source []byte) Format {
	if bytes.HasPrefix(bytes.TrimSpace(bytes.TrimPrefix(source, []byte("\ufeff"))), []byte("{")) {
		return JSON
	}
	return YAML
}

// Extension is the ending of file names in this format.
func (f Format) Extension() string {
	if f == YAML {
		return ".yaml"
	}
	return ".json"
}

// Text returns the scenario as a file. JSON and YAML have every field, and
// parse to the same scenario if its traces are in the same folder; the name of
// the file is its name. For churn's format, lost lists the parts of the
// scenario that it cannot hold, a line each. A part without which it would be
// another scenario is a *scenarios.Error.
func Text(s *scenarios.Scenario, to Format) (text []byte, lost []string, err error) {
	switch to {
	case Churn:
		return churn(s)
	case YAML:
		text, err = toYAML(s)
	default:
		text, err = s.Text()
	}
	return text, nil, err
}

// File writes the output of Text, and reads it back: files that it names may be
// missing in its folder. Problems are a *scenarios.Error.
func File(s *scenarios.Scenario, to Format, name string) (lost []string, err error) {
	text, lost, err := Text(s, to)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(name, text, 0o644); err != nil {
		return nil, fmt.Errorf("writing the converted scenario %s: %w", s.Name, err)
	}
	_, err = scenarios.Load(name)
	return lost, err
}

// ofChurn is a scenario in churn's format.
type ofChurn struct {
	Seed                   uint64             `json:"seed"`
	Workers                []scenarios.Worker `json:"workers"`
	Injects                []faults.Inject    `json:"injects"`
	InnerSteps             int                `json:"inner_steps"`
	TargetOuterSteps       int                `json:"target_outer_steps"`
	Horizon                policy.Time        `json:"horizon"`
	HeartbeatPeriod        policy.Time        `json:"heartbeat_period"`
	HeartbeatMissThreshold int                `json:"heartbeat_miss_threshold"`
	BaseLatency            policy.Time        `json:"base_latency"`
	BandwidthBpus          int64              `json:"bandwidth_bpus"`
	StateBytes             int64              `json:"state_bytes"`
}

// churnOps are the injects that churn has.
var churnOps = []faults.Op{faults.Crash, faults.Leave, faults.Slow, faults.Restore, faults.Partition, faults.ClearPartition}

func churn(s *scenarios.Scenario) (text []byte, lost []string, err error) {
	refuse := func(field, problem string) ([]byte, []string, error) {
		return nil, nil, &scenarios.Error{File: s.Name, Field: field, Problem: problem}
	}
	for i, in := range s.Injects {
		if !slices.Contains(churnOps, in.Op) {
			return refuse(fmt.Sprintf("injects[%d].op", i), fmt.Sprintf("churn does not support the inject %s; remove it, or choose one of %s", in.Op, list(churnOps)))
		}
	}
	if i := slices.IndexFunc(s.Workers, func(w scenarios.Worker) bool { return w.InitialStep > 0 }); i >= 0 {
		return refuse(fmt.Sprintf("workers[%d].initial_step", i), "churn's workers begin at outer step 0; remove initial_step")
	}
	if i := slices.IndexFunc(s.Workers, func(w scenarios.Worker) bool { return w.Lighthouse > 0 }); i >= 0 {
		return refuse(fmt.Sprintf("workers[%d].lighthouse", i), "churn has no lighthouses; remove lighthouse")
	}
	if s.Work != nil {
		return refuse("work", "churn's steps vary by inner_step_jitter alone; remove the section, and write the resulting inner_step_mean and inner_step_jitter to the workers")
	}
	text, err = json.MarshalIndent(ofChurn{
		s.Seed, s.Workers, s.Injects, s.InnerSteps, s.TargetOuterSteps, s.Horizon, s.HeartbeatPeriod, s.HeartbeatMissThreshold,
		s.BaseLatency, s.BandwidthBpus, s.StateBytes,
	}, "", "  ")
	if err != nil {
		return nil, nil, fmt.Errorf("writing scenario %s for churn: %w", s.Name, err)
	}
	text = append(text, '\n')
	back, err := scenarios.Parse(s.Name+".json", text) // with defaults, which are not lost
	if err != nil {
		return nil, nil, err
	}
	if !reflect.DeepEqual(s.Policy, back.Policy) {
		lost = append(lost, "policy is left out: churn takes the parameters of a policy separately, not from the scenario")
	}
	if ops := linkOps(s); ops != "" {
		lost = append(lost, "real.injects is left out: churn has no links, so the injects of links ("+ops+") have no counterpart")
	}
	back.Real.Injects = s.Real.Injects
	if !reflect.DeepEqual(s.Real, back.Real) {
		lost = append(lost, "real is left out: churn simulates neither a real network nor links")
	}
	if slices.ContainsFunc(s.Injects, func(in faults.Inject) bool {
		return in.Op == faults.Partition || in.Op == faults.ClearPartition
	}) {
		lost = append(lost, "injects: churn's README does not document the fields of a partition, so partitions are written with the fields of Testbed's format (ids)")
	}
	if s.Train != nil {
		lost = append(lost, "train is left out: churn trains nothing")
	}
	return text, lost, nil
}

// linkOps names the injects of links.
func linkOps(s *scenarios.Scenario) string {
	var ops []faults.Op
	for _, in := range s.Real.Injects {
		if !slices.Contains(ops, in.Op) {
			ops = append(ops, in.Op)
		}
	}
	return list(ops)
}

func list(ops []faults.Op) string {
	parts := make([]string, len(ops))
	for i, op := range ops {
		parts[i] = string(op)
	}
	return strings.Join(parts, ", ")
}

// toYAML lays the fields of the scenario's JSON out as a person would: in
// blocks, with short values on one line.
func toYAML(s *scenarios.Scenario) ([]byte, error) {
	fail := func(err error) ([]byte, error) {
		return nil, fmt.Errorf("writing scenario %s as YAML: %w", s.Name, err)
	}
	text, err := s.Text()
	if err != nil {
		return nil, err
	}
	root, err := jsonnode.Parse(text)
	if err != nil {
		return fail(err)
	}
	doc := yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{root}}
	if err := restyle(&doc); err != nil {
		return fail(err)
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return fail(err)
	}
	return out.Bytes(), nil
}

// restyle takes the quotes and braces of JSON from a node. It quotes text that
// a reader, even one of YAML 1.1, would take for another type.
func restyle(n *yaml.Node) error {
	n.Style = 0
	short := n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode
	for _, c := range n.Content {
		if err := restyle(c); err != nil {
			return err
		}
		short = short && (c.Kind == yaml.ScalarNode || n.Kind == yaml.MappingNode && c.Kind == yaml.SequenceNode && c.Style == yaml.FlowStyle)
	}
	switch {
	case short:
		n.Style = yaml.FlowStyle
	case n.Kind != yaml.ScalarNode || n.Tag != "!!str":
	case strings.ContainsFunc(n.Value, func(r rune) bool { return !unicode.IsPrint(r) }):
		n.Style = yaml.DoubleQuotedStyle // escapes them
	default:
		return n.Encode(n.Value)
	}
	return nil
}
