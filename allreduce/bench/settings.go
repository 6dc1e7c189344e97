package bench

import (
	"slices"
	"strings"

	"testbed/allreduce"
	"testbed/allreduce/entropy"
	"testbed/internal/errs"
)

// Settings determine the all-reduce to measure. All workers of a benchmark have
// the same settings. They do not include the network.
type Settings struct {
	Workers   int    `json:"workers"`
	Elements  int    `json:"elements"` // values in each worker's vector
	Algorithm string `json:"algorithm"`
	// Groups is the number of groups. Workers are assigned to groups in turn,
	// unless GroupOf has the group of each.
	Groups  int   `json:"groups"`
	GroupOf []int `json:"group_of,omitempty"`
	// Order is the ring's order: naive, which is the ranks' order, or optimised.
	Order string `json:"order"`
	// Connections is the number of connections to each peer; 0 chooses by the
	// path.
	Connections int          `json:"connections"`
	Block       int          `json:"block"` // fields of the Format, in this order, for
	Bits        int          `json:"bits"`  // readers of a result
	Entropy     entropy.Mode `json:"entropy"`
	// ErrorFeedback makes every worker add to its vector the quantisation error of
	// the reduction before.
	ErrorFeedback bool   `json:"error_feedback"`
	Data          Data   `json:"data"`
	Seed          uint64 `json:"seed"` // of the data, and of all randomness on the links
	Warmup        int    `json:"warmup"`
	Repeat        int    `json:"repeat"`
}

// Format is the format of the values on the wire.
func (s *Settings) Format() allreduce.Format { return allreduce.Format{Bits: s.Bits, Block: s.Block} }

func (s *Settings) algorithm() (allreduce.Algorithm, error) {
	a, ok := allreduce.ParseAlgorithm(s.Algorithm)
	if !ok {
		return 0, errs.Fieldf("algorithm", "%s: choose from %s", s.Algorithm, strings.Join(allreduce.AlgorithmNames(), ", "))
	}
	return a, nil
}

// GroupNumbers is the group of every rank. With assignment in turn, neighbours
// are in different groups: the worst order for a ring.
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

// OptimisedOrder is the alternative to allreduce.NaiveOrder: the best order by
// one-way delays.
const OptimisedOrder = "optimised"

// Bounds of the settings.
const (
	maxWorkers  = 256
	maxElements = 1 << 30
	maxRepeat   = 1000
)

// Check reports what is wrong with the settings, as a *errs.FieldError.
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
		return errs.Fieldf("order", "%s: only the ring has an order; leave out the order, or choose the algorithm %s", s.Order, allreduce.Ring)
	}
	if field, problem := s.Format().Problem(); field != "" {
		return errs.Fieldf(field, "%s", problem)
	}
	if problem := s.Entropy.Problem(s.Format()); problem != "" {
		return errs.Fieldf("entropy", "%s", problem)
	}
	if !slices.Contains(DataNames, s.Data) {
		return errs.Fieldf("data", "%s: choose one of %s", s.Data, errs.List(DataNames))
	}
	return nil
}
