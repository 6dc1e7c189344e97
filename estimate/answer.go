package estimate

import (
	"fmt"
	"math"
	"strings"
)

// Answer is an estimate in words.
type Answer struct {
	Variant    Variant  `json:"variant"`
	Days       float64  `json:"days"`
	Feasible   bool     `json:"feasible"`
	Headline   string   `json:"headline"` // how long, and whether that is an acceptable time for a run
	About      string   `json:"about"`    // mode, model and hardware
	Bottleneck string   `json:"bottleneck"`
	Bounds     []Row    `json:"bounds"`  // components of the days
	Changes    []Row    `json:"changes"` // changes that give fewer days, the most effective first
	Warnings   []string `json:"warnings"`
}

// Row is a figure with its name and a remark.
type Row struct {
	What   string `json:"what"`
	Value  string `json:"value"`
	Remark string `json:"remark"`
}

// Answer puts an estimate in words.
func (e Estimate) Answer() Answer {
	r := e.Results
	verdict := "within"
	if !r.feasible() {
		verdict = "beyond"
	}
	years := ""
	if r.Days > 2*365 {
		years = " (" + trim(r.Days/365) + " years)"
	}
	a := Answer{
		Variant: e.Variant, Days: r.Days, Feasible: r.feasible(), Bottleneck: strings.ToLower(r.Bottleneck),
		Headline: fmt.Sprintf("%s days%s, %s the limit of %s days for a run", trim(r.Days), years, verdict, trim(r.MaxDays)),
		About:    fmt.Sprintf("%s · %s · %s·10⁹ parameters · %s·10¹² tokens · %s", r.Mode, nodes(e.Inputs.NumNodes), trim(e.Inputs.Parameters/1e9), trim(e.Inputs.Tokens/1e12), e.Variant.how()),
		Bounds:   e.bounds(), Changes: e.changes(), Warnings: []string{},
	}
	for _, x := range e.Warnings {
		a.Warnings = append(a.Warnings, x.Text)
	}
	return a
}

func (v Variant) how() string {
	if v == Measured {
		return "with measured terms"
	}
	return "by the formulas of the variant " + string(v)
}

func (e Estimate) bounds() (rows []Row) {
	add := func(what, value, remark string) { rows = append(rows, Row{what, value, remark}) }
	r, in := e.Results, e.Inputs
	sync := r.GlobalCommSec + r.LatencySec
	if r.IsSharded && !r.PPGroupMode {
		add("computing in a step", trim(r.ComputeBlockSec)+" s", trim(r.PPStages)+" stages, one after the other")
		add("handoffs in a step", trim(sync)+" s", fmt.Sprintf("transfer %s s, latency %s s", trim(r.GlobalCommSec), trim(r.LatencySec)))
	} else {
		what := "computing between syncs"
		if r.PPGroupMode {
			what = "steps between syncs, handoffs included"
		}
		add(what, trim(r.ComputeBlockSec)+" s", fmt.Sprintf("inner steps: %s, each with %s s of computing", trim(in.InnerSteps), trim(r.ComputeStepSec)))
		if r.RegionalCommSec > 0 {
			add("a regional sync", trim(r.RegionalCommSec)+" s", "regional syncs for each global sync: "+trim(in.RegionalSteps))
		}
		how := "computing waits for the sync"
		if in.StreamingEnabled {
			how = "while computing goes on"
		}
		add("a sync", trim(sync)+" s", how)
		if rate := hidingRate(e); r.Bottleneck == "Network" && rate > 0 {
			instead := "instead of " + trim(in.BandwidthMbps)
			if !in.StreamingEnabled {
				instead += ", together with streamingEnabled=true"
			}
			add("rate that would hide a sync", trim(rate)+" Mbit/s", instead)
		}
	}
	add("learning", trim(r.Efficiency)+" %", fmt.Sprintf("of what synchronous training learns from each token; at 100 %%: %s days", trim(r.RawDays)))
	add("use of the nodes", trim(r.GlobalMFU)+" %", "MFU over the whole run")
	return rows
}

// hidingRate is the rate, in Mbit/s, at which a sync takes as long as the
// computing between two syncs. It is 0 if the sync's latency alone takes
// longer, or depends on the rate as well. It is also 0 with measured terms, in
// which a sync is not proportional to the rate.
func hidingRate(e Estimate) float64 {
	if e.Variant == Measured {
		return 0
	}
	q := quantify(&e.Inputs, published(e.Variant))
	if q.sharded() && !e.Inputs.UseHierarchy {
		return 0
	}
	left := q.block/q.fGlobal - e.Inputs.LatencyMs/1000
	if left <= 0 {
		return 0
	}
	return 2 * q.volumeBits / left / 1e6
}

// shownChanges is the number of slopes, and of choices, that are shown.
// leastShown is the weakest slope shown, in percent per percent.
const (
	shownChanges = 6
	leastShown   = 1e-3
)

func (e Estimate) changes() []Row {
	rows := []Row{}
	for i, d := range e.Derivatives {
		if i == shownChanges || d.Task || math.Abs(d.Elasticity) < leastShown {
			break
		}
		direction := "more"
		if d.Elasticity > 0 {
			direction = "less"
		}
		rows = append(rows, Row{
			fmt.Sprintf("1 %% %s %s", direction, d.Input),
			"−" + trim(math.Abs(d.Elasticity)*e.Results.Days/100) + " days", "−" + trim(math.Abs(d.Elasticity)) + " %",
		})
	}
	if e.Variant == Measured {
		return rows // other choices are computed as published
	}
	for i, a := range Alternatives(e.Inputs, e.Variant) {
		if i == shownChanges {
			break
		}
		rows = append(rows, Row{a.Field + ": " + a.Value, trim(a.Days) + " days", a.Mode})
	}
	return rows
}

// Replaced shows the effect of each measured term on the page's days.
func (c Comparison) Replaced() (rows []Row) {
	for _, x := range c.Changes {
		rows = append(rows, Row{x.Term + ": " + x.What, signed(x.DaysChange) + " days", trim(x.Page) + " → " + trim(x.Measured)})
	}
	return rows
}
