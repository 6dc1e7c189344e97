//go:build linux

package bench

import (
	"context"
	"fmt"
	"time"

	"testbed/allreduce"
	"testbed/allreduce/bench"
	"testbed/emulation/network"
	"testbed/scenarios/resolved"
	"testbed/shaping"
)

// Settings of Load's reduction: long enough to be a measurement, short enough
// for a waiting person.
const (
	loadWorkers  = 8
	loadElements = 4_000_000
	loadRepeat   = 3
)

// Load measures this machine's capacity for the scenario's kind of reduction on
// links without rates, with as many workers, or eight. It takes a few seconds.
// Both results are in bit/s: the scenario's plan for all workers together, 0
// for no limit, and the measured capacity.
func Load(ctx context.Context, s *resolved.Scenario) (planned, carried float64, err error) {
	n := min(max(len(s.Workers), 2), loadWorkers)
	kind := s.Reduction
	r, err := Run(ctx, Options{
		Settings: bench.Settings{
			Workers: n, Elements: loadElements, Algorithm: allreduce.Ring.String(), Groups: 1, Order: allreduce.NaiveOrder,
			Block: kind.Block, Bits: kind.Bits, Entropy: kind.Entropy, Data: bench.Gaussian, Seed: s.Seed, Warmup: 1, Repeat: loadRepeat,
		},
		// A delay, so that packets take the same path as in a run.
		Links:   bench.Links{OneWayDelay: shaping.Duration(time.Millisecond), Queue: shaping.DefaultQueue},
		Backend: network.LinksAuto, Timeout: network.StartupPatience,
	})
	if err != nil {
		return 0, 0, fmt.Errorf("measuring the capacity of this machine: %w", err)
	}
	planned = float64(len(s.Workers)) * float64(bench.SlowestRate(s.Plan, s.WorkerNodes()))
	return planned, 8 * float64(r.BytesOnWire) / r.SecondsMedian, nil
}
