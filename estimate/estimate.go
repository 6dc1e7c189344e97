package estimate

import (
	"fmt"
	"math"
	"strconv"
)

// Variant selects the formulas. Page and document differ in pipelines, in the
// cost of a sync between pipelines for learning, and in expert parallelism.
type Variant string

// Variants.
const (
	Page     Variant = "page"     // as on the published page
	Document Variant = "document" // as in the text on the page, strictly
	Measured Variant = "measured" // the page's, with the terms that Corrections replace
)

// Results are named as on the published page.
type Results struct {
	Mode            string  `json:"mode"`
	ComputeStepSec  float64 `json:"computeStepSec"`  // an inner step, s
	GlobalCommSec   float64 `json:"globalCommSec"`   // a sync; of one pipeline the transfers of a step; s
	RegionalCommSec float64 `json:"regionalCommSec"` // a regional sync, s
	LatencySec      float64 `json:"latencySec"`      // of one pipeline only: of a step, s
	ComputeBlockSec float64 `json:"computeBlockSec"` // between two global syncs; of one pipeline a step; s
	Days            float64 `json:"days"`            // until the loss that synchronous training has after these tokens
	RawDays         float64 `json:"rawDays"`         // until the tokens are used up
	Efficiency      float64 `json:"efficiency"`      // of learning, percent
	GlobalMFU       float64 `json:"globalMfu"`       // percent
	GlobalHFU       float64 `json:"globalHfu"`       // percent
	IsSharded       bool    `json:"isSharded"`       // the model does not fit on a node
	PPStages        float64 `json:"ppStages"`        // pipeline stages
	NumPPGroups     float64 `json:"numPPGroups"`     // whole pipelines that the nodes make
	PPGroupMode     bool    `json:"ppGroupMode"`     // they are synced like nodes
	PerNodeParams   float64 `json:"perNodeParams"`   // parameters that must be in memory together, 10⁹
	EPReducedMemory bool    `json:"epReducedMemory"` // the model fits because experts are spread
	MaxParamsFP16   float64 `json:"maxParamsFP16"`   // largest that fits on a node, 10⁹
	MaxParamsFP8    float64 `json:"maxParamsFP8"`
	MaxParamsFP4    float64 `json:"maxParamsFP4"`
	MaxDays         float64 `json:"maxDays"`    // longer runs are overtaken by runs that begin later
	Bottleneck      string  `json:"bottleneck"` // Network or Compute
	Feasibility     string  `json:"feasibility"`
}

// mode is the distribution of the work.
type mode int

const (
	dataParallel   mode = iota // A: every node has the model
	hierarchical               // A′: the same, with more frequent syncs within a region
	onePipeline                // B
	pipelineGroups             // C: pipelines sync like nodes
)

// quantities are the intermediate values of an estimate, in the order in which
// they are computed. A value is zero if the mode does not have it.
type quantities struct {
	mode mode

	activeParams, bytesPerParam, epDegree, perNodeParams, memory, vram, stages float64
	effectiveNodes                                                             float64

	epLatency, step              float64 // s
	effectiveSteps, alpha, eta   float64
	volumeBits, groups           float64 // groups: those that sync globally
	fCompute                     float64 // factor by which computing waits; 1 on the page
	wholeGroups                  float64 // number of pipelines that the nodes form
	fGlobal, fRegional, fStages  float64
	regionalSync, globalSync     float64 // s
	overlap                      float64 // share of the computing that hides a sync; 0 without streaming
	hidden, activationBits       float64
	microCompute, microTransfer  float64 // s
	handoffMbps, handoffLatency  float64 // 10⁶ bit/s, s
	slots, pipelines             float64
	transfer, latency            float64 // of a pipeline's step, s
	pipelineStep                 float64 // s
	regionalCycle, block, outer  float64 // s
	outerSteps, rawDays, days    float64
	globalMFU, globalHFU, maxDay float64
	epSaved                      bool
}

const (
	secondsPerDay = 86400
	straggler     = 0.05 // of the straggler factor, for each doubling
	spares        = 1.1  // nodes per effective node, with backup workers
	spareDelay    = 0.3  // remaining share of a straggler's delay with backup workers
	threshold     = 1.15 // tokens per effective token, without the slowest tenth
	leastEta      = 0.4
	gradientBits  = 16
	hfuShare      = 0.8 // MFU for each HFU

	feasible = "Feasible"
)

func bytesPerParam(precision string) float64 {
	switch precision {
	case "FP8":
		return 14
	case "FP4":
		return 13
	}
	return 16
}

// quantify computes the quantities of an estimate. The inputs have been
// checked.
func quantify(in *Inputs, f formulas) quantities {
	var q quantities
	q.hold(in, f.variant)
	q.effectiveNodes = in.NumNodes
	if in.StragglerStrategy == "redundancy" {
		q.effectiveNodes /= spares
	}
	switch {
	case q.memory > q.vram:
		q.stages = math.Ceil(q.memory / q.vram)
		q.wholeGroups = math.Floor(q.effectiveNodes / q.stages)
		q.mode = onePipeline
		if q.wholeGroups >= 2 {
			q.mode = pipelineGroups
		}
	case in.UseHierarchy:
		q.mode = hierarchical
	}
	q.innerStep(in, f.variant)
	q.learn(in, f.variant)
	q.volumeBits = gradientBits * in.Parameters / in.Compression
	switch q.mode {
	case dataParallel:
		q.groups = q.effectiveNodes
		q.fCompute = f.computing(in, q.waiting())
		q.block = in.InnerSteps * q.step * q.fCompute
		q.sync(in, f, q.block, in.InnerSteps)
		q.outerSteps = in.Tokens / (in.LocalBatch * q.effectiveNodes * in.InnerSteps)
	case hierarchical:
		q.groups = q.effectiveNodes / in.NodesPerGroup
		q.fCompute = f.computing(in, q.waiting())
		q.fRegional = f.syncing(in, in.NodesPerGroup)
		q.regionalSync = f.sync(in, in.NodesPerGroup, in.RegionalBandwidth, in.RegionalLatency/1000) * q.fRegional
		q.regionalCycle = f.together(in, in.InnerSteps*q.step*q.fCompute, q.regionalSync, in.InnerSteps)
		q.sync(in, f, in.RegionalSteps*q.regionalCycle, in.InnerSteps*in.RegionalSteps)
		q.block = in.InnerSteps * in.RegionalSteps * q.step * q.fCompute
		q.outerSteps = in.Tokens / (in.LocalBatch * q.effectiveNodes * in.InnerSteps * in.RegionalSteps)
	default:
		q.pipeline(in, f)
	}
	q.rawDays = q.outerSteps * q.outer / secondsPerDay
	q.days = q.rawDays / q.eta
	q.globalMFU = 6 * q.activeParams * in.Tokens / (in.NumNodes * in.PFLOPSPerNode * 1e15 * q.days * secondsPerDay)
	q.globalHFU = q.globalMFU / hfuShare
	q.maxDay = 365 / ((in.HwGrowth + in.SwGrowth + in.InvestGrowth) * math.Ln10)
	return q
}

// hold computes the memory that a node needs.
func (q *quantities) hold(in *Inputs, v Variant) {
	q.activeParams, q.epDegree, q.perNodeParams = in.Parameters, 1, in.Parameters
	q.bytesPerParam, q.vram = bytesPerParam(in.Precision), in.VRAMPerNode*1e9
	whole := in.Parameters * q.bytesPerParam
	if in.IsMoE {
		q.activeParams = in.ActiveParams
		switch in.ExpertParallelism {
		case "global":
			q.epDegree = in.NumNodes
		case "regional":
			q.epDegree = in.NodesPerGroup
		}
		// The document's appendix turns to experts when the model does not fit.
		if q.epDegree > 1 && (v != Document || whole > q.vram) {
			q.perNodeParams = in.ActiveParams + (in.Parameters-in.ActiveParams)/q.epDegree
		}
	}
	q.memory = q.perNodeParams * q.bytesPerParam
	q.epSaved = q.epDegree > 1 && whole > q.vram && q.memory <= q.vram
	q.stages = 1
}

// innerStep computes the time of a local step.
func (q *quantities) innerStep(in *Inputs, v Variant) {
	if in.IsMoE {
		switch {
		case in.ExpertParallelism == "global":
			q.epLatency = 2 * in.MoELayers * in.LatencyMs / 1000
		case in.ExpertParallelism == "regional" && (in.UseHierarchy || v == Document):
			q.epLatency = 2 * in.MoELayers * in.RegionalLatency / 1000
		}
	}
	q.step = 6*q.activeParams*in.LocalBatch/(in.PFLOPSPerNode*1e15*in.MFU) + q.epLatency
}

// learn computes the efficiency of learning relative to synchronous training.
func (q *quantities) learn(in *Inputs, v Variant) {
	q.effectiveSteps = in.InnerSteps
	// A pipeline has no regional syncs, but the page counts them.
	if in.UseHierarchy && (v != Document || q.mode == hierarchical) {
		q.effectiveSteps *= math.Sqrt(in.RegionalSteps)
	}
	q.alpha = 0.08 / (1 + math.Log10(in.Parameters/1e9)/5)
	penalty := 1.0
	if in.StragglerStrategy == "threshold" {
		penalty = threshold
	}
	q.eta = max(leastEta, (1-q.alpha*math.Log10(q.effectiveSteps))/penalty)
}

// sync computes the time of a global sync, and that of a sync with the steps
// before it, which take so long.
func (q *quantities) sync(in *Inputs, f formulas, before, steps float64) {
	q.fGlobal = f.syncing(in, q.groups)
	q.globalSync = f.sync(in, q.groups, in.BandwidthMbps, in.LatencyMs/1000) * q.fGlobal
	q.overlap = f.overlap(in, steps)
	q.outer = f.together(in, before, q.globalSync, steps)
}

// pipeline computes modes B and C.
func (q *quantities) pipeline(in *Inputs, f formulas) {
	q.hidden = 0.03 * math.Sqrt(in.Parameters)
	q.activationBits = gradientBits * in.LocalBatch * q.hidden
	if f.variant != Document {
		q.activationBits *= 2 / in.PPCompression // there and back, compressed
	}
	q.handoffMbps, q.handoffLatency = in.BandwidthMbps, in.LatencyMs/1000
	if in.UseHierarchy {
		q.handoffMbps, q.handoffLatency = in.RegionalBandwidth, in.RegionalLatency/1000
	}
	q.fCompute = f.computing(in, q.waiting())
	q.microCompute = q.step / in.MicroBatches * q.fCompute
	if f.uses(stageShare) {
		q.microCompute /= q.stages
	}
	q.microTransfer = q.activationBits / in.MicroBatches / (q.handoffMbps * 1e6)
	q.slots = in.MicroBatches + q.stages - 1
	q.fStages = f.syncing(in, q.stages)
	q.transfer = q.slots * q.microTransfer * q.fStages
	q.latency = q.slots * q.handoffLatency * q.fStages
	q.pipelineStep = q.slots*q.microCompute + q.transfer + q.latency
	if q.mode == pipelineGroups {
		q.groups, q.pipelines = q.wholeGroups, q.wholeGroups
		q.block = in.InnerSteps * q.pipelineStep
		q.sync(in, f, q.block, in.InnerSteps)
		q.outerSteps = in.Tokens / (in.LocalBatch * q.groups * in.InnerSteps)
		return
	}
	q.pipelines = 1
	if f.variant != Document {
		q.pipelines = max(1, q.effectiveNodes/q.stages) // fractions count
	}
	q.block = q.slots * q.microCompute
	q.outer = q.pipelineStep
	q.outerSteps = in.Tokens / (in.LocalBatch * q.pipelines)
}

// Compute estimates a run, as the page or the document does. The inputs must
// have passed Check.
func Compute(in Inputs, v Variant) Results {
	q := quantify(&in, published(v))
	return q.results(&in)
}

func (q *quantities) results(in *Inputs) Results {
	r := Results{
		Mode: q.label(in), ComputeStepSec: q.step, GlobalCommSec: q.globalSync, RegionalCommSec: q.regionalSync,
		ComputeBlockSec: q.block, Days: q.days, RawDays: q.rawDays, Efficiency: 100 * q.eta,
		GlobalMFU: 100 * q.globalMFU, GlobalHFU: 100 * q.globalHFU,
		IsSharded: q.sharded(), PPStages: q.stages, NumPPGroups: q.wholeGroups, PPGroupMode: q.mode == pipelineGroups,
		PerNodeParams: q.perNodeParams / 1e9, EPReducedMemory: q.epSaved,
		MaxParamsFP16: in.VRAMPerNode / bytesPerParam("FP16"), MaxParamsFP8: in.VRAMPerNode / bytesPerParam("FP8"),
		MaxParamsFP4: in.VRAMPerNode / bytesPerParam("FP4"),
		MaxDays:      q.maxDay, Bottleneck: "Compute", Feasibility: feasible,
	}
	if q.mode == onePipeline {
		r.GlobalCommSec, r.LatencySec = q.transfer, q.latency
	}
	if r.GlobalCommSec+r.LatencySec > r.ComputeBlockSec {
		r.Bottleneck = "Network"
	}
	if !(q.days < q.maxDay) {
		r.Feasibility = "Impractical (>" + strconv.FormatFloat(q.maxDay, 'f', -1, 64) + " days)"
	}
	return r
}

func (q *quantities) sharded() bool { return q.mode == onePipeline || q.mode == pipelineGroups }

// label names the mode as the page does.
func (q *quantities) label(in *Inputs) string {
	label := "Data Parallel (DiLoCo)"
	switch {
	case q.mode == onePipeline:
		label = fmt.Sprintf("PP over WAN (%v stages)", q.stages)
	case q.mode == pipelineGroups:
		label = fmt.Sprintf("PP-Group DiLoCo (%v×%v)", q.stages, q.wholeGroups)
	case q.mode == hierarchical && in.IsMoE:
		return "Hierarchical MoE"
	case q.mode == hierarchical:
		return "Hierarchical DiLoCo"
	case in.IsMoE:
		return "MoE"
	}
	if in.IsMoE {
		label += " + MoE"
	}
	return label
}
