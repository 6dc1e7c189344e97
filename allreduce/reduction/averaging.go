// Package reduction says how pseudo-gradients are averaged: by which algorithm, in
// which order, over how many connections, and as what they travel.
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

// Spec is the section real.all_reduce of a scenario. It is for the real network and
// the simulator's planned links: churn's network, where an all-reduce has a fixed
// price, has no use for it.
type Spec struct {
	// Algorithm is ring, direct or hierarchical. The last one's groups are
	// those of the links.
	Algorithm string `yaml:"algorithm" json:"algorithm"`
	// Order is that of the ring, one of Orders.
	Order string `yaml:"order" json:"order"`
	// Rates are those between workers that OrderGivenRates goes by, from row to
	// column in the order of the workers; the diagonal is not read.
	Rates [][]shaping.Rate `yaml:"rates" json:"rates,omitempty"`
	// Connections is the number of QUIC connections to each peer; 0 is as many
	// as the losses and the jitter on the path ask for.
	Connections int `yaml:"connections" json:"connections"`
	// Format is that of the values on the wire.
	allreduce.Format `yaml:",inline"`
	// Entropy says when codes are shortened by entropy coding: auto, on or off.
	Entropy entropy.Mode `yaml:"entropy" json:"entropy"`
	// ErrorFeedback has each worker add to its pseudo-gradient what
	// quantisation took from the one before; Feedback says whether there is any.
	ErrorFeedback bool `yaml:"error_feedback" json:"error_feedback"`
}

// Feedback reports whether workers keep what quantisation takes: float32 loses
// nothing.
func (a Spec) Feedback() bool { return a.ErrorFeedback && !a.Exact() }

// Orders of the ring. The naive one is by the workers' ids; of the others the
// first two have the least sum of one-way delays, the rest the highest rate of
// the slowest hop. What is measured is so before the run.
const (
	OrderPlanned       = "planned"
	OrderMeasured      = "measured"
	OrderPlannedRates  = "planned_rates"
	OrderMeasuredRates = "measured_rates"
	OrderGivenRates    = "given_rates"
)

// Orders are those of the ring.
var Orders = []string{allreduce.NaiveOrder, OrderPlanned, OrderMeasured, OrderPlannedRates, OrderMeasuredRates, OrderGivenRates}

// Default is that of a scenario that says nothing of it.
var Default = Spec{Algorithm: allreduce.Ring.String(), Order: allreduce.NaiveOrder, Format: allreduce.DefaultFormat, Entropy: entropy.Auto}

// Validate looks at the section of a run of so many workers. The error joins
// *errs.FieldErrors.
func (a Spec) Validate(workers int) error {
	var other errs.Problems
	if field, problem := a.Problem(); field != "" {
		other.If(true, field, "%s", problem)
	} else if problem := a.Entropy.Problem(a.Format); problem != "" {
		other.If(true, "entropy", "%s", problem)
	}
	other.If(a.Connections < 0, "connections", "is %d; it must not be negative", a.Connections)
	other.If(a.Connections > allreduce.MaxConnections, "connections", "is %d; it must lie between 0 and %d", a.Connections, allreduce.MaxConnections)
	return errors.Join(a.validateOrder(workers), other.Err())
}

// validateOrder looks at who sends to whom.
func (a Spec) validateOrder(workers int) error {
	algorithm, known := allreduce.ParseAlgorithm(a.Algorithm)
	switch {
	case !known:
		return bad("algorithm", fmt.Sprintf("%q is no algorithm; choose one of %s", a.Algorithm, strings.Join(allreduce.AlgorithmNames(), ", ")))
	case !slices.Contains(Orders, a.Order):
		return bad("order", fmt.Sprintf("%q is no order; choose one of %s", a.Order, strings.Join(Orders, ", ")))
	case a.Order != allreduce.NaiveOrder && algorithm != allreduce.Ring:
		return bad("order", fmt.Sprintf("is %s, but only the ring has an order; remove it, or the algorithm %s", a.Order, a.Algorithm))
	}
	return a.validateRates(workers)
}

// validateRates looks at the rates that a ring's order is given by.
func (a Spec) validateRates(workers int) error {
	const at = "rates"
	switch given := a.Order == OrderGivenRates; {
	case given && a.Rates == nil:
		return bad(at, "is missing, and the order is "+OrderGivenRates+"; give a row for each worker, with a rate to each worker in it")
	case !given && a.Rates != nil:
		return bad(at, fmt.Sprintf("is given, but the order is %s; remove it, or write order: %s", a.Order, OrderGivenRates))
	case given && len(a.Rates) != workers:
		return bad(at, fmt.Sprintf("has %d rows for %d workers; give one for each, in their order", len(a.Rates), workers))
	}
	for i, row := range a.Rates {
		if len(row) != workers {
			return bad(fmt.Sprintf("%s[%d]", at, i), fmt.Sprintf("has %d rates for %d workers; give one to each, in their order, and any to itself", len(row), workers))
		}
	}
	return nil
}

func bad(field, mend string) error { return &errs.FieldError{Field: field, Problem: mend} }
