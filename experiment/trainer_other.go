//go:build !linux

package experiment

import (
	"context"
	"errors"
	"fmt"

	"testbed/scenarios"
)

var errElsewhere = fmt.Errorf("training with a program of your own needs Linux: %w", errors.ErrUnsupported)

type trainers struct{}

func newTrainers() (*trainers, error) { return nil, errElsewhere }

func (*trainers) with(context.Context, *scenarios.Scenario, func(*scenarios.Scenario) error) error {
	return errElsewhere
}

func (*trainers) close() error { return nil }

func withTrainer(context.Context, *scenarios.Scenario, func(*scenarios.Scenario) error) error {
	return errElsewhere
}
