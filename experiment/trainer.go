package experiment

import (
	"context"
	"testbed/scenarios"
)

// AskTrainer returns a scenario of whose program the initial parameters are known, for
// who starts the program elsewhere; others as they are.
func AskTrainer(ctx context.Context, s *scenarios.Scenario) (asked *scenarios.Scenario, err error) {
	err = WithTrainer(ctx, s, func(s *scenarios.Scenario) error {
		asked = s
		return nil
	})
	return asked, err
}

// WithTrainer plays a scenario with its program started and asked for the initial
// parameters; with others, play gets them as they are. When play has returned, no
// process of the program is left.
func WithTrainer(ctx context.Context, s *scenarios.Scenario, play func(*scenarios.Scenario) error) error {
	if !s.Train.Foreign() {
		return play(s)
	}
	if _, err := s.FindProgram(); err != nil {
		return err
	}
	return withTrainer(ctx, s, play)
}
