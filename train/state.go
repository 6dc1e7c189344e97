package train

import "slices"

// State is an outer state: the parameters that those share who take outer steps
// together, with the momentum of the outer optimiser. Where steps are hierarchical,
// a region's parameters move on from the last state that all regions agreed on.
type State struct {
	Parameters, Momentum []float32
	// Agreed are the parameters of the last state that all regions agreed on; nil:
	// Parameters are.
	Agreed []float32
}

// Last is the last state that all regions agreed on. It shares the vectors.
func (s State) Last() State {
	if s.Agreed == nil {
		return s
	}
	return State{Parameters: s.Agreed, Momentum: s.Momentum}
}

// Base returns the parameters that the pseudo-gradients of the next outer step are
// measured from: the region's or, for a step of all, those last agreed on.
func (s State) Base(global bool) []float32 {
	if global {
		return s.Last().Parameters
	}
	return s.Parameters
}

// Clone returns one with vectors of its own.
func (s State) Clone() State {
	return State{slices.Clone(s.Parameters), slices.Clone(s.Momentum), slices.Clone(s.Agreed)}
}

// Hash is that of everything that outer steps follow from.
func (s State) Hash() string {
	if s.Agreed == nil {
		return Hash(s.Parameters, s.Momentum)
	}
	return Hash(s.Parameters, s.Momentum, s.Agreed)
}

// Take takes an outer step of a fragment, in place. A global one, of all, goes from
// the parameters last agreed on and has momentum. One of a region sets its
// parameters to the mean of its workers', as hierarchical local SGD does, and leaves
// the momentum alone; it is of all the parameters.
func (o Outer) Take(s *State, f Fragment, mean []float32, global bool) {
	if global {
		if s.Agreed != nil {
			s.Parameters, s.Agreed = s.Agreed, nil
		}
		o.StepFragment(f, s.Parameters, s.Momentum, mean)
		return
	}
	if s.Agreed == nil {
		s.Agreed = slices.Clone(s.Parameters)
	}
	for i, g := range mean {
		s.Parameters[i] -= g
	}
}
