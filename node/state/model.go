package state

import (
	"encoding/binary"
	"math/rand/v2"

	"testbed/allreduce/codec"
	"testbed/policy"
)

// InnerLearningRate is that of the stand-in model's inner optimiser, plain
// gradient descent.
const InnerLearningRate = 0.2

// Quadratic is the objective of the stand-in model: worker w minimises the
// squared distance to a target of its own, the optimum that all share plus noise,
// so that workers disagree as workers with different data do and the mean of
// their pseudo-gradients leads to the optimum.
type Quadratic struct {
	Start   []float32 // the same for all workers of a run
	Optimum []float32 // likewise
	Target  []float32 // the worker's own
}

// NewQuadratic draws a worker's objective. It follows from its arguments, bit by
// bit.
func NewQuadratic(seed uint64, id policy.ID, parameters int) Quadratic {
	q := Quadratic{
		Start: gaussian(seed, 1, parameters), Optimum: gaussian(seed, 0, parameters), Target: gaussian(seed, 2+uint64(id), parameters),
	}
	for i, o := range q.Optimum {
		q.Target[i] = o + float32(0.3*q.Target[i])
	}
	return q
}

// gaussian returns n roughly normal values; the stream selects among the
// vectors of one seed.
func gaussian(seed, stream uint64, n int) []float32 {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	binary.LittleEndian.PutUint64(key[8:], stream)
	src := rand.NewChaCha8(key)
	out := make([]float32, n)
	for i := range out {
		// The sum of four uniform 16-bit numbers: mean 2, variance 1/3.
		u := src.Uint64()
		sum := u&0xffff + u>>16&0xffff + u>>32&0xffff + u>>48
		out[i] = (float32(sum)/65536 - 2) * 1.7320508
	}
	return out
}

// Model is what a worker trains: the parameters of its inner optimiser, and the
// outer state that they start from in every round. It has one user at a time;
// others may use its outer state meanwhile.
type Model struct {
	Outer *Outer

	optimum, target []float32
	local           []float32 // parameters of the inner optimiser
}

// NewModel makes the model with which a worker starts a run.
func NewModel(seed uint64, id policy.ID, parameters int) *Model {
	q := NewQuadratic(seed, id, parameters)
	m := &Model{Outer: newOuter(q.Start), optimum: q.Optimum, target: q.Target, local: make([]float32, parameters)}
	m.restart()
	return m
}

// restart begins the inner steps of a round at the outer state.
func (m *Model) restart() {
	m.Outer.read(func(s *Snapshot) { copy(m.local, s.parameters) })
}

// InnerStep moves the local parameters towards the worker's own target.
func (m *Model) InnerStep() {
	for i, t := range m.target {
		m.local[i] += float32(InnerLearningRate * (t - m.local[i]))
	}
}

// PseudoGradient writes the outer parameters − the local ones to out.
func (m *Model) PseudoGradient(out []float32) {
	m.Outer.read(func(s *Snapshot) {
		for i, o := range s.parameters {
			out[i] = o - m.local[i]
		}
	})
}

// OuterStep applies the mean pseudo-gradient. outcome is the gradient in
// quantised form, for peers that miss the step, or nil if there is none.
func (m *Model) OuterStep(gradient []float32, outcome *codec.Outcome) {
	m.Outer.step(gradient, outcome)
	m.restart()
}

// Replace goes on from an outer state that was fetched or read, and takes it
// over.
func (m *Model) Replace(s *Snapshot) {
	m.Outer.replace(s)
	m.restart()
}

// Loss returns the mean squared distance of the outer parameters from the
// optimum.
func (m *Model) Loss() (loss float64) {
	m.Outer.read(func(s *Snapshot) {
		sum := 0.0
		for i, o := range s.parameters {
			d := float64(o - m.optimum[i])
			sum += d * d
		}
		loss = sum / float64(len(s.parameters))
	})
	return loss
}
