// Package emulated scales an estimated run down to a small run that can be
// played, and compares the estimates of the small run with the result. The
// package plays nothing itself.
package emulated

import (
	"fmt"
	"math"

	"testbed/estimate"
	"testbed/internal/errs"
)

// Limits of a small round: long compared with the lateness of timers, short
// compared with a person's patience, and light enough for two processors.
const (
	shortestRound = 0.3 // s
	longestRound  = 3
	chosenRound   = 1 // of runs whose rounds are outside the limits
	mostNodes     = 16
	leastMbps     = 20
	mostMbps      = 200
	allMbps       = 600    // of all nodes together, if the run has such links
	chosenMbps    = 240    // of all nodes together, otherwise: bytes cost processor time
	leastValues   = 20_000 // a smaller vector would be mostly headers
	leastStep     = 1e-3   // s; shorter steps would be mostly lateness
	steps         = 2      // into which the inner steps of a round are folded
	tokens        = 1e6    // of a step; any number, with a matching speed
)

// Small is a run with its small version: the same transfer and latency per
// second of computing, on fewer nodes if necessary.
type Small struct {
	Of    estimate.Run `json:"of"`
	Run   estimate.Run `json:"run"`
	Scale float64      `json:"scale"` // seconds here per second of the run
	// Notes list the differences from the run, a sentence each.
	Notes []string `json:"notes"`
}

func refuse(field, format string, args ...any) (Small, error) {
	return Small{}, errs.Fieldf(field, format, args...)
}

// Shrink scales a run down. The run must have passed Check. A run without a
// small counterpart is refused with an *errs.FieldError.
func Shrink(r estimate.Run) (Small, error) {
	in := waiting(r.Inputs)
	page := estimate.Compute(in, estimate.Page)
	nodes, group := shape(in)
	switch {
	case page.IsSharded:
		return refuse("vramPerNode", "is %v GB, too little for the model: runs with pipelines cannot be emulated; emulate a smaller model, or nodes with more memory", in.VRAMPerNode)
	case in.NumNodes < 2:
		return refuse("numNodes", "is %v: one node has no peer to sync with, so there is nothing to emulate; give at least 2", in.NumNodes)
	case in.UseHierarchy && (in.NodesPerGroup < 2 || nodes < 2*group):
		return refuse("nodesPerGroup", "is %v of %v nodes: a hierarchy needs two groups of two nodes or more; change nodesPerGroup or numNodes, or leave useHierarchy out", in.NodesPerGroup, in.NumNodes)
	}
	transfer := 16 * in.Parameters / in.Compression / (in.BandwidthMbps * 1e6) // of a vector, s
	ring := 2 * (nodes - 1) * (transfer/nodes + in.LatencyMs/2000)
	scale := 1.0
	round := page.ComputeBlockSec + max(page.RegionalCommSec+page.GlobalCommSec, ring)
	sends := 2 * (nodes - 1) / nodes * transfer / round // share of the time
	if round < shortestRound || round > longestRound {
		scale = chosenRound / round
	}
	inner := in.InnerSteps
	if in.UseHierarchy {
		inner *= in.RegionalSteps
	}
	folded := min(steps, inner)
	step := math.Round(1e6*scale*page.ComputeBlockSec/folded) / 1e6
	if step < leastStep {
		return refuse("bandwidthMbps", "is %v: a run with these links computes for only %.2g %% of its time, too little to emulate; give more bandwidth", in.BandwidthMbps, 100*page.ComputeBlockSec/round)
	}
	// Steps are whole microseconds, and values whole numbers. The other quantities
	// follow.
	scale = step * folded / page.ComputeBlockSec
	s := Small{Of: r, Run: r, Scale: scale}
	small := &s.Run.Inputs
	*small = in
	small.Compression = 2
	if in.Compression == 4 {
		small.Compression = 4
	}
	bits := 16 / small.Compression // of a code
	transfer *= scale
	rate := in.BandwidthMbps
	if rate < leastMbps || rate > min(mostMbps, max(leastMbps, allMbps/nodes)) {
		rate = max(leastMbps, chosenMbps/nodes)
	}
	small.Parameters = max(leastValues, math.Round(transfer*rate*1e6/bits))
	small.BandwidthMbps = math.Round(small.Parameters*bits/transfer) / 1e6
	if small.BandwidthMbps > mostMbps+1 {
		return refuse("bandwidthMbps", "is %v: a run with these links sends for only %.2g %% of its time, too little to emulate; give less bandwidth, or fewer innerSteps", in.BandwidthMbps, 100*sends)
	}
	latency := func(ms float64) float64 { return 2 * math.Round(1e6*scale*ms/2) / 1e6 } // whole nanoseconds one way
	small.LatencyMs, small.RegionalLatency = latency(in.LatencyMs), latency(in.RegionalLatency)
	small.NumNodes, small.NodesPerGroup, small.RegionalSteps = nodes, group, 1
	small.RegionalBandwidth = small.BandwidthMbps // an access link has one rate, whoever the peer is
	small.InnerSteps, small.LocalBatch, small.MFU, small.PFLOPSPerNode = folded, tokens, 1, 6*small.Parameters*tokens/step/1e15
	small.IsMoE, small.ExpertParallelism, small.Precision, small.VRAMPerNode = false, "none", "FP16", 1e9
	s.Run.StepSpread *= math.Sqrt(folded / inner)
	s.Notes = notes(&r.Inputs, small)
	return s, nil
}

// waiting returns the inputs of the run as the testbed's workers would perform
// it: all wait for each other, and for each sync.
func waiting(in estimate.Inputs) estimate.Inputs {
	in.StreamingEnabled, in.StragglerStrategy = false, "none"
	return in
}

// shape returns the numbers of small nodes, in all and per group.
func shape(in estimate.Inputs) (nodes, group float64) {
	if !in.UseHierarchy {
		return min(in.NumNodes, mostNodes), in.NodesPerGroup
	}
	group, groups := in.NodesPerGroup, math.Floor(in.NumNodes/in.NodesPerGroup)
	if group*groups > mostNodes {
		group = min(group, max(4, math.Floor(mostNodes/groups)))
		groups = min(groups, math.Floor(mostNodes/group))
	}
	return group * groups, group
}

// notes list the parts of the run that the small run changes.
func notes(of, small *estimate.Inputs) (all []string) {
	note := func(applies bool, format string, args ...any) {
		if applies {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	note(small.NumNodes < of.NumNodes, "%v nodes are played in place of %v: at most %v can be played%s", small.NumNodes, of.NumNodes, mostNodes, map[bool]string{true: ", in whole groups"}[of.UseHierarchy])
	note(of.StreamingEnabled, "syncs do not overlap computing in the emulated run and in its predictions, because the testbed's workers wait for syncs")
	note(of.StragglerStrategy != "none", "all workers wait for the slowest one: stragglerStrategy %s is not played", of.StragglerStrategy)
	note(of.IsMoE && of.ExpertParallelism != "none", "the exchange between experts is not played; its time is part of a step")
	note(of.UseHierarchy, "each global sync is one reduction within groups and between them")
	note(of.UseHierarchy && of.RegionalSteps > 1, "the regional syncs before each global sync are left out (number: %v)", of.RegionalSteps-1)
	note(of.UseHierarchy && of.RegionalBandwidth != of.BandwidthMbps, "a node's link has the rate bandwidthMbps for all its peers; regionalBandwidth is not played")
	note(of.LatencyMs > 0 && small.LatencyMs < 2*leastDelay, "the one-way delay is %.3g ms, which is less than the delay that a machine adds", small.LatencyMs/2)
	return all
}

// leastDelay, in ms, is the one-way delay below which a hop's own cost is larger.
const leastDelay = 0.25
