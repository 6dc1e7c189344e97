package calibrate

import (
	"math"
	"math/rand/v2"

	"testbed/allreduce"
	"testbed/allreduce/reduction"
	"testbed/policy"
	"testbed/scenarios"
	"testbed/sim"
)

// Straggler is the coefficient of 1 + c·log2(n), fitted over rings of 2 to 64
// workers whose step times are log-normal.
type Straggler struct {
	// Sigma is the standard deviation of the logarithm of a step's time.
	Sigma       float64  `json:"sigma"`
	Coefficient Estimate `json:"coefficient"`
	// Factors are by log2(n), from n = 1: the mean time until the last arrival,
	// divided by that of one worker.
	Factors []float64 `json:"factors"`
}

// Sigmas are the spreads that Stragglers tries: from almost equal workers to
// volunteers' machines.
var Sigmas = []float64{0.02, 0.05, 0.1, 0.2, 0.4}

// Stragglers simulates rounds of workers whose step times are drawn from a
// log-normal distribution of mean 1, on a machine with these costs: real runs
// of 64 workers would measure the processors that they share.
func Stragglers(costs sim.Costs) ([]Straggler, error) {
	var all []Straggler
	for _, sigma := range Sigmas {
		s, err := straggler(sigma, costs)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

const (
	stragglerDoublings = 6  // up to 64 workers
	stragglerRounds    = 60 // of each number of workers
)

func straggler(sigma float64, costs sim.Costs) (Straggler, error) {
	s := Straggler{Sigma: sigma, Factors: []float64{1}}
	rng := rand.New(rand.NewPCG(3, 4))
	var rows []row
	for k := 1; k <= stragglerDoublings; k++ {
		sum := 0.0
		for range stragglerRounds {
			took, err := slowest(1<<k, sigma, costs, rng)
			if err != nil {
				return Straggler{}, err
			}
			sum += took
			rows = append(rows, row{x: []float64{float64(k)}, y: took - 1, group: "all"})
		}
		s.Factors = append(s.Factors, sum/stragglerRounds)
	}
	fit := func(rows []row) []float64 { // the mean counts, with its tail
		weights := make([]float64, len(rows))
		for i := range weights {
			weights[i] = 1
		}
		return solve(rows, weights)
	}
	low, high := bootstrap(rows, fit)
	s.Coefficient = Estimate{Value: fit(rows)[0], Low: low[0], High: high[0], Observations: len(rows)}
	return s, nil
}

// slowest simulates one round and returns the arrival time of its last worker,
// less the times of messages and timers, for a mean step of 1.
func slowest(workers int, sigma float64, costs sim.Costs, rng *rand.Rand) (float64, error) {
	const mean = 1_000_000 // µs
	s := &scenarios.Scenario{
		Name: "stragglers", InnerSteps: 1, TargetOuterSteps: 1, Horizon: 1e12, HeartbeatPeriod: 1e9, HeartbeatMissThreshold: 100,
		BandwidthBpus: 1, Policy: scenarios.DefaultPolicies(),
		Real: scenarios.Real{TimeScale: 1, Parameters: 1, AllReduce: reduction.Spec{Algorithm: allreduce.Ring.String(), Format: allreduce.DefaultFormat}},
	}
	for id := range workers {
		step := math.Exp(sigma*rng.NormFloat64() - sigma*sigma/2)
		s.Workers = append(s.Workers, scenarios.Worker{ID: policy.ID(id), InnerStepMean: policy.Time(mean * step)})
	}
	resolved, err := s.Resolve(scenarios.Baseline)
	if err != nil {
		return 0, err
	}
	sum, err := sim.RunLinks(resolved, costs, nil)
	if err != nil {
		return 0, err
	}
	overhead := sim.NewTimes(resolved, costs).Control(0).Seconds() + costs.Step.Seconds()
	return float64(sum.Rounds[0].Close)/mean - overhead, nil
}

// fitDocument fits T = volume·V/bandwidth + latency·RTT to warm reductions of
// four workers, as in the document. V is the whole vector in the codes that are
// sent, latency a round trip. Residuals count relative to the time.
func fitDocument(runs []*Run, reductions []Observation) DocumentEstimates {
	byName := map[string]*Run{}
	for _, r := range runs {
		byName[r.Name] = r
	}
	var rows []row
	for _, o := range reductions {
		r := byName[o.Run]
		link := r.Scenario.Real.Links.Default
		const workers = 4
		if !alike(r.Scenario) || o.Cold || o.Hops != 2*(workers-1) || link.RateUp == nil || *link.RateUp == 0 || link.OneWayDelay == nil {
			continue
		}
		// A participant of four sends 6/4 of the vector.
		volume := float64(o.Bytes) / workers * workers / (2 * (workers - 1)) * 8 / float64(*link.RateUp)
		rtt := 2 * float64(*link.OneWayDelay) / 1e9
		rows = append(rows, row{x: []float64{volume / o.Measured, rtt / o.Measured}, y: 1, group: o.Run})
	}
	e := estimates(rows, []string{"", ""}, []float64{1, 1})
	return DocumentEstimates{Volume: e[0], Latency: e[1]}
}
