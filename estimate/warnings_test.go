package estimate_test

import (
	"slices"
	"strings"
	"testing"

	"testbed/estimate"
)

func codes(e estimate.Estimate) (all []string) {
	for _, w := range e.Warnings {
		all = append(all, w.Code)
	}
	return all
}

// TestGoldenWarnings: the page shows these six, and no others of its own.
func TestGoldenWarnings(t *testing.T) {
	shown := map[string]string{
		"mfu_high": "mfu>0.6", "global_mfu_low": "globalMfu<20% (inefficient run)", "pipeline_groups": "pp-group panel",
		"ep_saved_memory": "EP reduced memory", "too_few_nodes": "insufficient nodes: pure PP over WAN", "over_limit": "infeasible: Impractical (>137 days)",
	}
	for _, c := range readGolden(t).Cases {
		got := codes(estimate.Explain(c.Inputs, estimate.Page))
		for code, text := range shown {
			if slices.Contains(got, code) != slices.Contains(c.Warnings, text) {
				t.Errorf("%s: warnings are %v, the page's %q", c.ID, got, c.Warnings)
			}
		}
	}
}

type change func(*estimate.Inputs)

func big(in *estimate.Inputs)      { in.Parameters = 300e9 }
func huge(in *estimate.Inputs)     { in.Parameters, in.NumNodes = 2e12, 20 }
func small(in *estimate.Inputs)    { in.Parameters = 20e9 }
func regions(in *estimate.Inputs)  { in.UseHierarchy = true }
func unstream(in *estimate.Inputs) { in.StreamingEnabled = false }

func experts(parallelism string) change {
	return func(in *estimate.Inputs) {
		in.IsMoE, in.Parameters, in.ActiveParams, in.ExpertParallelism = true, 400e9, 60e9, parallelism
	}
}

// warned has for each warning inputs that show it and inputs that do not, as
// changes of the defaults.
var warned = map[string]struct {
	yes, no []change
	variant estimate.Variant
}{
	"over_limit":            {yes: nil, no: []change{small, func(in *estimate.Inputs) { in.BandwidthMbps = 1e4 }}},
	"too_few_nodes":         {yes: []change{huge}, no: []change{big}},
	"no_pipeline":           {yes: []change{huge, func(in *estimate.Inputs) { in.NumNodes = 13 }}, no: []change{huge}},
	"pipeline_over_wan":     {yes: []change{big}, no: []change{big, regions}},
	"pipeline_groups":       {yes: []change{big}, no: []change{huge}},
	"memory_exact":          {yes: nil, no: []change{func(in *estimate.Inputs) { in.Parameters = 143.9e9 }}},
	"ep_saved_memory":       {yes: []change{experts("global")}, no: []change{experts("none")}},
	"mfu_high":              {yes: []change{func(in *estimate.Inputs) { in.MFU = 0.61 }}, no: []change{func(in *estimate.Inputs) { in.MFU = 0.6 }}},
	"mfu_low":               {yes: []change{func(in *estimate.Inputs) { in.MFU = 0.29 }}, no: []change{func(in *estimate.Inputs) { in.MFU = 0.3 }}},
	"global_mfu_low":        {yes: nil, no: []change{regions}},
	"regional_sync_hidden":  {yes: []change{regions, func(in *estimate.Inputs) { in.RegionalBandwidth = 100 }}, no: []change{regions}},
	"efficiency_floor":      {yes: []change{func(in *estimate.Inputs) { in.Parameters, in.InnerSteps = 2e6, 1e5 }}, no: nil},
	"inner_steps_untested":  {yes: []change{func(in *estimate.Inputs) { in.InnerSteps = 501 }}, no: []change{func(in *estimate.Inputs) { in.InnerSteps = 500 }}},
	"small_model":           {yes: []change{func(in *estimate.Inputs) { in.Parameters = 12.9e9 }}, no: []change{func(in *estimate.Inputs) { in.Parameters = 13e9 }}},
	"hidden_dimension":      {yes: []change{huge}, no: []change{big}},
	"pipeline_compute":      {yes: []change{big}, no: nil},
	"pipeline_forward_only": {yes: []change{big}, no: nil, variant: estimate.Document},
	"groups_equal":          {yes: []change{big}, no: []change{huge}},
	"fractional_groups":     {yes: []change{huge}, no: []change{regions}},
	"one_node":              {yes: []change{func(in *estimate.Inputs) { in.NumNodes = 1 }}, no: nil},
	"ep_latency_only":       {yes: []change{experts("regional")}, no: []change{experts("none")}},
	"ep_free":               {yes: []change{experts("regional")}, no: []change{experts("regional"), regions}},
	"ep_memory_simple":      {yes: []change{experts("global")}, no: []change{experts("none")}},
	"streaming_memory":      {yes: nil, no: []change{small}},
	"streaming_overheads":   {yes: nil, no: []change{unstream}},
	"regional_compression":  {yes: []change{regions}, no: []change{regions, func(in *estimate.Inputs) { in.Compression = 1 }}},
	"hierarchy_heuristic":   {yes: []change{regions}, no: nil},
	"threshold_penalty":     {yes: []change{func(in *estimate.Inputs) { in.StragglerStrategy = "threshold" }}, no: nil},
	"nodes_equal":           {yes: nil, no: []change{func(in *estimate.Inputs) { in.NumNodes = 1 }}},
	"codes_not_measured":    {yes: nil, no: []change{func(in *estimate.Inputs) { in.Compression = 2 }}, variant: estimate.Measured},
	"beyond_measured":       {yes: nil, no: []change{func(in *estimate.Inputs) { in.NumNodes = 64 }}, variant: estimate.Measured},
	"strategy_not_measured": {yes: []change{func(in *estimate.Inputs) { in.StragglerStrategy = "redundancy" }}, no: nil, variant: estimate.Measured},
	"precision_memory_only": {yes: []change{func(in *estimate.Inputs) { in.Precision = "FP8" }}, no: nil},
}

func TestEveryWarningIsShownAndIsNot(t *testing.T) {
	for _, code := range estimate.Codes() {
		c, ok := warned[code]
		if !ok {
			t.Errorf("%s has no cases", code)
		}
		for i, changes := range [][]change{c.yes, c.no} {
			in, v := estimate.Defaults(), c.variant
			if v == "" {
				v = estimate.Page
			}
			for _, change := range changes {
				change(&in)
			}
			if err := in.Check(); err != nil {
				t.Fatal(err)
			}
			e := estimate.Explain(in, v)
			if v == estimate.Measured {
				e = estimate.ExplainMeasured(estimate.Run{Inputs: in, Further: estimate.DefaultFurther()}, calibrated())
			}
			if got := codes(e); slices.Contains(got, code) != (i == 0) {
				t.Errorf("%s, case %d: warnings are %v", code, i, got)
			}
		}
	}
	if len(warned) != len(estimate.Codes()) {
		t.Errorf("%d warnings have cases, but there are %d", len(warned), len(estimate.Codes()))
	}
}

// TestTheDocumentsForwardPassIsNotThePages: a warning about one variant is not
// given for the other.
func TestTheDocumentsForwardPassIsNotThePages(t *testing.T) {
	in := estimate.Defaults()
	big(&in)
	if slices.Contains(codes(estimate.Explain(in, estimate.Page)), "pipeline_forward_only") {
		t.Error("the page counts both directions, and is said not to")
	}
}

// TestFaultsThatAreMendedAreNotWarnedOf with measured terms.
func TestFaultsThatAreMendedAreNotWarnedOf(t *testing.T) {
	for code, changes := range map[string][]change{
		"pipeline_compute": {big}, "one_node": {func(in *estimate.Inputs) { in.NumNodes = 1 }}, "streaming_overheads": nil, "nodes_equal": nil,
	} {
		r := defaultRun()
		for _, change := range changes {
			change(&r.Inputs)
		}
		if c := estimate.Compare(r, calibrated()); !slices.Contains(codes(c.Page), code) || slices.Contains(codes(c.Measured), code) {
			t.Errorf("%s: the page warns of %v, measured terms of %v", code, codes(c.Page), codes(c.Measured))
		}
	}
}

// TestSlowNodesByStrategy: what slow nodes delay depends on their treatment.
func TestSlowNodesByStrategy(t *testing.T) {
	for strategy, want := range map[string]string{"none": "by 5 % for each doubling", "redundancy": "by 1.5 % for each doubling", "threshold": "delay neither syncs nor computing"} {
		in := estimate.Defaults()
		in.StragglerStrategy = strategy
		warnings := estimate.Explain(in, estimate.Page).Warnings
		i := slices.IndexFunc(warnings, func(w estimate.Warning) bool { return w.Code == "nodes_equal" })
		if i < 0 || !strings.Contains(warnings[i].Text, want) {
			t.Errorf("%s: %v, want %q", strategy, warnings, want)
		}
	}
}

// TestHiddenSyncsNeedStreaming: a rate alone does not hide a sync.
func TestHiddenSyncsNeedStreaming(t *testing.T) {
	for streaming, want := range map[bool]string{true: "instead of 100", false: "instead of 100, together with streamingEnabled=true"} {
		in := estimate.Defaults()
		in.StreamingEnabled = streaming
		rows := estimate.Explain(in, estimate.Page).Answer().Bounds
		if !slices.ContainsFunc(rows, func(r estimate.Row) bool { return r.Remark == want }) {
			t.Errorf("streaming %v: %v, want %q", streaming, rows, want)
		}
	}
}
