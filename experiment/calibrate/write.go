package calibrate

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"testbed/scenarios"
	"testbed/scenarios/convert"
	"testbed/shaping"
	"testbed/train/work"
)

// Rewrite returns the text of a scenario with the prices of Price. The one-way
// delay that base_latency gave to links without one is written out, because
// base_latency changes. Everything else stays as far as the format can hold it.
// From YAML to YAML, comments stay, too.
func (c *Calibration) Rewrite(s *scenarios.Scenario, source []byte, to convert.Format) (text []byte, p Prices, err error) {
	priced, p, err := c.Price(s)
	if err != nil {
		return nil, p, err
	}
	if i := slices.IndexFunc(c.Steps, func(of StepShape) bool { return of.Scenario == s.Name && of.Good() }); i >= 0 {
		c.Steps[i].apply(priced, s, to == convert.Churn)
	}
	delay := s.Real.Links.Default.OneWayDelay
	if delay == nil {
		delay = new(shaping.Duration(s.RealDuration(s.BaseLatency).Round(time.Microsecond)))
	}
	if to == convert.YAML && convert.FormatOf(source) == convert.YAML {
		text, err = edit(source, priced, *delay)
	} else {
		if to != convert.Churn { // which has no links
			priced.Real.Links.Default.OneWayDelay = delay
		}
		text, _, err = convert.Text(priced, to)
	}
	if err != nil {
		err = fmt.Errorf("writing the calibrated copy of %s: %w", s.Name, err)
	}
	return text, p, err
}

// edit sets the fields that Price changes, and a delay for links.
func edit(source []byte, priced *scenarios.Scenario, delay shaping.Duration) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(source, &doc); err != nil {
		return nil, err
	}
	root := doc.Content[0]
	for key, value := range map[string]int64{
		"base_latency": int64(priced.BaseLatency), "bandwidth_bpus": priced.BandwidthBpus, "state_bytes": priced.StateBytes,
	} {
		set(root, key, strconv.FormatInt(value, 10))
	}
	if workers := child(root, "workers"); workers != nil {
		for i, w := range workers.Content {
			set(w, "inner_step_mean", strconv.FormatInt(int64(priced.Workers[i].InnerStepMean), 10))
			if jitter := priced.Workers[i].InnerStepJitter; jitter > 0 || child(w, "inner_step_jitter") != nil {
				set(w, "inner_step_jitter", strconv.FormatInt(int64(jitter), 10))
			}
		}
	}
	if priced.Work != nil {
		editWork(root, priced.Work)
	}
	if priced.Real.Links.Default.OneWayDelay == nil {
		set(section(section(section(root, "real"), "links"), "default"), "one_way_delay", delay.String())
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// editWork sets the steps of the section work, and the factors of its classes.
func editWork(root *yaml.Node, spec *work.Spec) {
	if spec.Steps.File != "" {
		return // a trace stays as it is
	}
	in := section(root, "work")
	steps := yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
	number := func(key string, value *float64) {
		if value != nil {
			set(&steps, key, strconv.FormatFloat(*value, 'f', -1, 64))
		}
	}
	if d := spec.Steps.Distribution; d != "" {
		set(&steps, "distribution", string(d))
	}
	number("sigma", spec.Steps.Sigma)
	number("shape", spec.Steps.Shape)
	if len(steps.Content) > 0 {
		*section(in, "steps") = steps
	}
	if classes := child(in, "classes"); classes != nil {
		for i, c := range classes.Content {
			set(c, "factor", strconv.FormatFloat(spec.Classes[i].Factor, 'f', -1, 64))
		}
	}
}

// child returns the value of a key of a mapping, or nil.
func child(m *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return m.Content[i+1]
		}
	}
	return nil
}

// section is child, created if missing.
func section(m *yaml.Node, key string) *yaml.Node {
	if c := child(m, key); c != nil {
		return c
	}
	c := &yaml.Node{Kind: yaml.MappingNode}
	m.Content = append(m.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, c)
	return c
}

// set sets a key of a mapping to a scalar.
func set(m *yaml.Node, key, value string) {
	if c := child(m, key); c != nil {
		*c = yaml.Node{Kind: yaml.ScalarNode, Value: value, LineComment: c.LineComment}
		return
	}
	m.Content = append(m.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, &yaml.Node{Kind: yaml.ScalarNode, Value: value})
}
