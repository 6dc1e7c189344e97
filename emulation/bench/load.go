//go:build linux

package bench

import (
	"context"
	"fmt"
	"time"

	"testbed/allreduce"
	"testbed/allreduce/bench"
	"testbed/emulation/network"
	"testbed/scenarios"
	"testbed/shaping"
)

// Of the reduction that Load measures: long enough to be a measurement, short
// enough for somebody who waits for it.
const (
	loadWorkers  = 8
	loadElements = 4_000_000
	loadRepeat   = 3
)

// Load measures what this machine carries of the scenario's kind of reduction
// when no link has a rate, with as many workers, or eight, and compares it with
// what the scenario plans. It takes a few seconds.
func Load(ctx context.Context, s *scenarios.Scenario) (*scenarios.MachineLoad, error) {
	plan, err := s.Plan()
	if err != nil {
		return nil, err
	}
	n := min(max(len(s.Workers), 2), loadWorkers)
	kind := s.Real.AllReduce
	r, err := Run(ctx, Options{
		Settings: bench.Settings{
			Workers: n, Elements: loadElements, Algorithm: allreduce.Ring.String(), Groups: 1, Order: allreduce.NaiveOrder,
			Block: kind.Block, Bits: kind.Bits, Entropy: kind.Entropy, Data: bench.Gaussian, Seed: s.Seed, Warmup: 1, Repeat: loadRepeat,
		},
		// A delay, so that packets go the way that they go in a run.
		Links:   bench.Links{OneWayDelay: shaping.Duration(time.Millisecond), Queue: shaping.DefaultQueue},
		Backend: network.LinksAuto, Timeout: network.StartupPatience,
	})
	if err != nil {
		return nil, fmt.Errorf("measuring what this machine carries: %w", err)
	}
	carried := 8 * float64(r.BytesOnWire) / r.SecondsMedian
	return scenarios.NewMachineLoad(float64(len(s.Workers))*float64(bench.SlowestRate(plan, s.WorkerNodes())), carried), nil
}
