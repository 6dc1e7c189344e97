package estimate

import (
	"fmt"
	"math"
)

// Warning is something to know before believing an estimate.
type Warning struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// rule is a warning with its condition. The publication names most of them as
// limits of the formulas; the others are faults of the formulas.
type rule struct {
	code  string
	holds func(in *Inputs, q *quantities, v Variant) bool
	text  func(in *Inputs, q *quantities) string
}

func always(text string) func(*Inputs, *quantities) string {
	return func(*Inputs, *quantities) string { return text }
}

// gb is a size in the GB that nodes' memory is given in.
func gb(bytes float64) string { return trim(bytes/1e9) + " GB" }

// whole is the memory that the whole model would need on a node.
func (q *quantities) whole(in *Inputs) float64 { return in.Parameters * q.bytesPerParam }

// mostFitted is the largest number of nodes for which calibrate fits a
// straggler coefficient.
const mostFitted = 64

// waiting is the number of nodes that wait for each other.
func (q *quantities) waiting() float64 {
	if q.sharded() {
		return q.stages * max(1, q.wholeGroups)
	}
	return q.effectiveNodes
}

func expertParallel(in *Inputs) bool { return in.IsMoE && in.ExpertParallelism != "none" }

// rules in the order in which they are shown: first what changes the answer.
var rules = []rule{
	{"over_limit", func(_ *Inputs, q *quantities, _ Variant) bool { return !(q.days < q.maxDay) },
		func(_ *Inputs, q *quantities) string {
			return fmt.Sprintf("%s days are above the limit of %s days: at these growth rates, a run that begins later ends sooner", trim(q.days), trim(q.maxDay))
		}},
	{"too_few_nodes", func(_ *Inputs, q *quantities, _ Variant) bool { return q.mode == onePipeline },
		func(in *Inputs, q *quantities) string {
			text := fmt.Sprintf("a group that holds the model needs %v nodes, and there must be two groups: use %v nodes, a lower precision or a smaller model", q.stages, math.Ceil(2*q.stages*in.NumNodes/q.effectiveNodes))
			if in.IsMoE && in.ExpertParallelism == "none" {
				text += ", or spread the experts (expertParallelism)"
			}
			return text
		}},
	{"no_pipeline", func(_ *Inputs, q *quantities, _ Variant) bool { return q.sharded() && q.wholeGroups < 1 },
		func(_ *Inputs, q *quantities) string {
			return fmt.Sprintf("%.4g nodes cannot hold the model, which needs %v nodes; the days assume a pipeline that does not exist", q.effectiveNodes, q.stages)
		}},
	{"pipeline_over_wan", func(in *Inputs, q *quantities, _ Variant) bool { return q.sharded() && !in.UseHierarchy },
		func(in *Inputs, q *quantities) string {
			return fmt.Sprintf("every micro-batch is handed on over links of %v Mbit/s and %v ms, in %v slots of a step; with useHierarchy the handoffs stay in a region", in.BandwidthMbps, in.LatencyMs, q.slots)
		}},
	{"pipeline_groups", func(_ *Inputs, q *quantities, _ Variant) bool { return q.mode == pipelineGroups },
		func(in *Inputs, q *quantities) string {
			text := fmt.Sprintf("the model (%s) does not fit on a node (%s): %v nodes hold it together; a node holds at most %.4g·10⁹ parameters with FP16, %.4g with FP8, %.4g with FP4",
				gb(q.memory), gb(q.vram), q.stages, in.VRAMPerNode/16, in.VRAMPerNode/14, in.VRAMPerNode/13)
			if in.IsMoE && in.ExpertParallelism == "none" {
				text += "; spreading the experts (expertParallelism) may make it fit"
			}
			return text
		}},
	{"memory_exact", func(_ *Inputs, q *quantities, _ Variant) bool { return q.memory == q.vram },
		func(_ *Inputs, q *quantities) string {
			return fmt.Sprintf("the model fills a node's %s to the last byte, and counts as fitting; activations need memory too, and one more parameter would need pipelines", gb(q.vram))
		}},
	{"ep_saved_memory", func(_ *Inputs, q *quantities, _ Variant) bool { return q.epSaved },
		func(in *Inputs, q *quantities) string {
			return fmt.Sprintf("the model fits because experts are spread over %v nodes: %s on each instead of %s", q.epDegree, gb(q.memory), gb(q.whole(in)))
		}},
	{"mfu_high", func(in *Inputs, _ *quantities, _ Variant) bool { return in.MFU > 0.6 },
		func(in *Inputs, _ *quantities) string {
			return fmt.Sprintf("an MFU of %.3g %% is rarely reached; 30 to 60 %% are usual (1.3)", 100*in.MFU)
		}},
	{"mfu_low", func(in *Inputs, _ *quantities, _ Variant) bool { return in.MFU < 0.3 },
		func(in *Inputs, _ *quantities) string {
			return fmt.Sprintf("an MFU of %.3g %% is low; 30 to 60 %% are usual (1.3)", 100*in.MFU)
		}},
	{"global_mfu_low", func(_ *Inputs, q *quantities, _ Variant) bool { return q.globalMFU < 0.2 },
		func(_ *Inputs, q *quantities) string {
			return fmt.Sprintf("the run as a whole uses %.3g %% of what its nodes could compute", 100*q.globalMFU)
		}},
	{"regional_sync_hidden", func(in *Inputs, q *quantities, _ Variant) bool {
		return q.mode == hierarchical && q.regionalSync > in.InnerSteps*q.step && !(q.globalSync > q.block)
	}, func(in *Inputs, q *quantities) string {
		return fmt.Sprintf("the regional sync (%s s) takes longer than the computing before it (%s s), but the choice of the bottleneck ignores it", trim(q.regionalSync), trim(in.InnerSteps*q.step))
	}},
	{"efficiency_floor", func(_ *Inputs, q *quantities, _ Variant) bool { return q.eta == leastEta },
		always("the learning efficiency is at its floor of 40 %, below which the formula does not go (4.1)")},
	{"inner_steps_untested", func(in *Inputs, q *quantities, _ Variant) bool { return q.mode != onePipeline && in.InnerSteps > 500 },
		func(in *Inputs, _ *quantities) string {
			return fmt.Sprintf("%v inner steps are more than the 500 that the source of the learning efficiency tried (4.2)", in.InnerSteps)
		}},
	{"small_model", func(in *Inputs, _ *quantities, _ Variant) bool { return in.Parameters < 13e9 },
		always("below 13·10⁹ parameters, attention can be more than a tenth of the computing, but the formula of 6·P per token leaves it out (1.1)")},
	{"hidden_dimension", func(in *Inputs, q *quantities, _ Variant) bool {
		return q.sharded() && (in.Parameters < 70e9 || in.Parameters > 405e9)
	}, func(_ *Inputs, q *quantities) string {
		return fmt.Sprintf("the hidden dimension is guessed as 0.03·√P = %.0f, which was compared with models of 70·10⁹ to 405·10⁹ parameters only (3.3)", q.hidden)
	}},
	{"pipeline_compute", func(_ *Inputs, q *quantities, v Variant) bool { return q.sharded() && v != Measured },
		func(_ *Inputs, q *quantities) string {
			return fmt.Sprintf("a slot of the pipeline is given the computing of the whole model, though a stage holds 1/%v of it: the computing comes out %v times too long (a fault of the formula)", q.stages, q.stages)
		}},
	{"pipeline_forward_only", func(_ *Inputs, q *quantities, v Variant) bool { return q.sharded() && v == Document },
		always("handoffs count activations on their way forward only; gradients go back as well, about as many bytes (10.6)")},
	{"groups_equal", func(_ *Inputs, q *quantities, _ Variant) bool { return q.mode == pipelineGroups },
		always("all pipelines are assumed to be equally fast (10.1)")},
	{"fractional_groups", func(in *Inputs, q *quantities, v Variant) bool {
		return q.mode == hierarchical && q.groups != math.Trunc(q.groups) || q.mode == onePipeline && q.pipelines != math.Trunc(q.pipelines)
	}, func(_ *Inputs, q *quantities) string {
		n, what := q.groups, "regional groups"
		if q.mode == onePipeline {
			n, what = q.pipelines, "pipelines"
		}
		return fmt.Sprintf("the formula counts %.4g %s, but a network has a whole number", n, what)
	}},
	{"one_node", func(in *Inputs, q *quantities, v Variant) bool { return in.NumNodes == 1 && v != Measured },
		always("a single node has no peer to sync with, but the formula counts syncs (a fault of the formula)")},
	{"ep_latency_only", func(in *Inputs, _ *quantities, _ Variant) bool { return expertParallel(in) },
		func(in *Inputs, q *quantities) string {
			mbps := in.BandwidthMbps
			if in.ExpertParallelism == "regional" {
				mbps = in.RegionalBandwidth
			}
			bits := gradientBits * in.LocalBatch * 0.03 * math.Sqrt(in.Parameters)
			return fmt.Sprintf("expert parallelism counts its latency only, %.3g s a step; sending the tokens' activations, %s each time, would take %.3g s at %v Mbit/s (1.5)",
				q.epLatency, gb(bits/8), 2*in.MoELayers*bits/(mbps*1e6), mbps)
		}},
	{"ep_free", func(in *Inputs, _ *quantities, v Variant) bool {
		return in.IsMoE && in.ExpertParallelism == "regional" && !in.UseHierarchy && v != Document
	}, always("regional expert parallelism without useHierarchy saves memory and costs no time on the page (a fault of the page)")},
	{"ep_memory_simple", func(in *Inputs, _ *quantities, _ Variant) bool { return expertParallel(in) },
		always("the memory counts shared and expert parameters only; routing and token buffers need further memory (10.7)")},
	{"streaming_memory", func(in *Inputs, q *quantities, _ Variant) bool {
		return in.StreamingEnabled && !q.sharded() && 1.66*q.memory > q.vram
	}, func(_ *Inputs, q *quantities) string {
		return fmt.Sprintf("streaming keeps 66 %% more in memory: the model takes %s and no longer fits in %s, unless the addition is kept elsewhere (10.2)", gb(1.66*q.memory), gb(q.vram))
	}},
	{"streaming_overheads", func(in *Inputs, q *quantities, v Variant) bool {
		return in.StreamingEnabled && q.mode != onePipeline && v != Measured
	},
		always("streaming is assumed to overlap everything, but receiving blocks computing for 2 to 5 % of the time (3.1)")},
	{"regional_compression", func(in *Inputs, q *quantities, _ Variant) bool { return q.mode == hierarchical && in.Compression > 1 },
		always("regional syncs are assumed to be compressed like global syncs, which is not necessary (10.3)")},
	{"hierarchy_heuristic", func(in *Inputs, q *quantities, v Variant) bool {
		return in.UseHierarchy && (v != Document || q.mode == hierarchical)
	}, always("the formula counts regional syncs by their square root, a guess without measurements (4.4)")},
	{"threshold_penalty", func(in *Inputs, _ *quantities, _ Variant) bool { return in.StragglerStrategy == "threshold" },
		always("the formula guesses that leaving out the slowest tenth costs a factor of 1.15 in tokens, and that no node then waits (4.5)")},
	{"nodes_equal", func(in *Inputs, _ *quantities, v Variant) bool { return in.NumNodes > 1 && v != Measured },
		func(in *Inputs, _ *quantities) string {
			delay := "slow nodes delay syncs, by 5 % for each doubling of the nodes, but never delay computing (5.1, 10.4)"
			switch in.StragglerStrategy {
			case "threshold":
				delay = "slow nodes delay neither syncs nor computing (5.2, 10.4)"
			case "redundancy":
				delay = "slow nodes delay syncs, by 1.5 % for each doubling of the nodes, but never delay computing (5.2, 10.4)"
			}
			return "nodes are assumed to be equal; " + delay
		}},
	{"codes_not_measured", func(in *Inputs, q *quantities, v Variant) bool {
		return v == Measured && q.mode != onePipeline && in.Compression != gradientBits/8 && in.Compression != gradientBits/4
	}, func(in *Inputs, _ *quantities) string {
		return fmt.Sprintf("a compression of %v makes codes of %.3g bits; the measured all-reduce has codes of 8 or 4 bits, a compression of %v or %v", in.Compression, gradientBits/in.Compression, gradientBits/8, gradientBits/4)
	}},
	{"beyond_measured", func(_ *Inputs, q *quantities, v Variant) bool { return v == Measured && q.waiting() > mostFitted },
		func(_ *Inputs, q *quantities) string {
			return fmt.Sprintf("%.4g nodes wait for each other; the straggler coefficient was fitted to at most %d nodes", q.waiting(), mostFitted)
		}},
	{"strategy_not_measured", func(in *Inputs, _ *quantities, v Variant) bool {
		return v == Measured && in.StragglerStrategy != "none"
	}, always("the gain of the straggler strategy is the published gain; it was not measured")},
	{"precision_memory_only", func(in *Inputs, _ *quantities, _ Variant) bool { return in.Precision != "FP16" },
		always("the precision changes only the memory, not the computing or the bytes sent; the compression changes the bytes sent (8.1)")},
}

// warn returns the warnings of an estimate.
func warn(in *Inputs, q *quantities, v Variant) []Warning {
	all := []Warning{}
	for _, r := range rules {
		if r.holds(in, q, v) {
			all = append(all, Warning{r.code, r.text(in, q)})
		}
	}
	return all
}
