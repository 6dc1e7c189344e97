package report

import (
	"fmt"
	"io"
	"slices"

	"testbed/internal/stats"
	"testbed/record"
	"testbed/report/runs"
)

// Statistics has the results of a comparison's repeats. Only complete runs
// count, paired with complete ones of the same seed.
type Statistics struct {
	// Two policies: the ratio of their wall-clocks, by world.
	Speedup map[string]stats.Estimate `json:"speedup,omitzero"`
	// More policies: this ratio by policy and world.
	Speedups map[string]map[string]stats.Estimate `json:"speedups,omitempty"`
	// The simulator's relative error, by policy.
	PredictionError map[string]stats.Estimate `json:"prediction_error,omitzero"`
	// `prediction_error` of the simulation on the planned links.
	LinksPredictionError map[string]stats.Estimate `json:"links_prediction_error,omitempty"`
	// By world, as in `comparisons[].finding`.
	Finding map[string]string `json:"finding,omitzero"`
	// More policies: the findings by policy and world.
	Findings map[string]map[string]string `json:"findings,omitempty"`
	// The number of seeds with an incomplete run. Estimates contain only pairs of
	// complete runs.
	LeftOut int `json:"left_out,omitempty"`
}

// matched are the runs with one seed, by world and policy. A world or a policy
// may be missing.
type matched struct {
	runs  map[string]Set
	again bool // the simulated runs also belong to other measured ones
}

// count reports whether a run counts: it is complete, and so is a run that it
// is compared with.
func (set Set) count(policies []string, name string) bool {
	if name != policies[0] || len(policies) == 1 {
		return set[policies[0]].Complete && set[name].Complete
	}
	return set[name].Complete && slices.ContainsFunc(policies[1:], func(other string) bool { return set[other].Complete })
}

// incomplete reports whether a run of the set did not do all its outer steps.
func (set Set) incomplete() bool {
	for _, sum := range set {
		if !sum.Complete {
			return true
		}
	}
	return false
}

// matchRuns groups the runs of a record by seed. The first policy must have a
// run in the world for each seed.
func matchRuns(rec *runs.Record, policies []string, world string) (all []matched) {
	played := map[string]map[string][]runs.Run{}
	for _, w := range worlds {
		played[w] = map[string][]runs.Run{}
		for _, name := range policies {
			played[w][name] = rec.Of(w, name)
			if w == record.SimLinks {
				played[w][name] = rec.OnLinks(name)
			}
		}
	}
	seen := map[uint64]int{}
	for _, first := range played[world][policies[0]] {
		n := seen[first.Seed]
		seen[first.Seed]++
		m := matched{runs: map[string]Set{}, again: world == record.Real && n > 0}
		for _, w := range worlds {
			if w == record.SimLinks && world == record.Sim && first.Links == runs.Planned {
				continue // they stand for missing simulations
			}
			k := n
			if w != world && world == record.Real {
				k = 0 // the simulator gives the same result each time
			}
			for _, name := range policies {
				if run := runs.Seeded(played[w][name], first.Seed, k); run != nil {
					if m.runs[w] == nil {
						m.runs[w] = Set{}
					}
					m.runs[w][name] = run.Summary
				}
			}
		}
		if len(m.runs[world]) > 1 || len(policies) == 1 {
			all = append(all, m)
		}
	}
	return all
}

// statistics compares the policies with the first of them, seed by seed.
func statistics(policies []string, all []matched) Statistics {
	var s Statistics
	real, simulated := false, false
	errors, onLinks := map[string][]float64{}, map[string][]float64{}
	for _, m := range all {
		measured, sim := m.runs[record.Real], m.runs[record.Sim]
		real, simulated = real || len(measured) > 0, simulated || len(sim) > 0
		if measured.incomplete() || len(measured) == 0 && sim.incomplete() {
			s.LeftOut++
		}
		for _, name := range policies {
			if !measured.count(policies, name) {
				continue
			}
			if e, ok := predictionError(sim[name], measured[name]); ok {
				errors[name] = append(errors[name], e)
			}
			if e, ok := predictionError(m.runs[record.SimLinks][name], measured[name]); ok {
				onLinks[name] = append(onLinks[name], e)
			}
		}
	}
	for _, name := range policies {
		if real && simulated {
			if s.PredictionError == nil {
				s.PredictionError = map[string]stats.Estimate{}
			}
			s.PredictionError[name] = stats.Estimated(errors[name])
		}
		if len(onLinks[name]) > 0 {
			if s.LinksPredictionError == nil {
				s.LinksPredictionError = map[string]stats.Estimate{}
			}
			s.LinksPredictionError[name] = stats.Estimated(onLinks[name])
		}
	}
	if len(policies) == 2 {
		s.Speedup, s.Finding = map[string]stats.Estimate{}, map[string]string{}
		for world, played := range map[string]bool{record.Sim: simulated, record.Real: real} {
			if played {
				s.Speedup[world], s.Finding[world] = compared(policies[0], policies[1], world, all)
			}
		}
		return s
	}
	s.Speedups, s.Findings = map[string]map[string]stats.Estimate{}, map[string]map[string]string{}
	for _, sc := range scores(policies, all) {
		if sc.Policy == policies[0] {
			continue
		}
		if s.Speedups[sc.Policy] == nil {
			s.Speedups[sc.Policy], s.Findings[sc.Policy] = map[string]stats.Estimate{}, map[string]string{}
		}
		s.Speedups[sc.Policy][sc.World], s.Findings[sc.Policy][sc.World] = sc.Speedup, sc.Finding
	}
	return s
}

// compared is the speed-up of a policy over the reference from a world's runs,
// with its conclusion.
func compared(reference, name, world string, all []matched) (stats.Estimate, string) {
	var ratios []float64
	for _, m := range all {
		set := m.runs[world]
		if m.again && world != record.Real || !set[reference].Complete || !set[name].Complete {
			continue
		}
		ratios = append(ratios, set.speedup(reference, name))
	}
	e := stats.Estimated(ratios)
	return e, e.Finding(name+" is faster", reference+" is faster")
}

// predictionError is (simulated − measured) / measured wall-clock, of complete
// runs.
func predictionError(sim, real record.Summary) (e float64, ok bool) {
	if !sim.Complete || real.WallClock <= 0 {
		return 0, false
	}
	return float64(sim.WallClock-real.WallClock) / float64(real.WallClock), true
}

// write writes the conclusions from the repeats of two policies.
func (s Statistics) write(out io.Writer, policies []string) {
	e := s.Speedup["real"]
	if s.LeftOut > 0 {
		fmt.Fprintf(out, "seeds left out of the statistics, because a run stayed incomplete: %d\n", s.LeftOut)
	}
	if e.Interval == nil {
		if e.N <= 1 {
			return // no repeats were requested
		}
		mend := " (use --repeat)"
		if e.Same {
			mend = ""
		}
		fmt.Fprintf(out, "the speed-up has no interval: %s%s\n", e.Why, mend)
		return
	}
	fmt.Fprintf(out, "measured: %s, with a speed-up of %.3f× (%.3f× to %.3f×, %.3g %% interval of the median of %d pairs)\n",
		s.Finding["real"], e.Median, e.Interval.Low, e.Interval.High, 100*e.Interval.Level, e.N)
	switch sim := s.Speedup["sim"]; {
	case sim.Same:
		fmt.Fprintf(out, "simulated: a speed-up of %.3f× with each of the same seeds\n", sim.Median)
	case sim.Interval != nil:
		fmt.Fprintf(out, "simulated with the same seeds: %s, with a speed-up of %.3f× (%.3f× to %.3f×)\n", s.Finding["sim"], sim.Median, sim.Interval.Low, sim.Interval.High)
	}
	for _, name := range policies {
		if e := s.PredictionError[name]; e.Interval != nil {
			fmt.Fprintf(out, "simulator's error, %s: %s\n", name, percentText(e))
		}
		if e := s.LinksPredictionError[name]; e.Interval != nil {
			fmt.Fprintf(out, "simulator's error on planned links, %s: %s\n", name, percentText(e))
		}
	}
}
