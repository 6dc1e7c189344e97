package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testbed/policy"
	"testbed/python"
	"testbed/scenarios"
	"testbed/train/program"
	"time"

	"golang.org/x/sys/unix"
)

func withTrainer(ctx context.Context, s *scenarios.Scenario, play func(*scenarios.Scenario) error) (err error) {
	dir, lock, err := scratch()
	if err != nil {
		return fmt.Errorf("making a folder for what the program says: %w", err)
	}
	defer lock.Close()
	defer func() {
		if err == nil || !strings.Contains(err.Error(), dir) {
			err = errors.Join(err, os.RemoveAll(dir))
			return
		}
		_ = os.WriteFile(filepath.Join(dir, kept), nil, 0o644) // the error names what lies there
	}()
	if err := python.Write(filepath.Join(dir, "python")); err != nil {
		return fmt.Errorf("keeping the Python package for the program: %w", err)
	}
	joins := map[policy.ID]policy.Time{}
	for _, w := range s.Workers {
		joins[w.ID] = w.JoinAt
	}
	cfg := program.Settings(s.Train, s.Seed, s.InnerSteps, s.TargetOuterSteps, joins).Here(filepath.Join(dir, "python"), func(name string) string { return filepath.Join(dir, name+".log") })
	cfg.OwnGroup = true
	initial, err := program.Ask(ctx, cfg)
	if err != nil {
		return fmt.Errorf("asking the program for its initial parameters: %w", err)
	}
	asked, err := s.Sized(len(initial))
	if err != nil {
		return err
	}
	task := program.New(cfg, initial)
	defer task.Close()
	asked.Train.Own = task
	return play(asked)
}

const (
	scratchPrefix = "testbed-trainer-"
	kept          = "kept" // a file in a folder that is to stay
	// scratchAge is how old a folder without a lock is that nobody is about to lock.
	scratchAge = time.Minute
)

// scratch makes a folder that is locked as long as this process is there, and
// removes those of processes that had no time to.
func scratch() (dir string, lock *os.File, err error) {
	others, err := filepath.Glob(filepath.Join(os.TempDir(), scratchPrefix+"*"))
	if err != nil {
		return "", nil, err
	}
	for _, other := range others {
		if info, err := os.Stat(other); err != nil || time.Since(info.ModTime()) < scratchAge {
			continue
		}
		if _, err := os.Stat(filepath.Join(other, kept)); err == nil {
			continue
		}
		if lock, err := locked(other); err == nil {
			_ = os.RemoveAll(other) // another user's stays
			lock.Close()
		}
	}
	if dir, err = os.MkdirTemp("", scratchPrefix); err != nil {
		return "", nil, err
	}
	if lock, err = locked(dir); err != nil {
		return "", nil, errors.Join(err, os.Remove(dir))
	}
	return dir, lock, nil
}

// locked locks a folder, if nobody has, until the file is closed.
func locked(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
