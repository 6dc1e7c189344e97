package estimate

import (
	"fmt"
	"math"

	"testbed/internal/errs"
)

// ReliabilityInputs are the inputs of the reliability model. The model is a
// separate part, published after the estimator, that does not change an
// estimate.
type ReliabilityInputs struct {
	Nodes          float64 `json:"n_nodes" yaml:"n_nodes" need:"yes"`
	GPUsPerNode    float64 `json:"gpus_per_node" yaml:"gpus_per_node" need:"yes"`
	TimeSec        float64 `json:"time_s" yaml:"time_s" need:"yes" unit:"s"` // of the run without failures, s
	Params         float64 `json:"params" yaml:"params" need:"yes"`
	BytesPerParam  float64 `json:"bytes_per_param" yaml:"bytes_per_param" need:"yes"`
	VRAMGB         float64 `json:"vram_gb" yaml:"vram_gb" need:"yes" unit:"GB"` // of a node, 10⁹ bytes
	Mode           string  `json:"mode" yaml:"mode" need:"yes"`                 // one of reliabilityModes
	FailureRate    float64 `json:"failure_rate_per_gpu_hour" yaml:"failure_rate_per_gpu_hour"`
	RecoverySec    float64 `json:"recovery_s" yaml:"recovery_s" unit:"s"`             // after a failure, s
	CheckpointMode string  `json:"checkpoint_mode" yaml:"checkpoint_mode" need:"yes"` // sync, async, gpu_memory
	SlowFraction   float64 `json:"slow_fraction" yaml:"slow_fraction"`                // of the nodes
	SlowSeverity   float64 `json:"slow_severity" yaml:"slow_severity"`                // speed of a slow node, 0 to 1
	BackupFraction float64 `json:"backup_fraction" yaml:"backup_fraction"`            // spare nodes
	Replicas       float64 `json:"ckpt_replicas" yaml:"ckpt_replicas"`                // of a checkpoint in the GPUs' memory
}

// ReliabilityOutputs are the costs of failures and slow nodes.
type ReliabilityOutputs struct {
	TailFactor         float64  `json:"f_tail"`    // factor by which the slowest node delays a sync
	Goodput            float64  `json:"u"`         // useful share of the time
	Efficiency         float64  `json:"eta_mit"`   // of learning, because of what the mode leaves out
	Cost               float64  `json:"cost_mult"` // nodes paid for per useful node
	GPUs               float64  `json:"total_gpus"`
	FailuresPerDay     float64  `json:"failures_per_day"`
	MTBFHours          float64  `json:"mtbf_h"` // of all GPUs together
	ExpectedFailures   float64  `json:"expected_failures"`
	DownProbability    float64  `json:"p_node_down"`           // of a GPU, though the name says node
	CheckpointInterval *float64 `json:"checkpoint_interval_h"` // the best interval; nil: the mode needs none
	GPUMemoryFeasible  bool     `json:"gpu_mem_feasible"`      // replicas fit in memory next to the model
}

// DefaultReliability returns the published defaults. Inputs without a default
// are zero.
func DefaultReliability() ReliabilityInputs {
	return ReliabilityInputs{FailureRate: 2e-5, RecoverySec: 600, SlowFraction: 0.1, SlowSeverity: 0.6, BackupFraction: 0.05, Replicas: 4}
}

var reliabilityModes = []string{"none", "synchronous", "checkpoint_elastic", "relay", "backup_workers", "threshold", "async"}

// Check returns a *errs.FieldError for the first value that is impossible.
func (in ReliabilityInputs) Check() error {
	for _, n := range []struct {
		name               string
		value, least, most float64
		whole              bool
	}{
		{"n_nodes", in.Nodes, 1, 1e8, true},
		{"gpus_per_node", in.GPUsPerNode, 1, 1e6, true},
		{"time_s", in.TimeSec, 1, 1e12, false},
		{"params", in.Params, 1, 1e16, false},
		{"bytes_per_param", in.BytesPerParam, 0.1, 100, false},
		{"vram_gb", in.VRAMGB, 1e-3, 1e9, false},
		{"failure_rate_per_gpu_hour", in.FailureRate, 1e-12, 1e3, false},
		{"recovery_s", in.RecoverySec, 0, 1e9, false},
		{"slow_fraction", in.SlowFraction, 0, 1, false},
		{"slow_severity", in.SlowSeverity, 1e-3, 1, false},
		{"backup_fraction", in.BackupFraction, 0, 1, false},
		{"ckpt_replicas", in.Replicas, 0, 1e4, true},
	} {
		if p := outside(n.value, n.least, n.most, n.whole); p != "" {
			return &errs.FieldError{Field: n.name, Problem: p}
		}
	}
	for _, c := range []choice{
		{"mode", in.Mode, reliabilityModes},
		{"checkpoint_mode", in.CheckpointMode, []string{"sync", "async", "gpu_memory"}},
	} {
		if p := c.problem(); p != "" {
			return &errs.FieldError{Field: c.name, Problem: p}
		}
	}
	return nil
}

// Reliability computes the model. The inputs must have passed Check.
func Reliability(in ReliabilityInputs) ReliabilityOutputs {
	gpus := in.Nodes * in.GPUsPerNode
	perHour, recovery := gpus*in.FailureRate, in.RecoverySec/3600
	down := 1 - math.Exp(-in.FailureRate*recovery)
	state := in.Params * in.BytesPerParam / 1e9
	out := ReliabilityOutputs{
		TailFactor: 1, Efficiency: 1, Cost: 1, GPUs: gpus,
		FailuresPerDay: 24 * perHour, MTBFHours: 1 / perHour, ExpectedFailures: perHour * in.TimeSec / 3600,
		DownProbability: down, GPUMemoryFeasible: in.VRAMGB-state >= in.Replicas*state/in.Nodes,
	}
	// With a tenth of the nodes at 60 % of the speed this is the estimator's
	// 0.05 · log2 n.
	const tail = straggler / (0.10 * (1/0.60 - 1))
	delay := tail * in.SlowFraction * (1/in.SlowSeverity - 1) * math.Log2(in.Nodes)
	checkpoint := 8 * state * 1e9 / 24e9 / 3600 // hours, at 24 Gbit/s
	switch {
	case in.CheckpointMode == "async":
		checkpoint *= 0.02
	case in.CheckpointMode == "gpu_memory" && out.GPUMemoryFeasible:
		checkpoint *= 0.005
	}
	interval := math.Sqrt(2 * checkpoint / perHour) // Young and Daly
	lost := checkpoint/interval + perHour*interval/2
	switch in.Mode {
	case "none":
		out.TailFactor, out.Goodput = 1+delay, 1/(1+perHour*in.TimeSec/3600/2)
	case "synchronous":
		out.TailFactor, out.Goodput = 1+delay, 1-lost-perHour*recovery
		out.CheckpointInterval = &interval
	case "checkpoint_elastic":
		out.TailFactor, out.Goodput = 1+delay, 1-lost-down
		out.CheckpointInterval = &interval
	case "relay":
		out.TailFactor, out.Goodput = 1+0.4*delay, 1-down
	case "backup_workers":
		out.TailFactor, out.Goodput = 1+spareDelay*delay, 1-max(0, down-in.BackupFraction)
		out.Cost = 1 + in.BackupFraction
	case "threshold":
		out.Goodput, out.Efficiency = 1-down, 0.85
	case "async":
		out.Goodput, out.Efficiency = 1-down-0.12*(1-math.Exp(-perHour*recovery)), 0.97
	default:
		panic(fmt.Sprintf("estimate: reliability mode %q; Check was not called", in.Mode))
	}
	out.Goodput = max(0, out.Goodput)
	return out
}
