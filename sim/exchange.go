package sim

import (
	"testbed/policy"
	"testbed/scenarios"
)

// Transfer is what a state fetch takes, or an all-reduce of everything.
func Transfer(s *scenarios.Scenario) policy.Time {
	return s.BaseLatency + policy.Time(state(s)/s.BandwidthBpus)
}

// state is the bytes of what a worker has of the outer state.
func state(s *scenarios.Scenario) int64 { return s.StateBytes / int64(s.Train.Ranks()) }

// Exchanges returns what the all-reduce of a round takes, by what the round
// exchanges of the state.
func Exchanges(s *scenarios.Scenario) func(round int) policy.Time {
	fragments := s.Exchange().Fragments
	return func(round int) policy.Time {
		bytes := state(s)
		if len(fragments) > 1 {
			bytes = int64(float64(bytes) * float64(fragments.Of(round).Len) / float64(s.Train.Shard(s.Real.Parameters)))
		}
		return s.BaseLatency + policy.Time(bytes/s.BandwidthBpus)
	}
}
