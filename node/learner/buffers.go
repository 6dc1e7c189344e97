package learner

import (
	"testbed/allreduce/codec"
	"testbed/train"
)

// Buffers are a worker's vectors for its reductions. The reduction under way has
// them, and else the worker's driver; but the last inner step of a round writes the
// contribution.
type Buffers struct {
	Outcome *codec.Outcome // of the last reduction, as it went over the wire
	Ranks   int            // of it

	fragments train.Fragments
	gradient  []float32 // the contribution
	// next is the contribution to come, where that may be made while the reduction of
	// the round before still needs gradient; else nil.
	next []float32
	mean []float32 // the outcome
	lost []float32 // with error feedback, what quantisation took from it; else nil
}

// NewBuffers returns those for so many parameters.
func NewBuffers(e *train.Exchange, parameters int, feedback bool) *Buffers {
	b := &Buffers{fragments: e.Fragments, gradient: make([]float32, parameters), mean: make([]float32, parameters)}
	if e.Late {
		b.next = make([]float32, parameters)
	}
	if feedback {
		b.lost = make([]float32, parameters)
	}
	return b
}

// Of are the parts of them that a round's reduction needs: contribution, outcome,
// and what quantisation takes or, without error feedback, nil.
func (b *Buffers) Of(round int) (gradient, mean, lost []float32) {
	n := b.fragments.Of(round).Len
	if b.lost != nil {
		lost = b.lost[:n]
	}
	return b.gradient[:n], b.mean[:n], lost
}

// Contribution is where that to a round is made, and to be found until Arrived.
func (b *Buffers) Contribution(round int) []float32 {
	n := b.fragments.Of(round).Len
	if b.next != nil {
		return b.next[:n]
	}
	return b.gradient[:n]
}

// Arrived has the contribution that was made last be reduced next.
func (b *Buffers) Arrived() {
	if b.next != nil {
		b.gradient, b.next = b.next, b.gradient
	}
}
