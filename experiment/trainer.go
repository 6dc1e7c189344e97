package experiment

import (
	"context"
	"testbed/scenarios"
)

// AskTrainer returns a scenario with the initial parameters known, for callers
// that start its program elsewhere. Scenarios without a program are returned as
// they are.
func AskTrainer(ctx context.Context, s *scenarios.Scenario) (asked *scenarios.Scenario, err error) {
	err = WithTrainer(ctx, s, func(s *scenarios.Scenario) error {
		asked = s
		return nil
	})
	return asked, err
}

// WithTrainer plays a scenario with its program started and asked for the
// initial parameters. Scenarios without a program are played as they are. After
// play has returned, no process of the program is left.
func WithTrainer(ctx context.Context, s *scenarios.Scenario, play func(*scenarios.Scenario) error) error {
	if !s.Train.Foreign() {
		return play(s)
	}
	if _, err := s.FindProgram(); err != nil {
		return err
	}
	return withTrainer(ctx, s, play)
}
