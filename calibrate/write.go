package calibrate

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"testbed/scenarios"
)

// Rewrite returns the text of a scenario with the prices of Price in it; what
// else there is, comments too, stays. The one-way delay that base_latency gave
// to links that name none is written out, because base_latency changes.
func (c *Calibration) Rewrite(s *scenarios.Scenario, source []byte) ([]byte, error) {
	priced, err := c.Price(s)
	if err != nil {
		return nil, err
	}
	fail := func(err error) ([]byte, error) {
		return nil, fmt.Errorf("writing the calibrated %s: %w", s.Name, err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(source, &doc); err != nil {
		return fail(err)
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
	if s.Real.Links.Default.OneWayDelay == nil {
		links := section(section(section(root, "real"), "links"), "default")
		set(links, "one_way_delay", s.RealDuration(s.BaseLatency).Round(time.Microsecond).String())
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return fail(err)
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
