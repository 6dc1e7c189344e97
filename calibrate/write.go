package calibrate

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"testbed/scenarios"
	"testbed/scenarios/convert"
	"testbed/shaping"
)

// Rewrite returns the text of a scenario with the prices of Price in it. The
// one-way delay that base_latency gave to links that name none is written out,
// because base_latency changes. What else there is stays as far as the format
// can hold it, in YAML made of YAML also the comments.
func (c *Calibration) Rewrite(s *scenarios.Scenario, source []byte, to convert.Format) (text []byte, p Prices, err error) {
	priced, p, err := c.Price(s)
	if err != nil {
		return nil, p, err
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
		err = fmt.Errorf("writing the calibrated %s: %w", s.Name, err)
	}
	return text, p, err
}

// edit gives the fields that Price changes their values, and links a delay.
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
		}
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

// child returns the value of a key of a mapping, or nil.
func child(m *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return m.Content[i+1]
		}
	}
	return nil
}

// section is child, made if it is not there.
func section(m *yaml.Node, key string) *yaml.Node {
	if c := child(m, key); c != nil {
		return c
	}
	c := &yaml.Node{Kind: yaml.MappingNode}
	m.Content = append(m.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, c)
	return c
}

// set gives a key of a mapping a scalar.
func set(m *yaml.Node, key, value string) {
	if c := child(m, key); c != nil {
		*c = yaml.Node{Kind: yaml.ScalarNode, Value: value, LineComment: c.LineComment}
		return
	}
	m.Content = append(m.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, &yaml.Node{Kind: yaml.ScalarNode, Value: value})
}
