// Package estimate computes how many days a training run takes on nodes that
// are joined by the internet, from closed formulas: those of the Decentralized
// Training Simulator. The package plays nothing and measures nothing.
// docs/estimate.md has the formulas and their errors.
package estimate

import (
	"fmt"
	"math"
	"strings"

	"testbed/internal/errs"
)

// Inputs is what an estimate is made from. Names and units are those of the
// published page; the limits of each are in Check.
type Inputs struct {
	Parameters        float64 `json:"parameters" yaml:"parameters"`               // of the model, with all experts
	Tokens            float64 `json:"tokens" yaml:"tokens"`                       // to train on
	IsMoE             bool    `json:"isMoE" yaml:"isMoE"`                         // a mixture of experts
	ActiveParams      float64 `json:"activeParams" yaml:"activeParams"`           // parameters a token passes; of a mixture only
	MoELayers         float64 `json:"moeLayers" yaml:"moeLayers"`                 // layers with experts
	ExpertParallelism string  `json:"expertParallelism" yaml:"expertParallelism"` // none, regional, global
	NumNodes          float64 `json:"numNodes" yaml:"numNodes"`
	PFLOPSPerNode     float64 `json:"pflopsPerNode" yaml:"pflopsPerNode"`               // peak, 10¹⁵ FLOP/s
	VRAMPerNode       float64 `json:"vramPerNode" yaml:"vramPerNode" unit:"GB"`         // GB of 10⁹ bytes
	BandwidthMbps     float64 `json:"bandwidthMbps" yaml:"bandwidthMbps" unit:"Mbit/s"` // of a node, each way, 10⁶ bit/s
	LatencyMs         float64 `json:"latencyMs" yaml:"latencyMs" unit:"ms"`             // round trip, ms
	MFU               float64 `json:"mfu" yaml:"mfu"`                                   // model FLOP utilisation of a computing node, 0 to 1
	UseHierarchy      bool    `json:"useHierarchy" yaml:"useHierarchy"`                 // regional groups
	NodesPerGroup     float64 `json:"nodesPerGroup" yaml:"nodesPerGroup"`
	RegionalBandwidth float64 `json:"regionalBandwidth" yaml:"regionalBandwidth" unit:"Mbit/s"` // 10⁶ bit/s
	RegionalLatency   float64 `json:"regionalLatency" yaml:"regionalLatency" unit:"ms"`         // round trip, ms
	RegionalSteps     float64 `json:"regionalSteps" yaml:"regionalSteps"`                       // regional syncs for each global one
	InnerSteps        float64 `json:"innerSteps" yaml:"innerSteps"`                             // local steps for each sync
	Compression       float64 `json:"compression" yaml:"compression"`                           // of pseudo-gradients, against 16 bits
	LocalBatch        float64 `json:"localBatch" yaml:"localBatch"`                             // tokens of a local step
	PPCompression     float64 `json:"ppCompression" yaml:"ppCompression"`                       // of activations, against 16 bits
	MicroBatches      float64 `json:"microBatches" yaml:"microBatches"`                         // of a pipeline's step
	Precision         string  `json:"precision" yaml:"precision"`                               // FP16, FP8, FP4
	StreamingEnabled  bool    `json:"streamingEnabled" yaml:"streamingEnabled"`                 // syncs overlap computing
	StragglerStrategy string  `json:"stragglerStrategy" yaml:"stragglerStrategy"`               // none, threshold, redundancy
	HwGrowth          float64 `json:"hwGrowth" yaml:"hwGrowth"`                                 // of hardware's efficiency, log10 a year
	SwGrowth          float64 `json:"swGrowth" yaml:"swGrowth"`                                 // of software's efficiency, log10 a year
	InvestGrowth      float64 `json:"investGrowth" yaml:"investGrowth"`                         // of investment, log10 a year
}

// Defaults returns the inputs that the page and the document list. The page
// opens with both compressions set to 1: preset page-as-opened.
func Defaults() Inputs {
	return Inputs{
		Parameters: 144e9, Tokens: 12e12, ActiveParams: 24e9, MoELayers: 32, ExpertParallelism: "none",
		NumNodes: 72, PFLOPSPerNode: 32, VRAMPerNode: 2304, BandwidthMbps: 100, LatencyMs: 100, MFU: 0.4,
		NodesPerGroup: 8, RegionalBandwidth: 1000, RegionalLatency: 20, RegionalSteps: 16,
		InnerSteps: 128, Compression: 16, LocalBatch: 131072, PPCompression: 10, MicroBatches: 8,
		Precision: "FP16", StreamingEnabled: true, StragglerStrategy: "none",
		// Factors of 1.37, 3 and 3.5 a year. The page's log10 3 is one bit above
		// Go's.
		HwGrowth: math.Log10(1.37), SwGrowth: 0.47712125471966244, InvestGrowth: math.Log10(3.5),
	}
}

// number is a numeric input with its limits.
type number struct {
	name        string
	value       func(*Inputs) *float64
	least, most float64
	whole       bool
}

// The upper limits are beyond anything built or planned. The least number of
// parameters keeps the learning efficiency's α positive, whose denominator is
// zero at 10⁴; the largest group keeps the straggler factor of less than one
// group positive.
var numbers = []number{
	{"parameters", func(i *Inputs) *float64 { return &i.Parameters }, 1e6, 1e16, false},
	{"tokens", func(i *Inputs) *float64 { return &i.Tokens }, 1, 1e18, false},
	{"activeParams", func(i *Inputs) *float64 { return &i.ActiveParams }, 1, 1e16, false},
	{"moeLayers", func(i *Inputs) *float64 { return &i.MoELayers }, 0, 1e5, true},
	{"numNodes", func(i *Inputs) *float64 { return &i.NumNodes }, 1, 1e8, true},
	{"pflopsPerNode", func(i *Inputs) *float64 { return &i.PFLOPSPerNode }, 1e-6, 1e8, false},
	{"vramPerNode", func(i *Inputs) *float64 { return &i.VRAMPerNode }, 1e-3, 1e9, false},
	{"bandwidthMbps", func(i *Inputs) *float64 { return &i.BandwidthMbps }, 1e-3, 1e9, false},
	{"latencyMs", func(i *Inputs) *float64 { return &i.LatencyMs }, 0, 1e6, false},
	{"mfu", func(i *Inputs) *float64 { return &i.MFU }, 1e-4, 1, false},
	{"nodesPerGroup", func(i *Inputs) *float64 { return &i.NodesPerGroup }, 1, 1e5, true},
	{"regionalBandwidth", func(i *Inputs) *float64 { return &i.RegionalBandwidth }, 1e-3, 1e9, false},
	{"regionalLatency", func(i *Inputs) *float64 { return &i.RegionalLatency }, 0, 1e6, false},
	{"regionalSteps", func(i *Inputs) *float64 { return &i.RegionalSteps }, 1, 1e6, true},
	{"innerSteps", func(i *Inputs) *float64 { return &i.InnerSteps }, 1, 1e7, true},
	{"compression", func(i *Inputs) *float64 { return &i.Compression }, 0.1, 1e6, false},
	{"localBatch", func(i *Inputs) *float64 { return &i.LocalBatch }, 1, 1e12, false},
	{"ppCompression", func(i *Inputs) *float64 { return &i.PPCompression }, 0.1, 1e6, false},
	{"microBatches", func(i *Inputs) *float64 { return &i.MicroBatches }, 1, 1e6, true},
	{"hwGrowth", func(i *Inputs) *float64 { return &i.HwGrowth }, 0, 10, false},
	{"swGrowth", func(i *Inputs) *float64 { return &i.SwGrowth }, 0, 10, false},
	{"investGrowth", func(i *Inputs) *float64 { return &i.InvestGrowth }, 0, 10, false},
}

// outside describes what is wrong with a value, if anything. NaN is outside.
func outside(value, least, most float64, whole bool) string {
	switch {
	case !(value >= least && value <= most):
		return fmt.Sprintf("is %v: it must be from %v to %v", value, least, most)
	case whole && value != math.Trunc(value):
		return fmt.Sprintf("is %v: it must be a whole number", value)
	}
	return ""
}

// choice is an input that is one of some words.
type choice struct {
	name, value string
	words       []string
}

func (c choice) problem() string {
	for _, w := range c.words {
		if c.value == w {
			return ""
		}
	}
	return fmt.Sprintf("is %q: it must be one of %s", c.value, strings.Join(c.words, ", "))
}

// Check returns a *errs.FieldError for the first value that is impossible.
func (in Inputs) Check() error {
	for _, n := range numbers {
		if p := outside(*n.value(&in), n.least, n.most, n.whole); p != "" {
			return &errs.FieldError{Field: n.name, Problem: p}
		}
	}
	for _, c := range []choice{
		{"expertParallelism", in.ExpertParallelism, []string{"none", "regional", "global"}},
		{"precision", in.Precision, []string{"FP16", "FP8", "FP4"}},
		{"stragglerStrategy", in.StragglerStrategy, []string{"none", "threshold", "redundancy"}},
	} {
		if p := c.problem(); p != "" {
			return &errs.FieldError{Field: c.name, Problem: p}
		}
	}
	switch {
	case in.IsMoE && in.ActiveParams > in.Parameters:
		return errs.Fieldf("activeParams", "is %v, more than all parameters (%v): give the parameters that a token passes", in.ActiveParams, in.Parameters)
	case in.HwGrowth+in.SwGrowth+in.InvestGrowth <= 0:
		return &errs.FieldError{Field: "hwGrowth", Problem: "is 0, and so are swGrowth and investGrowth, but without growth a run has no limit of days: raise one of these three inputs"}
	}
	return nil
}
