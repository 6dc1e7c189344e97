package estimate

import (
	"cmp"
	"math"
	"slices"
)

// Derivative is the slope of the days over an input, towards the side on which
// they fall, within the mode of the estimate.
type Derivative struct {
	Input      string  `json:"input"`
	Elasticity float64 `json:"elasticity"`    // percent of days for a percent of the input
	PerUnit    float64 `json:"days_per_unit"` // days for a unit of the input
	Task       bool    `json:"task"`          // part of the task, not of the means
}

// derivatives returns the non-zero derivatives, the strongest first, the task's
// own at the end.
func derivatives(in Inputs, f formulas) []Derivative {
	base, all := quantify(&in, f), []Derivative{}
	for _, n := range numbers {
		x := *n.value(&in)
		step := 1e-6 * x
		if n.name == "numNodes" && base.mode == pipelineGroups {
			step = math.Ceil(base.stages * in.NumNodes / base.effectiveNodes) // one pipeline more or less
		}
		gain, slope := 0.0, 0.0
		for _, dx := range []float64{-step, step} {
			if dx == 0 || x+dx < n.least || x+dx > n.most {
				continue
			}
			moved := in
			*n.value(&moved) += dx
			q := quantify(&moved, f)
			if q.mode != base.mode || q.stages != base.stages {
				continue // a jump, not a slope
			}
			if g := (base.days - q.days) / math.Abs(dx); g > gain {
				gain, slope = g, (q.days-base.days)/dx
			}
		}
		if e := slope * x / base.days; math.Abs(e) > 1e-6 {
			all = append(all, Derivative{n.name, e, slope, n.name == "parameters" || n.name == "activeParams" || n.name == "tokens"})
		}
	}
	slices.SortStableFunc(all, func(a, b Derivative) int {
		if a.Task != b.Task {
			if a.Task {
				return 1
			}
			return -1
		}
		return -cmp.Compare(math.Abs(a.Elasticity), math.Abs(b.Elasticity))
	})
	return all
}

// Alternative is another choice of an input that is not a number.
type Alternative struct {
	Field, Value string
	Days         float64
	Mode         string
}

// Alternatives returns the other choices that give fewer days, the best first.
func Alternatives(in Inputs, v Variant) []Alternative {
	var all []Alternative
	now := Compute(in, v).Days
	try := func(field, value string, change func(*Inputs)) {
		other := in
		change(&other)
		if other == in {
			return
		}
		if r := Compute(other, v); r.Days < now*(1-1e-9) {
			all = append(all, Alternative{field, value, r.Days, r.Mode})
		}
	}
	try("streamingEnabled", "true", func(in *Inputs) { in.StreamingEnabled = true })
	try("useHierarchy", "true", func(in *Inputs) { in.UseHierarchy = true })
	try("useHierarchy", "false", func(in *Inputs) { in.UseHierarchy = false })
	for _, p := range []string{"FP16", "FP8", "FP4"} {
		try("precision", p, func(in *Inputs) { in.Precision = p })
	}
	for _, s := range []string{"none", "threshold", "redundancy"} {
		try("stragglerStrategy", s, func(in *Inputs) { in.StragglerStrategy = s })
	}
	if in.IsMoE {
		for _, e := range []string{"none", "regional", "global"} {
			try("expertParallelism", e, func(in *Inputs) { in.ExpertParallelism = e })
		}
	}
	slices.SortStableFunc(all, func(a, b Alternative) int { return cmp.Compare(a.Days, b.Days) })
	return all
}
