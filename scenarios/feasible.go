package scenarios

import (
	"fmt"
	"time"

	"testbed/allreduce/entropy"
	"testbed/policy"
	"testbed/scenarios/resolved"
	"testbed/shaping"
)

// shortest is the least share of its codes that entropy coding is assumed to
// leave of a vector. For trained vectors it leaves more.
const shortest = 0.25

// CheckTime returns an *Error if the links cannot carry the run's rounds before
// its horizon, even with infinitely fast workers. The scenario is resolved with
// its plan. Changes of links, which may make them faster, are ignored.
func (s *Scenario) CheckTime(r *resolved.Scenario) error {
	if len(s.Real.Injects) > 0 {
		return nil
	}
	round, why := s.leastRound(r)
	needed, has := time.Duration(s.TargetOuterSteps-s.firstStep())*round, s.RealDuration(s.Horizon)
	if needed <= has {
		return nil
	}
	return &Error{File: s.Name, Field: "horizon", Problem: fmt.Sprintf(
		"is %d µs (%v of real time), but the rounds of the run (%d) take at least %v on the links of the scenario: %s; raise horizon or time_scale, or make the links faster",
		s.Horizon, has.Round(time.Millisecond), s.TargetOuterSteps-s.firstStep(), needed.Round(time.Millisecond), why)}
}

// firstStep is the number of outer steps in the state that the run begins with.
func (s *Scenario) firstStep() (most int) {
	for _, w := range s.Workers {
		most = max(most, w.InitialStep)
	}
	return most
}

// leastRound is a lower bound of the time of a round on the links, and its
// cause. The coordinator receives arrivals and the outcome, so there is a round
// trip to the nearest worker. And the two best workers exchange their vectors.
func (s *Scenario) leastRound(r *resolved.Scenario) (time.Duration, string) {
	plan := r.Plan
	hub := plan.Index(policy.CoordinatorNode)
	var nodes []int
	for _, w := range s.Workers {
		nodes = append(nodes, plan.Index(w.ID.Node()))
	}
	trip := time.Duration(-1)
	for _, w := range nodes {
		if d := between(plan, hub, w) + between(plan, w, hub); trip < 0 || d < trip {
			trip = d
		}
	}
	why := fmt.Sprintf("each round takes a round trip of %v to the nearest worker", trip.Round(time.Microsecond))
	if len(nodes) < 2 || s.Train.Apart() || !s.Exchange().Plain() {
		return trip, why
	}
	vector := float64(r.Reduction.EncodedLen(s.Real.Parameters))
	if r.Reduction.Entropy != entropy.Off {
		vector *= shortest
	}
	best := time.Duration(-1)
	for _, a := range nodes {
		for _, b := range nodes {
			if a == b {
				continue
			}
			hop := between(plan, a, b)
			if rate := slowest(plan, a, b); rate > 0 {
				hop += time.Duration(vector * 8 / float64(rate) * float64(time.Second))
			}
			if best < 0 || hop < best {
				best = hop
			}
		}
	}
	return trip + best, why + fmt.Sprintf(" and %v to send %.3g MB between the two nearest workers", best.Round(time.Microsecond), vector/1e6)
}

// between is the least delay from a node to another one.
func between(plan *shaping.Plan, from, to int) time.Duration {
	if p := plan.Paths[from][to]; p.Reorder == 0 { // packets that overtake others are not delayed
		return time.Duration(p.Fastest())
	}
	return 0
}

// slowest is the lowest rate on the way, in bits a second; 0: all are
// unlimited.
func slowest(plan *shaping.Plan, from, to int) (least shaping.Rate) {
	for _, rate := range []shaping.Rate{plan.Nodes[from].RateUp, plan.Paths[from][to].Rate, plan.Nodes[to].RateDown} {
		if rate > 0 && (least == 0 || rate < least) {
			least = rate
		}
	}
	return least
}
