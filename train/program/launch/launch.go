// Package launch starts the program that a scenario trains with: for a verb that
// plays the scenario, and beside a worker of a real run.
package launch

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"testbed/scenarios"
)

// Find says where the program of a scenario is. The error names the field and the
// mend.
func Find(s *scenarios.Scenario) (path string, err error) {
	name := s.Train.Program[0]
	if strings.ContainsRune(name, filepath.Separator) && !filepath.IsAbs(name) {
		name = filepath.Join(s.Train.Dir, name)
	}
	if path, err = exec.LookPath(name); err != nil {
		return "", &scenarios.Error{File: s.Name, Field: "train.program", Problem: fmt.Sprintf(
			"%q is not there: %v; install it, or write its path from the scenario's folder, %s", s.Train.Program[0], err, s.Train.Dir)}
	}
	return path, nil
}

// Ask returns a scenario of whose program the initial parameters are known, for
// who starts the program elsewhere; others as they are.
func Ask(ctx context.Context, s *scenarios.Scenario) (asked *scenarios.Scenario, err error) {
	err = With(ctx, s, func(s *scenarios.Scenario) error {
		asked = s
		return nil
	})
	return asked, err
}

// With plays a scenario with its program started and asked for the initial
// parameters; with others, play gets them as they are. When play has returned, no
// process of the program is left.
func With(ctx context.Context, s *scenarios.Scenario, play func(*scenarios.Scenario) error) error {
	if !s.Train.Foreign() {
		return play(s)
	}
	if _, err := Find(s); err != nil {
		return err
	}
	return with(ctx, s, play)
}
