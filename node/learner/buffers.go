package learner

import (
	"testbed/allreduce/codec"
	"testbed/train"
)

// Buffers are a worker's vectors for its reductions. They belong to the
// reduction under way, otherwise to the worker's driver. Only the contribution
// is written by the last inner step of a round.
type Buffers struct {
	Outcome *codec.Outcome // of the last reduction, in its encoded form
	Ranks   int            // of it

	fragments train.Fragments
	gradient  []float32 // the contribution
	// next is the next contribution, if it may be computed while the reduction of
	// the round before still needs gradient; otherwise nil.
	next []float32
	mean []float32 // the outcome
	lost []float32 // with error feedback, its quantisation error; otherwise nil
}

// NewBuffers returns the buffers for so many parameters.
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

// Of are the parts of the buffers for a round's reduction: contribution,
// outcome, and quantisation error or, without error feedback, nil.
func (b *Buffers) Of(round int) (gradient, mean, lost []float32) {
	n := b.fragments.Of(round).Len
	if b.lost != nil {
		lost = b.lost[:n]
	}
	return b.gradient[:n], b.mean[:n], lost
}

// Contribution is the buffer for a round's contribution, until Arrived.
func (b *Buffers) Contribution(round int) []float32 {
	n := b.fragments.Of(round).Len
	if b.next != nil {
		return b.next[:n]
	}
	return b.gradient[:n]
}

// Arrived makes the last contribution the one to reduce next.
func (b *Buffers) Arrived() {
	if b.next != nil {
		b.gradient, b.next = b.next, b.gradient
	}
}
