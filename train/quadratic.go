package train

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// InnerLearningRate is the learning rate of Quadratic's inner optimiser, plain
// gradient descent.
const InnerLearningRate = 0.2

// quadratic is the task of NewQuadratic.
type quadratic struct {
	seed    uint64
	optimum []float32
}

// NewQuadratic returns a stand-in for a model, for runs in which only time
// matters. Worker w minimises the squared distance to a target of its own: the
// optimum that all share, plus noise. So workers disagree as workers with
// different data do, and the mean of their pseudo-gradients leads to the
// optimum.
func NewQuadratic(seed uint64, parameters int) Task {
	return &quadratic{seed: seed, optimum: gaussian(seed, 0, parameters)}
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

func (q *quadratic) Layers() []Layer {
	n := len(q.optimum)
	return []Layer{{Name: "parameters", Shape: []int{n}, Len: n}}
}

func (q *quadratic) Start() []float32 { return gaussian(q.seed, 1, len(q.optimum)) }

func (q *quadratic) TokensPerStep() int { return 0 }

func (q *quadratic) Validate(parameters []float32) (float64, error) {
	return meanSquare(parameters, q.optimum), nil
}

// meanSquare returns the mean squared distance. The conversion keeps the
// compiler from fusing operations, which would give other bits on other
// machines.
func meanSquare(a, b []float32) float64 {
	sum := 0.0
	for i, v := range a {
		d := float64(v - b[i])
		sum += float64(d * d)
	}
	return sum / float64(len(a))
}

func (q *quadratic) Trainer(worker int) (Trainer, error) {
	if worker < 0 {
		return nil, fmt.Errorf("trainer of worker %d: workers count from 0", worker)
	}
	target := gaussian(q.seed, 2+uint64(worker), len(q.optimum))
	for i, o := range q.optimum {
		target[i] = o + float32(0.3*target[i])
	}
	return &descent{target: target, local: make([]float32, len(target))}, nil
}

// descent is a trainer of a quadratic task. It has no state.
type descent struct {
	rounds        Rounds
	target, local []float32
}

func (d *descent) Begin(ctx context.Context, round int, outer []float32) error {
	if err := d.rounds.Begin(ctx, round, outer, len(d.local)); err != nil {
		return err
	}
	copy(d.local, outer)
	return nil
}

// lossSample is the number of parameters from which the training loss is
// estimated. They are alike, and runs in which time matters should not spend it
// on all of them.
const lossSample = 4096

func (d *descent) Step(ctx context.Context, n int) (loss float64, err error) {
	if _, err := d.rounds.Step(ctx, n); err != nil {
		return 0, err
	}
	sample := min(len(d.local), lossSample)
	loss = meanSquare(d.local[:sample], d.target)
	for i, t := range d.target {
		d.local[i] += float32(InnerLearningRate * (t - d.local[i]))
	}
	return loss, nil
}

// Adjust implements Adjuster.
func (d *descent) Adjust(change func([]float32)) { change(d.local) }

func (d *descent) Finish(local []float32) error {
	if err := d.rounds.Finish(local, len(d.local)); err != nil {
		return err
	}
	copy(local, d.local)
	return nil
}

func (d *descent) Keep() {}

func (d *descent) State() ([]byte, error) { return nil, nil }

func (d *descent) Restore(state []byte) error {
	d.rounds = Rounds{}
	if len(state) != 0 {
		return fmt.Errorf("restoring an inner optimiser: it has no state, but %d bytes were given", len(state))
	}
	return nil
}

func (d *descent) Close() error { return nil }
