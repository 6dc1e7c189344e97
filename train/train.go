// Package train says what a run trains: parameters as one flat vector, and inner
// steps that lead from the outer parameters of a round to local ones. What it
// trains on and how is behind the interface; who averages, when, and over which
// network is the caller's business.
package train

import (
	"context"
	"errors"
)

// Layer is a named part of the flat parameter vector.
type Layer struct {
	Name    string
	Shape   []int // its product is Len
	At, Len int   // the part is parameters[At : At+Len]
}

// Task is what a run trains: the same for all its workers. It is safe for
// concurrent use, and everything it returns follows from how it was made, bit by
// bit, on every machine.
type Task interface {
	// Layers are in order and without gaps; their sum is the number of
	// parameters.
	Layers() []Layer
	// Start returns the initial parameters, the same for all workers, in a slice
	// of the caller's own.
	Start() []float32
	// Trainer returns the inner optimiser of a worker on its own shard of the
	// data. Workers count from 0.
	Trainer(worker int) (Trainer, error)
	// Validate returns the loss on what no worker trains on: in nats a byte for a
	// language model, the mean squared distance from the optimum for Quadratic. The
	// error is ErrNoLoss if there is none.
	Validate(parameters []float32) (loss float64, err error)
	// TokensPerStep is how many tokens an inner step trains on; 0 if none.
	TokensPerStep() int
}

// ErrNoLoss says that a task has no validation loss.
var ErrNoLoss = errors.New("the task has no validation loss")

// Trainer takes a worker's inner steps. It has one user at a time. What a step
// does follows from the task, the worker, the optimiser's state, the outer
// parameters and the numbers of round and step, and from nothing else: whatever
// was thrown away before, the rest is the same.
type Trainer interface {
	// Begin begins the inner steps of a round at the outer parameters, which it
	// does not hold on to. Steps of a round that is not kept leave no trace. A round
	// that has been kept may begin again, and then goes on from where it did the
	// first time.
	Begin(ctx context.Context, round int, outer []float32) error
	// Step takes inner step n of the round, from 1 on, and returns the training
	// loss of its batch before the step.
	Step(ctx context.Context, n int) (loss float64, err error)
	// Finish ends the round and writes the parameters after its steps to local. It
	// belongs to the last step, and ends with that one's context.
	Finish(local []float32) error
	// Keep says that the round that Finish ended counts: the inner optimiser's
	// next one goes on from it.
	Keep()
	// State returns the inner optimiser's state after the last round that was
	// kept, for checkpoints.
	State() ([]byte, error)
	// Restore goes on from a state; an error leaves the one before. A round that
	// was begun is over.
	Restore(state []byte) error
	Close() error
}

// Processes is a Trainer that computes in processes of its own. It returns their numbers.
type Processes interface {
	Processes() []int
}

// Adjuster is a Trainer that lets its user change the local parameters between two
// steps of a round.
type Adjuster interface {
	Adjust(change func(local []float32))
}
