//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"testbed/scenarios"
	"testbed/stacks"
	"testbed/stacks/measure"
)

// prediction is what the simulator expects of a player in a scenario.
type prediction struct {
	Player, Scenario string
	Policy           string // that was simulated
	measure.Measures
}

// predict simulates what was played. A policy predicts itself, the policy torchft the
// stack of that name, and baseline all other stacks.
func predict(ctx context.Context, players []player, all []result, simulate simulator) (predicted []prediction, err error) {
	for _, p := range players {
		for _, scenario := range played {
			k := slices.IndexFunc(all, func(r result) bool { return r.Player == p.Name && r.Scenario == scenario })
			if k < 0 {
				continue
			}
			policy, bits, err := predictor(p, scenario, all[k].record.Summary.TimeScale)
			if err != nil {
				return nil, err
			}
			m, err := simulate(ctx, scenario, policy, bits)
			if err != nil {
				return nil, err
			}
			predicted = append(predicted, prediction{p.Name, scenario, policy, m})
		}
	}
	return predicted, nil
}

// predictor is the policy that predicts a player, and the bits of its reduction.
func predictor(p player, scenario string, scale float64) (policy string, bits int, err error) {
	if p.Stack == nil {
		return p.Policy, p.Bits, nil
	}
	if p.Stack.Name != "torchft" {
		return "baseline", 32, nil
	}
	s, err := scenarios.Load(scenario)
	if err != nil {
		return "", 0, err
	}
	values, err := s.Resolve("")
	if err != nil {
		return "", 0, err
	}
	round := time.Duration(float64(values.TypicalStep()) * float64(values.InnerSteps) * scale * float64(time.Microsecond))
	p.Stack.Fit(round)
	return torchft(p.Stack, len(values.Workers), scale), 32, nil
}

// torchft is the policy of that name with the options of the stack, at a time scale.
func torchft(s *stacks.Chosen, workers int, scale float64) string {
	v := s.Values
	scenario := func(seconds float64) int64 { return int64(seconds * 1e6 / scale) }
	replicas := int(v["min_replicas"])
	if replicas == 0 {
		replicas = workers/2 + 1
	}
	return fmt.Sprintf("torchft:min_replicas=%d:join_timeout=%d:heartbeat_timeout=%d:quorum_timeout=%d:timeout=%d:quorum_retries=%d:sync=true:init_sync=%t",
		replicas, scenario(v["join_timeout_ms"]/1000), scenario(v["heartbeat_timeout_ms"]/1000), scenario(v["quorum_timeout_s"]), scenario(v["timeout_s"]),
		int(v["quorum_retries"]), v["init_sync"] > 0)
}
