package report

import (
	"fmt"
	"io"

	"testbed/report/record"
	"testbed/runlog"
	"testbed/scenarios"
	"testbed/stats"
)

// Statistics is what the repeats of a comparison allow to be said. Only pairs
// in which every run was complete count.
type Statistics struct {
	// Speedup has the ratios of the pairs, by world ("sim", "real").
	Speedup map[string]stats.Estimate `json:"speedup"`
	// PredictionError has the errors of the pairs, by policy.
	PredictionError map[string]stats.Estimate `json:"prediction_error"`
	// LinksPredictionError has those of the simulator on the links of the plan.
	LinksPredictionError map[string]stats.Estimate `json:"links_prediction_error,omitempty"`
	// Finding is what the speed-up shows, by world: one policy is faster, or
	// "no difference shown"; empty without an interval.
	Finding map[string]string `json:"finding"`
	// LeftOut counts the pairs with an incomplete run.
	LeftOut int `json:"left_out,omitempty"`
}

// complete says whether both runs of the pair did all their outer steps.
func (pair Pair) complete() bool {
	return pair[scenarios.Baseline].Complete && pair[scenarios.Straggler].Complete
}

// paired is a pair of measured runs with the simulated pair that has the same
// seed, on churn's network and on the links of the plan. Each may be empty.
type paired struct {
	real, sim, links Pair
	again            bool // the simulated pair stands beside another measured one, too
}

// pairs are the runs under both policies that have their seed in common, with
// the simulated ones beside them.
func pairs(rec *record.Record, world string) (all []paired) {
	simBase, simOther := rec.Of(runlog.Sim, scenarios.Baseline), rec.Of(runlog.Sim, scenarios.Straggler)
	others := rec.Of(world, scenarios.Straggler)
	seen := map[uint64]int{}
	for _, base := range rec.Of(world, scenarios.Baseline) {
		n := seen[base.Seed]
		seen[base.Seed]++
		other := record.Seeded(others, base.Seed, n)
		if other == nil {
			continue
		}
		var p paired
		if world == runlog.Real {
			p.again = n > 0
			p.real = Pair{scenarios.Baseline: base.Summary, scenarios.Straggler: other.Summary}
			n = 0
		}
		a, b := record.Seeded(simBase, base.Seed, n), record.Seeded(simOther, base.Seed, n)
		if a != nil && b != nil {
			p.sim = Pair{scenarios.Baseline: a.Summary, scenarios.Straggler: b.Summary}
		}
		all = append(all, p)
	}
	return all
}

// statistics compares pair by pair.
func statistics(pairs []paired) Statistics {
	s := Statistics{PredictionError: map[string]stats.Estimate{}, Finding: map[string]string{}}
	ratios, errors, onLinks := map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
	for _, pair := range pairs {
		real, sim := pair.real, pair.sim
		if sim.complete() && !pair.again {
			ratios["sim"] = append(ratios["sim"], sim.speedup())
		}
		if len(real) == 0 {
			continue
		}
		if !real.complete() {
			s.LeftOut++
			continue
		}
		ratios["real"] = append(ratios["real"], real.speedup())
		for _, name := range scenarios.PolicyNames {
			if e, ok := predictionError(sim[name], real[name]); ok {
				errors[name] = append(errors[name], e)
			}
			if e, ok := predictionError(pair.links[name], real[name]); ok {
				onLinks[name] = append(onLinks[name], e)
			}
		}
	}
	s.Speedup = map[string]stats.Estimate{"sim": stats.Estimated(ratios["sim"]), "real": stats.Estimated(ratios["real"])}
	for world, e := range s.Speedup {
		s.Finding[world] = e.Finding(scenarios.Straggler+" is faster", scenarios.Baseline+" is faster")
	}
	for _, name := range scenarios.PolicyNames {
		s.PredictionError[name] = stats.Estimated(errors[name])
		if len(onLinks[name]) > 0 {
			if s.LinksPredictionError == nil {
				s.LinksPredictionError = map[string]stats.Estimate{}
			}
			s.LinksPredictionError[name] = stats.Estimated(onLinks[name])
		}
	}
	return s
}

// predictionError is (simulated − measured) / measured wall-clock, of complete
// runs.
func predictionError(sim, real runlog.Summary) (e float64, ok bool) {
	if !sim.Complete || real.WallClock <= 0 {
		return 0, false
	}
	return float64(sim.WallClock-real.WallClock) / float64(real.WallClock), true
}

// write says what the repeats show.
func (s Statistics) write(out io.Writer) {
	e := s.Speedup["real"]
	if s.LeftOut > 0 {
		fmt.Fprintf(out, "left out of the statistics: %d with an incomplete run\n", s.LeftOut)
	}
	if e.Interval == nil {
		if e.N <= 1 {
			return // nobody asked for more
		}
		fmt.Fprintf(out, "no interval of the speed-up: %s (--repeat)\n", e.Why)
		return
	}
	fmt.Fprintf(out, "measured: %s; speed-up %.3f× (%.3f× to %.3f×, %.3g %% interval of the median of %d pairs)\n",
		s.Finding["real"], e.Median, e.Interval.Low, e.Interval.High, 100*e.Interval.Level, e.N)
	if sim := s.Speedup["sim"]; sim.Interval != nil {
		fmt.Fprintf(out, "simulated with the same seeds: %s; speed-up %.3f× (%.3f× to %.3f×)\n", s.Finding["sim"], sim.Median, sim.Interval.Low, sim.Interval.High)
	}
	for _, name := range scenarios.PolicyNames {
		if e := s.PredictionError[name]; e.Interval != nil {
			fmt.Fprintf(out, "simulator's error, %s: %s\n", name, percentText(e))
		}
		if e := s.LinksPredictionError[name]; e.Interval != nil {
			fmt.Fprintf(out, "on planned links, %s: %s\n", name, percentText(e))
		}
	}
}
