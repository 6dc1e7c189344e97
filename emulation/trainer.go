//go:build linux

package emulation

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testbed/emulation/process"
	"testbed/policy"
	"testbed/python"
	"testbed/record"
	"testbed/scenarios"
	"testbed/scenarios/resolved"
	"testbed/train/program"
)

// This folder, in the folder for a run's resumption, has what the run's
// processes need of the program.
const (
	trainerDir = "trainer"
	dirFile    = "dir" // where the program runs
)

// keepTrainer stores in a folder of a run's directory what trainerOf and
// recallTrainer need, if a program trains.
func keepTrainer(s *scenarios.Scenario, dir string) error {
	if !s.Train.Foreign() {
		return nil
	}
	wrap := func(err error) error { return fmt.Errorf("keeping the program's initial parameters: %w", err) }
	if s.Train.Own == nil {
		return wrap(errors.New("the trainer has not been asked for its parameters"))
	}
	dir = filepath.Join(dir, trainerDir)
	if err := python.Write(filepath.Join(dir, process.TrainerPython)); err != nil {
		return wrap(err)
	}
	initial, err := binary.Append(nil, binary.LittleEndian, s.Train.Own.Start())
	if err != nil {
		return wrap(err)
	}
	err = errors.Join(os.WriteFile(filepath.Join(dir, process.TrainerInitial), initial, 0o644), os.WriteFile(filepath.Join(dir, dirFile), []byte(s.Train.Dir), 0o644))
	if err != nil {
		return wrap(err)
	}
	return nil
}

// recallTrainer returns a scenario that was read from a run's directory, with
// the missing facts about its program, which is still at its old place.
func recallTrainer(s *scenarios.Scenario, dir string) (*scenarios.Scenario, error) {
	if !s.Train.Foreign() {
		return s, nil
	}
	wrap := func(err error) error { return fmt.Errorf("reading the trainer's data from the run directory: %w", err) }
	dir = filepath.Join(dir, trainerDir)
	of, err := os.ReadFile(filepath.Join(dir, dirFile))
	if err != nil {
		return nil, wrap(err)
	}
	info, err := os.Stat(filepath.Join(dir, process.TrainerInitial))
	if err != nil {
		return nil, wrap(err)
	}
	if s, err = s.Sized(int(info.Size() / 4)); err != nil {
		return nil, err
	}
	s.Train.Dir = string(of)
	if _, err := s.FindProgram(); err != nil {
		return nil, err
	}
	return s, nil
}

// trainerOf returns what a worker's process in a run's directory needs to run a
// scenario's program. dir is the folder of keepTrainer in it. Nil: no program
// trains.
func trainerOf(r *resolved.Scenario, run record.Dir, dir string) *process.Trainer {
	if !r.Train.Foreign() {
		return nil
	}
	joins := map[policy.ID]policy.Time{}
	for _, w := range r.Workers {
		joins[w.ID] = w.JoinAt
	}
	return &process.Trainer{Config: program.Settings(r.Train, r.Seed, r.InnerSteps, r.TargetOuterSteps, joins), Parameters: r.Parameters, Folder: filepath.Join(dir, trainerDir), Run: run}
}
