package emulated

import (
	"fmt"
	"math"
	"slices"

	"testbed/estimate"
	"testbed/internal/stats"
	"testbed/record"
	"testbed/shaping/fidelity"
)

// Near is the largest error, as a share, of a prediction that counts as
// correct.
const Near = 0.05

// Result is the result of an emulation.
type Result struct {
	Small
	Measurements *estimate.Measurements `json:"measurements,omitempty"` // of the machine that plays
	World        string                 `json:"world"`                  // in which it was played, as in a record.Summary
	Verdicts     []fidelity.Level       `json:"verdicts,omitempty"`     // of real runs
	Round        stats.Estimate         `json:"round_s"`                // over the rounds of all runs except the first of each
	Share        stats.Estimate         `json:"communication_share"`    // of a round, taken by its reduction
	Predictions  []Prediction           `json:"predictions"`
	Terms        []Term                 `json:"terms"`
	Whole        *Whole                 `json:"whole,omitempty"` // with measurements, and without a hierarchy
	Dir          string                 `json:"dir,omitempty"`
}

// Prediction is a prediction for the small run.
type Prediction struct {
	By         string  `json:"by"` // a variant, or simulated
	Round      float64 `json:"round_s"`
	RoundRatio float64 `json:"round_ratio"` // divided by the played round
	Share      float64 `json:"communication_share"`
	ShareRatio float64 `json:"share_ratio"`
}

// Simulated is the name of the prediction by simulating the small run on its
// planned links.
const Simulated = "simulated"

// Term is an assumption, compared with the run.
type Term struct {
	Name     string          `json:"term"`
	What     string          `json:"what"`
	Page     float64         `json:"page"` // the document has the same
	Measured *float64        `json:"measured,omitempty"`
	Played   *stats.Estimate `json:"played,omitempty"` // nil: not tested here
	// Tolerance is the largest error with which the assumption counts as correct.
	// It changes the time that the term is part of by about a twentieth.
	Tolerance float64 `json:"tolerance,omitempty"`
	PageHeld  *bool   `json:"page_held,omitempty"`
	Held      *bool   `json:"measured_held,omitempty"`
}

// Whole is the prediction of measured terms for the run itself, with all its
// nodes: an outer step without overlap, in s.
type Whole struct {
	Page      float64 `json:"page_s"`
	Measured  float64 `json:"measured_s"`
	Corrected float64 `json:"corrected_s"` // Measured, times its error on the small run
}

// round is a played round, in s.
type round struct {
	all, compute, reduce float64 // compute is the time until the last arrival
	control              float64 // beside these
	sent                 float64 // bytes that each node sends
}

// rounds are the rounds of runs, except the first of each run and those with
// missing nodes.
func rounds(nodes float64, runs []record.Summary) (all []round) {
	for _, s := range runs {
		second := 1e6 / s.TimeScale
		for i, r := range s.Rounds {
			if n := float64(len(r.Participants)); i > 0 && n == nodes {
				all = append(all, round{float64(r.End-r.Start) / second, float64(r.Close-r.Start) / second, float64(r.Reduce) / second, float64(r.End-r.Close-r.Reduce) / second, float64(r.BytesSent) / n})
			}
		}
	}
	return all
}

func estimated(all []round, value func(round) float64) *stats.Estimate {
	values := make([]float64, len(all))
	for i, r := range all {
		values[i] = value(r)
	}
	e := stats.Estimated(values)
	return &e
}

// Judge compares the estimates of a small run with the played runs: real ones
// if there are any, else simulated ones. Invalid real runs count only if there
// are no others. m may be nil. It is an error if no round had all nodes.
func Judge(s Small, m *estimate.Measurements, simulated, played []record.Summary) (*Result, error) {
	r := &Result{Small: s, Measurements: m, World: record.Real}
	in := &s.Run.Inputs
	for _, p := range played {
		r.Verdicts = append(r.Verdicts, p.Fidelity.Verdict)
	}
	sim := rounds(in.NumNodes, simulated)
	usable := slices.DeleteFunc(slices.Clone(played), func(p record.Summary) bool { return p.Fidelity.Verdict == fidelity.Invalid })
	all := rounds(in.NumNodes, usable)
	switch {
	case len(usable) == 0 && len(played) > 0:
		all = rounds(in.NumNodes, played)
	case len(played) == 0:
		r.World, all = record.Sim, sim
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("judging the emulated run: no round after the first one had all of its %v nodes; repeat the run on a machine that does nothing else", in.NumNodes)
	}
	took := func(r round) float64 { return r.all }
	share := func(r round) float64 { return r.reduce / r.all }
	r.Round, r.Share = *estimated(all, took), *estimated(all, share)
	predict := func(by string, round, share float64) {
		r.Predictions = append(r.Predictions, Prediction{by, round, round / r.Round.Median, share, share / r.Share.Median})
	}
	ofResults := func(v estimate.Variant, e estimate.Results) {
		predict(string(v), outer(e), syncing(e)/outer(e))
	}
	ofResults(estimate.Page, estimate.Compute(*in, estimate.Page))
	ofResults(estimate.Document, estimate.Compute(*in, estimate.Document))
	if m != nil {
		small := estimate.ComputeMeasured(s.Run, m)
		ofResults(estimate.Measured, small)
		if !in.UseHierarchy { // one reduction is played, not the law's
			r.Whole = whole(s, *m, r.Round.Median/outer(small))
		}
	}
	if len(played) > 0 && len(sim) > 0 {
		predict(Simulated, estimated(sim, took).Median, estimated(sim, share).Median)
	}
	r.Terms = terms(s, m, all, r.Round.Median)
	return r, nil
}

// outer is the time of an outer step without overlap.
func outer(e estimate.Results) float64 { return e.ComputeBlockSec + syncing(e) }

// syncing is the part of an outer step that is not computing.
func syncing(e estimate.Results) float64 { return e.RegionalCommSec + e.GlobalCommSec }

// whole is the prediction for the run itself, whose nodes have processors of
// their own.
func whole(s Small, m estimate.Measurements, off float64) *Whole {
	m.ReduceByte = 0
	of := s.Of
	of.Inputs = waiting(of.Inputs)
	measured := outer(estimate.ComputeMeasured(of, &m))
	return &Whole{outer(estimate.Compute(of.Inputs, estimate.Page)), measured, measured * off}
}

// terms are the assumptions of an estimate, each compared with rounds of so
// many seconds.
func terms(s Small, m *estimate.Measurements, all []round, took float64) (list []Term) {
	in := &s.Run.Inputs
	page := estimate.Compute(*in, estimate.Page)
	measured := func(string) *float64 { return nil }
	var said estimate.Results
	if m != nil {
		said = estimate.ComputeMeasured(s.Run, m)
		changes := estimate.Compare(s.Run, *m).Changes
		measured = func(term string) *float64 {
			for _, c := range changes {
				if c.Term == term {
					return &c.Measured
				}
			}
			return nil
		}
	}
	given := func(x float64) *float64 {
		if m == nil {
			return nil
		}
		return &x
	}
	add := func(name, what string, page float64, measured *float64, tolerance float64, value func(round) float64) {
		t := Term{Name: name, What: what, Page: page, Measured: measured}
		if value != nil {
			t.Played = estimated(all, value)
			t.Tolerance = tolerance
			if tolerance == 0 {
				t.Tolerance = Near * t.Played.Median
			}
			t.PageHeld = t.held(&page)
			t.Held = t.held(measured)
		}
		list = append(list, t)
	}
	n := in.NumNodes
	levels, volume := 1.0, 2*(n-1)/n
	lawful := volume
	if in.UseHierarchy {
		levels, lawful = 2, 2*(in.NodesPerGroup-1)/in.NodesPerGroup+2*(n/in.NodesPerGroup-1)/(n/in.NodesPerGroup)
	}
	code := 2 / in.Compression // bytes
	add("volume", "vectors that a node sends in a sync", 2*levels, given(lawful), 0, func(r round) float64 { return r.sent / (code * in.Parameters) })
	add("bytes", "bits on the link for each parameter sent (data are counted, packet headers are computed)", 8*code, measured("bytes"), 0,
		func(r round) float64 { return 8 * r.sent * estimate.FramesPerData / (volume * in.Parameters) })
	delay, own := in.LatencyMs/2000, estimate.Measurements{Efficiency: 1}
	if m != nil {
		own = *m
		delay += m.Hop
	}
	what, shown := "link delays in a sync that no transfer hides", func(r round) float64 {
		transfer := 8 * r.sent * estimate.FramesPerData / (in.BandwidthMbps * 1e6 * own.Efficiency)
		return (r.reduce - transfer - own.Reduce - own.ReduceByte*n*r.sent) / delay
	}
	late := measured("pieces")
	if in.UseHierarchy || delay < Near*took/10 {
		shown = nil
	}
	if in.UseHierarchy { // its levels have delays of their own
		late = nil
	}
	add("delays", what, 2*levels, late, Near*took/delay, shown)
	add("sync", "time of a sync, s", syncing(page), given(syncing(said)), 0, func(r round) float64 { return r.reduce })
	f := 1 + 0.05*math.Log2(n)
	if m != nil && !in.UseHierarchy {
		add("f on syncs", "factor by which slow nodes delay syncs", f, given(1), 0, func(r round) float64 { return r.reduce / syncing(said) })
	}
	block := page.ComputeBlockSec
	add("f on computing", "factor by which slow nodes delay computing", 1, measured("waiting"), 0, func(r round) float64 { return r.compute / block })
	add("coefficient", "straggler coefficient, where slow nodes delay computing", 0.05, measured("spread"), Near/math.Log2(n),
		func(r round) float64 { return (r.compute/block - 1) / math.Log2(n) })
	add("control", "other time of a round, s: reports, orders, the outer step", 0, given(0), took/100,
		func(r round) float64 { return r.control })
	if s.Of.StreamingEnabled {
		hidden := given(min(1, s.Of.Fragments*s.Of.OverlapSteps/s.Of.InnerSteps))
		add("overlap", "share of the computing that hides a sync", 1, hidden, 0, nil)
	}
	return list
}

// held reports whether a value agrees with the run: within its interval, or
// within the tolerance.
func (t *Term) held(x *float64) *bool {
	if x == nil {
		return nil
	}
	is := math.Abs(*x-t.Played.Median) <= t.Tolerance
	if i := t.Played.Interval; i != nil {
		is = is || i.Contains(*x)
	}
	return &is
}
