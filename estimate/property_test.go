package estimate_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"testbed/estimate"
	"testbed/internal/rapidtest"
)

// inputs draws inputs of all modes.
func inputs(t *rapid.T) estimate.Inputs {
	between := func(name string, least, most float64) float64 {
		return math.Exp(rapid.Float64Range(math.Log(least), math.Log(most)).Draw(t, name))
	}
	whole := func(name string, least, most int) float64 {
		return float64(rapid.IntRange(least, most).Draw(t, name))
	}
	in := estimate.Defaults()
	in.Parameters, in.Tokens = between("parameters", 1e8, 5e12), between("tokens", 1e9, 1e14)
	in.IsMoE, in.MoELayers = rapid.Bool().Draw(t, "isMoE"), whole("moeLayers", 0, 100)
	in.ActiveParams = in.Parameters * between("active", 0.02, 1)
	in.ExpertParallelism = rapid.SampledFrom([]string{"none", "regional", "global"}).Draw(t, "expertParallelism")
	in.NumNodes, in.NodesPerGroup = whole("numNodes", 1, 500), whole("nodesPerGroup", 1, 64)
	in.PFLOPSPerNode, in.VRAMPerNode, in.MFU = between("pflops", 0.05, 500), between("vram", 16, 1e5), between("mfu", 0.05, 1)
	in.BandwidthMbps, in.LatencyMs = between("bandwidth", 1, 1e5), between("latency", 0.1, 1000)
	in.RegionalBandwidth, in.RegionalLatency = between("regionalBandwidth", 1, 1e6), between("regionalLatency", 0.1, 1000)
	in.UseHierarchy, in.RegionalSteps = rapid.Bool().Draw(t, "useHierarchy"), whole("regionalSteps", 1, 64)
	in.InnerSteps, in.Compression = whole("innerSteps", 1, 1000), between("compression", 0.5, 200)
	in.LocalBatch, in.MicroBatches, in.PPCompression = between("localBatch", 1e3, 1e7), whole("microBatches", 1, 64), between("ppCompression", 0.5, 20)
	in.Precision = rapid.SampledFrom([]string{"FP16", "FP8", "FP4"}).Draw(t, "precision")
	in.StreamingEnabled = rapid.Bool().Draw(t, "streaming")
	in.StragglerStrategy = rapid.SampledFrom([]string{"none", "threshold", "redundancy"}).Draw(t, "strategy")
	if err := in.Check(); err != nil {
		t.Fatal(err)
	}
	return in
}

func variant(t *rapid.T) estimate.Variant {
	return rapid.SampledFrom([]estimate.Variant{estimate.Page, estimate.Document}).Draw(t, "variant")
}

func TestMoreBandwidthNeverCostsDays(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		in, v := inputs(t), variant(t)
		before := estimate.Compute(in, v).Days
		in.BandwidthMbps *= rapid.Float64Range(1, 100).Draw(t, "more")
		in.RegionalBandwidth *= rapid.Float64Range(1, 100).Draw(t, "more in the region")
		if after := estimate.Compute(in, v).Days; after > before*(1+tolerance) {
			t.Fatalf("%v days became %v", before, after)
		}
	})
}

func TestStreamingIsBetweenTheLongerAndBoth(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		in, v := inputs(t), variant(t)
		in.StreamingEnabled = true
		streamed := estimate.Explain(in, v)
		in.StreamingEnabled = false
		if plain := estimate.Compute(in, v).Days; streamed.Results.Days > plain*(1+tolerance) {
			t.Fatalf("%v days without streaming, %v with it", plain, streamed.Results.Days)
		}
		r, longest := streamed.Results, 0.0
		if !r.IsSharded || r.PPGroupMode {
			longest = max(r.ComputeBlockSec, r.GlobalCommSec)
		}
		if outer := term(t, streamed, "T_outer"); outer < longest*(1-tolerance) {
			t.Fatalf("an outer step takes %v s, less than the longer of computing (%v) and a sync (%v)", outer, r.ComputeBlockSec, r.GlobalCommSec)
		}
	})
}

func TestTwiceTheTokensTakeTwiceTheDays(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		in, v := inputs(t), variant(t)
		once := estimate.Compute(in, v).Days
		in.Tokens *= 2
		if twice := estimate.Compute(in, v).Days; !near(twice, 2*once) {
			t.Fatalf("%v days became %v", once, twice)
		}
	})
}

// differ says whether page and document may disagree: about activations and
// about hierarchy in pipelines, about parts of pipelines, and about expert
// parallelism where the model fits without it or regions have no links.
func differ(in estimate.Inputs, r estimate.Results) bool {
	spread := in.IsMoE && in.ExpertParallelism != "none"
	fits := in.Parameters*map[string]float64{"FP16": 16, "FP8": 14, "FP4": 13}[in.Precision] <= in.VRAMPerNode*1e9
	switch {
	case spread && fits, spread && in.ExpertParallelism == "regional" && !in.UseHierarchy:
		return true
	case !r.IsSharded:
		return false
	}
	effective := in.NumNodes
	if in.StragglerStrategy == "redundancy" {
		effective /= 1.1
	}
	return in.PPCompression != 2 || in.UseHierarchy || !r.PPGroupMode && effective > r.PPStages
}

func TestVariantsDifferOnlyWhereTheyMay(t *testing.T) {
	var same, other int
	rapidtest.Check(t, func(t *rapid.T) {
		in := inputs(t)
		if rapid.Bool().Draw(t, "activations alike") {
			in.PPCompression = 2
		}
		page, document := estimate.Compute(in, estimate.Page), estimate.Compute(in, estimate.Document)
		if differ(in, page) {
			other++
			return
		}
		same++
		if page != document {
			t.Fatalf("page\n%+v\ndocument\n%+v", page, document)
		}
	})
	if same == 0 || other == 0 {
		t.Errorf("%d inputs compared, %d left out; want some of both", same, other)
	}
}

// TestTermsExplainTheResults: what the terms say is what was computed, without
// a name twice.
func TestTermsExplainTheResults(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		e := estimate.Explain(inputs(t), variant(t))
		if e.Results != estimate.Compute(e.Inputs, e.Variant) {
			t.Fatal("an explained estimate is another one")
		}
		for _, x := range e.Terms {
			if x.Value != term(t, e, x.Name) || x.Formula == "" || x.Place == "" || math.IsNaN(x.Value) || math.IsInf(x.Value, 0) {
				t.Fatalf("term %+v", x)
			}
		}
		days := term(t, e, "outer_steps") * term(t, e, "T_outer") / 86400 / term(t, e, "eta")
		if !near(days, e.Results.Days) || !near(term(t, e, "T_comp"), e.Results.ComputeStepSec) {
			t.Fatalf("the terms make %v days, the result is %v", days, e.Results.Days)
		}
	})
}

type fataler interface{ Fatalf(string, ...any) }

func term(t fataler, e estimate.Estimate, name string) float64 {
	for _, x := range e.Terms {
		if x.Name == name {
			return x.Value
		}
	}
	t.Fatalf("there is no term %s among %+v", name, e.Terms)
	return 0
}

// TestDerivativesPredictSmallChanges in both directions of smooth inputs.
func TestDerivativesPredictSmallChanges(t *testing.T) {
	in := estimate.Defaults()
	e := estimate.Explain(in, estimate.Page)
	if len(e.Derivatives) == 0 || e.Derivatives[0].Task || !e.Derivatives[len(e.Derivatives)-1].Task {
		t.Fatalf("derivatives %+v: want what can be changed first, the task last", e.Derivatives)
	}
	for _, d := range e.Derivatives {
		if d.Input == "bandwidthMbps" {
			in.BandwidthMbps *= 1.001
			got := estimate.Compute(in, estimate.Page).Days
			if want := e.Results.Days + d.PerUnit*0.1; math.Abs(got-want) > 1e-3 {
				t.Errorf("0.1 Mbit/s more make %v days, predicted %v", got, want)
			}
			return
		}
	}
	t.Error("the default run does not depend on bandwidthMbps")
}
