// Package ringorder orders the workers of a ring as requested, by what is known
// of the paths between them. Runs, the simulator of planned links and displays
// of a plan share it.
package ringorder

import (
	"fmt"
	"math"
	"slices"

	"testbed/allreduce"
	"testbed/allreduce/reduction"
	"testbed/policy"
	"testbed/shaping"
)

// Ways are the known delays or rates between workers, from row to column, by
// index in Workers. The diagonals are ignored.
type Ways struct {
	Workers []policy.ID `json:"workers,omitempty"`
	// Delays are one way, in seconds.
	Delays [][]float64 `json:"delays,omitempty"`
	// Rates, if there are any, order rings instead of Delays.
	Rates [][]shaping.Rate `json:"rates,omitempty"`
}

// Planned are the ways by a plan, before anything is measured, for the order of
// these workers' reductions. They are zero if rings stay in the order of the
// ids.
func Planned(of reduction.Spec, workers []policy.ID, plan *shaping.Plan) (w Ways) {
	nodes := make([]string, len(workers))
	for i, id := range workers {
		nodes[i] = id.Node()
	}
	switch of.Order {
	case reduction.OrderPlanned, reduction.OrderMeasured:
	case reduction.OrderPlannedRates, reduction.OrderMeasuredRates:
		w.Rates = plan.Rates(nodes)
	case reduction.OrderGivenRates:
		w.Rates = of.Rates
	default:
		return w
	}
	w.Workers, w.Delays = workers, plan.Delays(nodes)
	return w
}

// OfAll is the ring of all workers, nil if rings stay in the order of the ids.
func (w Ways) OfAll() (*Ring, error) {
	if !w.Known() {
		return nil, nil
	}
	return w.Order(slices.Sorted(slices.Values(w.Workers)))
}

// Known reports whether there is anything to order rings by.
func (w Ways) Known() bool { return len(w.Workers) > 0 }

// Ring is an order of workers, with its gain over the order of their ids.
type Ring struct {
	Order []policy.ID `json:"order"`
	// Latency is the longest way of a chunk (allreduce.RingLatency) in seconds, to
	// the nanosecond, NaiveLatency the same in the order of the ids.
	Latency      float64 `json:"latency_seconds"`
	NaiveLatency float64 `json:"naive_latency_seconds"`
	// Rate is the rate of the slowest hop, NaiveRate the same in the order of the
	// ids. They are zero if no rate is limited, or if the ring is not ordered by
	// rates.
	Rate      shaping.Rate `json:"rate,omitzero"`
	NaiveRate shaping.Rate `json:"naive_rate,omitzero"`
}

// Order orders participants, which must be in the order of their ids. It fails
// if nothing is known of the ways between some of them.
func (w Ways) Order(participants []policy.ID) (*Ring, error) {
	n := len(participants)
	index, naive := make([]int, n), make([]int, n)
	for k, id := range participants {
		naive[k] = k
		if index[k] = slices.Index(w.Workers, id); index[k] < 0 {
			return nil, fmt.Errorf("ring order: the delays to worker %d are unknown", id)
		}
	}
	delays, rates := among(w.Delays, index), among(w.Rates, index)
	cost, objective := delays, allreduce.Sum
	if rates != nil {
		cost, objective = perBit(rates), allreduce.Bottleneck
	}
	tour, err := allreduce.OrderRing(cost, objective)
	if err != nil {
		return nil, err
	}
	latency := func(order []int) float64 { return math.Round(allreduce.RingLatency(delays, order)*1e9) / 1e9 }
	r := &Ring{
		Latency: latency(tour.Order), NaiveLatency: latency(naive),
		Rate: slowest(rates, tour.Order), NaiveRate: slowest(rates, naive),
	}
	for _, k := range tour.Order {
		r.Order = append(r.Order, participants[k])
	}
	return r, nil
}

// among are the rows and columns of a matrix with these indices.
func among[T any](matrix [][]T, index []int) (part [][]T) {
	if matrix == nil {
		return nil
	}
	for _, i := range index {
		row := make([]T, len(index))
		for k, j := range index {
			row[k] = matrix[i][j]
		}
		part = append(part, row)
	}
	return part
}

// perBit is the time of a bit at each rate, in seconds. It determines a long
// reduction's time.
func perBit(rates [][]shaping.Rate) [][]float64 {
	cost := make([][]float64, len(rates))
	for i, row := range rates {
		for _, r := range row {
			c := 0.0
			if r > 0 {
				c = 1 / float64(r)
			}
			cost[i] = append(cost[i], c)
		}
	}
	return cost
}

// slowest is the lowest rate around a ring, zero if none is limited.
func slowest(rates [][]shaping.Rate, order []int) (lowest shaping.Rate) {
	if rates == nil || len(order) < 2 {
		return 0
	}
	for k, i := range order {
		if r := rates[i][order[(k+1)%len(order)]]; r > 0 && (lowest == 0 || r < lowest) {
			lowest = r
		}
	}
	return lowest
}
