// Package train defines training in a run: parameters as one flat vector, and
// inner steps that lead from the outer parameters of a round to local ones.
// Data and optimiser are behind the interface. Averaging and the network are
// the caller's business.
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

// Task is the training task of a run, the same for all its workers. It is safe
// for concurrent use. All its results depend only on how it was made, bit by
// bit, on every machine.
type Task interface {
	// Layers are in order and without gaps. Together they are all parameters.
	Layers() []Layer
	// Start returns the initial parameters, the same for all workers, in a new
	// slice.
	Start() []float32
	// Trainer returns the inner optimiser of a worker on its own shard of the
	// data. Workers count from 0.
	Trainer(worker int) (Trainer, error)
	// Validate returns the loss on held-out data: in nats a byte for a language
	// model, the mean squared distance from the optimum for Quadratic. The error
	// is ErrNoLoss if there is none.
	Validate(parameters []float32) (loss float64, err error)
	// TokensPerStep is the number of tokens of an inner step; 0 if there are none.
	TokensPerStep() int
}

// ErrNoLoss says that a task has no validation loss.
var ErrNoLoss = errors.New("the task has no validation loss")

// Trainer takes a worker's inner steps. It has one user at a time. A step
// depends on the task, the worker, the optimiser's state, the outer parameters
// and the numbers of round and step, and on nothing else. So discarded steps
// have no influence.
type Trainer interface {
	// Begin begins the inner steps of a round at the outer parameters, which it
	// does not retain. Steps of a round that is not kept leave no trace. A round
	// that has been kept may begin again, from the same optimiser's state as the
	// first time.
	Begin(ctx context.Context, round int, outer []float32) error
	// Step takes inner step n of the round, from 1 on, and returns the training
	// loss of its batch before the step.
	Step(ctx context.Context, n int) (loss float64, err error)
	// Finish ends the round and writes the parameters after its steps to local. It
	// belongs to the last step, and ends with that step's context.
	Finish(local []float32) error
	// Keep confirms the round that Finish ended: the inner optimiser continues
	// from it.
	Keep()
	// State returns the inner optimiser's state after the last kept round, for
	// checkpoints.
	State() ([]byte, error)
	// Restore sets the state. After an error the state is as before. A round that
	// was begun is over.
	Restore(state []byte) error
	Close() error
}

// Processes is a Trainer that computes in processes of its own. It returns their numbers.
type Processes interface {
	Processes() []int
}

// Adjuster is a Trainer whose local parameters can be changed between two steps
// of a round.
type Adjuster interface {
	Adjust(change func(local []float32))
}
