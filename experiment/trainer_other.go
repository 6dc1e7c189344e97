//go:build !linux

package experiment

import (
	"context"
	"errors"
	"fmt"

	"testbed/scenarios"
)

func withTrainer(context.Context, *scenarios.Scenario, func(*scenarios.Scenario) error) error {
	return fmt.Errorf("training with a program of your own: %w here; do it on Linux", errors.ErrUnsupported)
}
