package sim

import (
	averaging "testbed/allreduce/reduction"
	"testbed/allreduce/ringorder"
	"testbed/scenarios/resolved"
)

// plannedWays are what rings are ordered by, as the plan has it before anything is
// measured. They are zero where rings stay in the order of the ids.
func plannedWays(r *resolved.Scenario) (w ringorder.Ways) {
	nodes := r.WorkerNodes()
	switch r.Reduction.Order {
	case averaging.OrderPlanned, averaging.OrderMeasured:
	case averaging.OrderPlannedRates, averaging.OrderMeasuredRates:
		w.Rates = r.Plan.Rates(nodes)
	case averaging.OrderGivenRates:
		w.Rates = r.Reduction.Rates
	default:
		return w
	}
	w.Workers, w.Delays = r.IDs(), r.Plan.Delays(nodes)
	return w
}
