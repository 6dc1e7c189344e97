package train

import "slices"

// State is an outer state: the parameters of workers that take outer steps
// together, with the momentum of the outer optimiser. With hierarchical steps,
// a region's parameters move on from the last state that all regions agreed on.
type State struct {
	Parameters, Momentum []float32
	// Agreed are the parameters of the last state that all regions agreed on; nil:
	// they are Parameters.
	Agreed []float32
}

// Last is the last state that all regions agreed on. It shares the vectors.
func (s State) Last() State {
	if s.Agreed == nil {
		return s
	}
	return State{Parameters: s.Agreed, Momentum: s.Momentum}
}

// Base returns the parameters from which the pseudo-gradients of the next outer
// step are measured: the region's or, for a global step, the last agreed ones.
func (s State) Base(global bool) []float32 {
	if global {
		return s.Last().Parameters
	}
	return s.Parameters
}

// Clone returns a copy with vectors of its own.
func (s State) Clone() State {
	return State{slices.Clone(s.Parameters), slices.Clone(s.Momentum), slices.Clone(s.Agreed)}
}

// Hash is the hash of everything that outer steps depend on.
func (s State) Hash() string {
	if s.Agreed == nil {
		return Hash(s.Parameters, s.Momentum)
	}
	return Hash(s.Parameters, s.Momentum, s.Agreed)
}

// Take takes an outer step of a fragment, in place. A global step begins at the
// last agreed parameters and has momentum. A region's step sets its parameters
// to the mean of its workers', as in hierarchical local SGD, and leaves the
// momentum alone. It covers all parameters.
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
