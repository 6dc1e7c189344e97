package bench

import (
	"slices"
	"strings"

	"testbed/allreduce"
	"testbed/allreduce/entropy"
	"testbed/internal/errs"
)

// Settings say which all-reduce is measured. All workers of a benchmark have
// the same. The network is not in them.
type Settings struct {
	Workers   int    `json:"workers"`
	Elements  int    `json:"elements"` // values in each worker's vector
	Algorithm string `json:"algorithm"`
	// Groups is the number of groups that the workers are in, by turns unless
	// GroupOf has the group of each.
	Groups  int   `json:"groups"`
	GroupOf []int `json:"group_of,omitempty"`
	// Order is the ring's: naive, which is that of the ranks, or optimised.
	Order string `json:"order"`
	// Connections is the number of connections to each peer, 0 as many as the
	// path asks for.
	Connections int          `json:"connections"`
	Block       int          `json:"block"` // of the Format, and in this order, for
	Bits        int          `json:"bits"`  // whoever reads a result
	Entropy     entropy.Mode `json:"entropy"`
	// ErrorFeedback has every worker add to its vector what the reduction
	// before lost of it.
	ErrorFeedback bool   `json:"error_feedback"`
	Data          Data   `json:"data"`
	Seed          uint64 `json:"seed"` // of the data, and of all that is random on the links
	Warmup        int    `json:"warmup"`
	Repeat        int    `json:"repeat"`
}

// Format is that of the values on the wire.
func (s *Settings) Format() allreduce.Format { return allreduce.Format{Bits: s.Bits, Block: s.Block} }

func (s *Settings) algorithm() (allreduce.Algorithm, error) {
	a, ok := allreduce.ParseAlgorithm(s.Algorithm)
	if !ok {
		return 0, errs.Fieldf("algorithm", "%s: choose from %s", s.Algorithm, strings.Join(allreduce.AlgorithmNames(), ", "))
	}
	return a, nil
}

// GroupNumbers is the group of every rank. By turns, neighbours are in different
// groups: for a ring the worst order.
func (s *Settings) GroupNumbers() []int {
	if s.GroupOf != nil {
		return s.GroupOf
	}
	numbers := make([]int, s.Workers)
	for rank := range numbers {
		numbers[rank] = rank % s.Groups
	}
	return numbers
}

// OptimisedOrder is the other order of the ring beside allreduce.NaiveOrder: the
// best by one-way delays.
const OptimisedOrder = "optimised"

// Bounds of the settings.
const (
	maxWorkers  = 256
	maxElements = 1 << 30
	maxRepeat   = 1000
)

// Check says what is wrong with the settings, as a *errs.FieldError.
func (s *Settings) Check() error {
	for _, v := range []struct {
		field              string
		value, least, most int
	}{
		{"workers", s.Workers, 2, maxWorkers}, {"elements", s.Elements, 1, maxElements},
		{"groups", s.Groups, 1, s.Workers},
		{"connections", s.Connections, 0, allreduce.MaxConnections},
		{"warmup", s.Warmup, 0, maxRepeat}, {"repeat", s.Repeat, 1, maxRepeat},
	} {
		if v.value < v.least || v.value > v.most {
			return errs.Fieldf(v.field, "%d must lie between %d and %d", v.value, v.least, v.most)
		}
	}
	a, err := s.algorithm()
	switch {
	case err != nil:
		return err
	case s.Order != allreduce.NaiveOrder && s.Order != OptimisedOrder:
		return errs.Fieldf("order", "%s: choose %s or %s", s.Order, allreduce.NaiveOrder, OptimisedOrder)
	case s.Order == OptimisedOrder && a != allreduce.Ring:
		return errs.Fieldf("order", "%s: only the ring has an order", s.Order)
	}
	if field, problem := s.Format().Problem(); field != "" {
		return errs.Fieldf(field, "%s", problem)
	}
	if problem := s.Entropy.Problem(s.Format()); problem != "" {
		return errs.Fieldf("entropy", "%s", problem)
	}
	if !slices.Contains(DataNames, s.Data) {
		return errs.Fieldf("data", "%s: choose one of %v", s.Data, DataNames)
	}
	return nil
}
