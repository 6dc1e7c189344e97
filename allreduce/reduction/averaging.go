// Package reduction determines how pseudo-gradients are averaged: the
// algorithm, the order of the ring, the number of connections, and the format.
//
// The package is pure.
package reduction

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"testbed/allreduce"
	"testbed/allreduce/entropy"
	"testbed/internal/errs"
	"testbed/shaping"
)

// Spec is the section real.all_reduce of a scenario. It is for the real network
// and the simulator's planned links. Churn's network, where an all-reduce has a
// fixed duration, does not use it.
type Spec struct {
	// The algorithm of the all-reduce: `ring`, `direct` (two hops, for long delays or many
	// workers) or `hierarchical` (`direct` inside the groups of `links.groups`, then
	// between them). `hierarchical` needs every worker in a group.
	Algorithm string `yaml:"algorithm" json:"algorithm"`
	// The ring's order: by worker id (`naive`), or with the smallest sum of one-way
	// delays (`planned`) or round trips (`measured`). `planned_rates`, `measured_rates`
	// and `given_rates` make the slowest hop as fast as possible.
	Order string `yaml:"order" json:"order"`
	// With `order: given_rates`: for each worker, in order, a list of its rates to all
	// workers. The rate to itself is ignored.
	Rates [][]shaping.Rate `yaml:"rates" json:"rates,omitempty"`
	// QUIC connections to each peer. 0 chooses by the path's losses and jitter.
	Connections int `yaml:"connections" json:"connections"`
	// Format is the format of the values on the wire.
	allreduce.Format `yaml:",inline"`
	// When codes are shortened by entropy coding: `auto` (while that is faster), `on` or
	// `off`. It changes no result. `on` is refused with 16 and 32 bits.
	Entropy entropy.Mode `yaml:"entropy" json:"entropy"`
	// Each worker adds the last quantisation error to its pseudo-gradient. It has no
	// effect with 32 bits.
	ErrorFeedback bool `yaml:"error_feedback" json:"error_feedback"`
}

// Feedback reports whether workers keep the quantisation error: float32 has
// none.
func (a Spec) Feedback() bool { return a.ErrorFeedback && !a.Exact() }

// Orders of the ring. The naive one follows the workers' ids. Of the others,
// the first two have the least sum of one-way delays, the rest the highest rate
// of the slowest hop. Measurements take place before the run.
const (
	OrderPlanned       = "planned"
	OrderMeasured      = "measured"
	OrderPlannedRates  = "planned_rates"
	OrderMeasuredRates = "measured_rates"
	OrderGivenRates    = "given_rates"
)

// Orders are the orders of the ring.
var Orders = []string{allreduce.NaiveOrder, OrderPlanned, OrderMeasured, OrderPlannedRates, OrderMeasuredRates, OrderGivenRates}

// Default is the default of a scenario.
var Default = Spec{Algorithm: allreduce.Ring.String(), Order: allreduce.NaiveOrder, Format: allreduce.DefaultFormat, Entropy: entropy.Auto}

// Validate checks the section for a run of so many workers. The error joins
// *errs.FieldErrors.
func (a Spec) Validate(workers int) error {
	var other errs.Problems
	if field, problem := a.Problem(); field != "" {
		other.If(true, field, "%s", problem)
	} else if problem := a.Entropy.Problem(a.Format); problem != "" {
		other.If(true, "entropy", "%s", problem)
	}
	other.If(a.Connections < 0, "connections", "is %d: it must not be negative", a.Connections)
	other.If(a.Connections > allreduce.MaxConnections, "connections", "is %d: it must lie between 0 and %d", a.Connections, allreduce.MaxConnections)
	return errors.Join(a.validateOrder(workers), other.Err())
}

// validateOrder checks the order of the ring.
func (a Spec) validateOrder(workers int) error {
	algorithm, known := allreduce.ParseAlgorithm(a.Algorithm)
	switch {
	case !known:
		return bad("algorithm", fmt.Sprintf("%q is not an algorithm; choose one of %s", a.Algorithm, strings.Join(allreduce.AlgorithmNames(), ", ")))
	case !slices.Contains(Orders, a.Order):
		return bad("order", fmt.Sprintf("%q is not an order; choose one of %s", a.Order, strings.Join(Orders, ", ")))
	case a.Order != allreduce.NaiveOrder && algorithm != allreduce.Ring:
		return bad("order", fmt.Sprintf("is %s, but only the ring has an order: remove the order, or the algorithm %s", a.Order, a.Algorithm))
	}
	return a.validateRates(workers)
}

// validateRates checks the rates for the ring's order.
func (a Spec) validateRates(workers int) error {
	const at = "rates"
	switch given := a.Order == OrderGivenRates; {
	case given && a.Rates == nil:
		return bad(at, "is missing, but the order is "+OrderGivenRates+": give a row for each worker, with a rate to each worker")
	case !given && a.Rates != nil:
		return bad(at, fmt.Sprintf("is given, but the order is %s: remove it, or write order: %s", a.Order, OrderGivenRates))
	case given && len(a.Rates) != workers:
		return bad(at, fmt.Sprintf("must have one row for each worker, in the order of the workers (rows: %d, workers: %d)", len(a.Rates), workers))
	}
	for i, row := range a.Rates {
		if len(row) != workers {
			return bad(fmt.Sprintf("%s[%d]", at, i), fmt.Sprintf("must have one rate to each worker, in the order of the workers (rates: %d, workers: %d); the rate to the worker itself is ignored", len(row), workers))
		}
	}
	return nil
}

func bad(field, mend string) error { return &errs.FieldError{Field: field, Problem: mend} }
