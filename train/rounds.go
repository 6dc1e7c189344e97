package train

import (
	"context"
	"errors"
	"fmt"
)

// Rounds checks the order of calls of a Trainer. Its zero value is a trainer of
// which no round has begun.
type Rounds struct {
	round, step int
	begun       bool
}

// Begin notes that a round has begun, and checks the number of outer
// parameters.
func (r *Rounds) Begin(ctx context.Context, round int, outer []float32, parameters int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(outer) != parameters {
		return fmt.Errorf("beginning round %d: %d outer parameters were given, but the model has %d", round, len(outer), parameters)
	}
	*r = Rounds{round: round, begun: true}
	return nil
}

// Step notes step n, and returns the round it is in.
func (r *Rounds) Step(ctx context.Context, n int) (round int, err error) {
	switch err := ctx.Err(); {
	case err != nil:
		return 0, err
	case !r.begun:
		return 0, fmt.Errorf("the trainer was asked for inner step %d before a round began", n)
	case n != r.step+1:
		return 0, fmt.Errorf("the trainer was asked for inner step %d of round %d, but the next step is %d", n, r.round, r.step+1)
	}
	r.step++
	return r.round, nil
}

// Finish notes that the round is over.
func (r *Rounds) Finish(local []float32, parameters int) error {
	if !r.begun {
		return errors.New("the trainer was asked to end a round before a round began")
	}
	if len(local) != parameters {
		return fmt.Errorf("ending round %d: there is room for %d local parameters, but the model has %d", r.round, len(local), parameters)
	}
	*r = Rounds{}
	return nil
}
