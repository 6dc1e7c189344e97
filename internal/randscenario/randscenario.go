// Package randscenario generates scenarios for property tests.
package randscenario

import (
	"pgregory.net/rapid"

	"testbed/policy"
	"testbed/scenarios"
	"testbed/scenarios/faults"
	"testbed/train/work"
)

// Draw generates a valid scenario of up to six workers and eight injects, small
// enough for thousands of simulations in a second.
func Draw(t *rapid.T) *scenarios.Scenario {
	draw := func(low, high int, what string) policy.Time {
		return policy.Time(rapid.IntRange(low, high).Draw(t, what))
	}
	s := &scenarios.Scenario{
		Name: "random", Seed: rapid.Uint64().Draw(t, "seed"), InnerSteps: int(draw(1, 3, "inner")), TargetOuterSteps: int(draw(1, 6, "target")),
		Horizon: draw(1, 60_000, "horizon"), HeartbeatPeriod: draw(50, 2000, "period"), HeartbeatMissThreshold: int(draw(1, 5, "threshold")),
		BaseLatency: draw(0, 300, "latency"), BandwidthBpus: 10, StateBytes: int64(draw(0, 20_000, "state")),
		Policy: scenarios.DefaultPolicies(),
	}
	s.Policy.Join = rapid.SampledFrom(policy.JoinModes).Draw(t, "join mode")
	if s.Policy.Rejoin = rapid.SampledFrom(policy.RejoinModes).Draw(t, "rejoin"); s.Policy.Rejoin == policy.RejoinAfterRounds {
		s.Policy.RejoinRounds = rapid.IntRange(0, 2).Draw(t, "rejoin rounds")
	}
	straggler := s.Policy.Parameters[scenarios.Straggler].(*policy.Straggler)
	straggler.Quorum = rapid.SampledFrom([]float64{0.1, 0.5, 0.75, 1}).Draw(t, "quorum")
	straggler.MinSlack = draw(0, 200, "slack")
	straggler.SidelineLimit = int(draw(0, 3, "limit"))
	for id := range int(draw(1, 6, "workers")) {
		w := scenarios.Worker{ID: policy.ID(id), InnerStepMean: draw(1, 2000, "mean")}
		if rapid.Bool().Draw(t, "late") {
			w.JoinAt = draw(0, 10_000, "join")
		}
		if rapid.Bool().Draw(t, "jittery") {
			w.InnerStepJitter = draw(0, int(w.InnerStepMean), "jitter")
		}
		s.Workers = append(s.Workers, w)
	}
	if rapid.Bool().Draw(t, "work") {
		s.Work = &work.Spec{
			Classes: []work.Class{{Name: "old", IDs: []policy.ID{0}, Factor: 2}},
			Noise:   &work.Noise{SlowFactor: 3, MeanOK: draw(1, 5000, "ok"), MeanSlow: draw(1, 5000, "slow")},
		}
	}
	for range rapid.IntRange(0, 8).Draw(t, "injects") {
		id := rapid.SampledFrom(s.Workers).Draw(t, "whom").ID
		in := faults.Inject{Op: rapid.SampledFrom(faults.Ops).Draw(t, "op"), At: draw(0, 20_000, "at")}
		switch in.Op {
		case faults.Partition:
			in.IDs = []policy.ID{id}
		case faults.ClearPartition:
			if rapid.Bool().Draw(t, "one") {
				in.IDs = []policy.ID{id}
			}
		case faults.Slow:
			factor := rapid.SampledFrom([]float64{0.5, 3, 20}).Draw(t, "factor")
			in.ID, in.Factor = &id, &factor
		case faults.CoordinatorCrash:
			in.Down = draw(0, 20_000, "down")
		case faults.Restart:
			in.ID, in.After = &id, draw(0, 5000, "after")
		case faults.FailReduce:
			in.ID, in.Alone = &id, rapid.Bool().Draw(t, "alone")
		case faults.Pause:
			in.ID, in.Heartbeats = &id, rapid.Bool().Draw(t, "heartbeats")
		case faults.Preempt:
			in.ID, in.Notice = &id, draw(0, 5000, "notice")
		default:
			in.ID = &id
		}
		s.Injects = append(s.Injects, in)
	}
	return s
}
