package estimates

import (
	"fmt"
	"reflect"

	"testbed/estimate"
)

// control is the way in which a reader changes an input: a slider with a number
// field, a list of words, or a check box.
type control struct {
	Name, Label string
	Low, High   float64 // of the slider; geometric if Low is above 0
	Whole       bool
	Words       []string
	Value       any
}

// group has inputs that belong together.
type group struct {
	Name     string
	Controls []control
}

// groups are all inputs. Sliders cover the usual range of runs; number fields
// accept every possible value.
func groups() []group {
	number := func(name, label string, low, high float64) control {
		return control{Name: name, Label: label, Low: low, High: high}
	}
	whole := func(name, label string, low, high float64) control {
		return control{Name: name, Label: label, Low: low, High: high, Whole: true}
	}
	words := func(name, label string, words ...string) control {
		return control{Name: name, Label: label, Words: words}
	}
	box := func(name, label string) control { return control{Name: name, Label: label} }
	return []group{
		{"What is trained", []control{
			number("parameters", "", 1e8, 1e13), number("tokens", "", 1e9, 1e15), box("isMoE", "a mixture of experts"),
			number("activeParams", "parameters that a token passes", 1e8, 1e13), whole("moeLayers", "layers with experts", 0, 200),
			words("expertParallelism", "", "none", "regional", "global"),
		}},
		{"Nodes", []control{
			whole("numNodes", "", 1, 1e4), number("pflopsPerNode", "10¹⁵ FLOP/s at peak", 0.1, 1e4), number("vramPerNode", "10⁹ bytes", 8, 1e5),
			number("mfu", "share of the peak", 0.05, 1), words("precision", "", "FP16", "FP8", "FP4"),
			number("nodeSpread", "spread of step times between nodes", 0, 0.4), number("stepSpread", "spread of step times on one node", 0, 0.4),
		}},
		{"Network", []control{
			number("bandwidthMbps", "10⁶ bit/s each way", 1, 1e5), number("latencyMs", "ms of round trip", 1, 1000),
			box("useHierarchy", "regional groups"), whole("nodesPerGroup", "", 1, 256), number("regionalBandwidth", "10⁶ bit/s", 10, 1e6),
			number("regionalLatency", "ms of round trip", 0.1, 200), whole("regionalSteps", "regional syncs for a global one", 1, 256),
		}},
		{"Algorithm", []control{
			whole("innerSteps", "steps for each sync", 1, 1e4), number("compression", "of pseudo-gradients", 1, 256),
			number("localBatch", "tokens of a step", 1024, 1e8), box("streamingEnabled", "syncs overlap computing"),
			words("stragglerStrategy", "", "none", "threshold", "redundancy"), number("ppCompression", "of activations", 1, 100),
			whole("microBatches", "of a pipeline's step", 1, 256), whole("fragments", "of a streamed sync", 1, 64),
			whole("overlapSteps", "steps while a fragment is sent", 0, 100),
		}},
		{"How long a run may take (growth, log10 a year)", []control{
			number("hwGrowth", "of hardware", 0, 1), number("swGrowth", "of software", 0, 1), number("investGrowth", "of investment", 0, 1),
		}},
	}
}

// controls are the groups with the values of a run. Without measured terms
// there are no further inputs.
func controls(s *estimate.Sweep) []group {
	values := reflect.ValueOf(s.Run.Inputs)
	if s.Measured != nil {
		values = reflect.ValueOf(s.Run)
	}
	byName := map[string]any{}
	for _, f := range reflect.VisibleFields(values.Type()) {
		if name := f.Tag.Get("json"); name != "" {
			byName[name] = values.FieldByIndex(f.Index).Interface()
		}
	}
	var all []group
	for _, g := range groups() {
		shown := group{Name: g.Name}
		for _, c := range g.Controls {
			var known bool
			if c.Value, known = byName[c.Name]; known {
				shown.Controls = append(shown.Controls, c)
			}
		}
		all = append(all, shown)
	}
	return all
}

// Kind is number, word or truth.
func (c control) Kind() string {
	switch {
	case c.Words != nil:
		return "word"
	case c.High > 0:
		return "number"
	}
	return "truth"
}

// Text is the value in the format of a field.
func (c control) Text() string { return fmt.Sprint(c.Value) }
