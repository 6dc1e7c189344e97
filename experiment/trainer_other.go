//go:build !linux

package experiment

import (
	"context"

	"testbed/internal/errs"
	"testbed/scenarios"
)

var errElsewhere error = &errs.UnsupportedError{Missing: "training with a program of your own needs Linux", Fix: "use a Linux machine"}

type trainers struct{}

func newTrainers() (*trainers, error) { return nil, errElsewhere }

func (*trainers) with(context.Context, *scenarios.Scenario, func(*scenarios.Scenario) error) error {
	return errElsewhere
}

func (*trainers) close() error { return nil }

func withTrainer(context.Context, *scenarios.Scenario, func(*scenarios.Scenario) error) error {
	return errElsewhere
}
