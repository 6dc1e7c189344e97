package launch

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/scenarios/resolved"
	"testbed/train"
	"testbed/train/program"
	"testbed/train/python"
	"testbed/train/task"
)

func with(ctx context.Context, s *scenarios.Scenario, play func(*scenarios.Scenario) error) (err error) {
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
	if err := os.CopyFS(filepath.Join(dir, pythonDir), python.Files); err != nil {
		return fmt.Errorf("keeping the Python package for the program: %w", err)
	}
	joins := map[policy.ID]policy.Time{}
	for _, w := range s.Workers {
		joins[w.ID] = w.JoinAt
	}
	cfg := here(settings(s.Train, s.Seed, s.InnerSteps, s.TargetOuterSteps, joins), filepath.Join(dir, pythonDir), func(name string) string { return filepath.Join(dir, name+".log") })
	cfg.OwnGroup = true
	initial, err := program.Ask(ctx, cfg)
	if err != nil {
		return fmt.Errorf("asking the program for its initial parameters: %w", err)
	}
	asked, err := sized(s, len(initial))
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

// sized returns a copy of a scenario of whose program the size is known.
func sized(s *scenarios.Scenario, parameters int) (*scenarios.Scenario, error) {
	if n := s.Real.Parameters; n != parameters && !s.Unasked() {
		return nil, &scenarios.Error{File: s.Name, Field: "real.parameters", Problem: fmt.Sprintf("is %d, but the program has %d parameters; remove it, or mend one of the two", n, parameters)}
	}
	set, err := scenarios.NewSetting("real.parameters", strconv.Itoa(parameters))
	if err != nil {
		return nil, err
	}
	return s.With(set)
}

// settings say how the program of a section is run, by the workers that join at these
// times.
func settings(t *task.Spec, seed uint64, innerSteps, rounds int, joins map[policy.ID]policy.Time) program.Config {
	// The lowest of a reduction's workers validates.
	first := slices.MinFunc(slices.Collect(maps.Keys(joins)), func(a, b policy.ID) int {
		return cmp.Or(cmp.Compare(joins[a], joins[b]), cmp.Compare(a, b))
	})
	return program.Config{
		Command: t.Program, Dir: t.Dir, Limit: t.Limit(),
		Workers: len(joins), Seed: seed, InnerSteps: innerSteps, Rounds: rounds, Validator: int(first),
	}
}

// here completes settings with what the machine has: where the Python package lies, and
// the files that the program's output goes to.
func here(c program.Config, pythonPath string, log func(name string) string) program.Config {
	if other := os.Getenv("PYTHONPATH"); other != "" {
		pythonPath += string(os.PathListSeparator) + other
	}
	c.Env = []string{"PYTHONPATH=" + pythonPath, "PYTHONUNBUFFERED=1"} // what it said before it was killed counts
	if os.Getenv("OMP_NUM_THREADS") == "" {                            // workers share the machine
		c.Env = append(c.Env, "OMP_NUM_THREADS=1")
	}
	c.Log = func(name string) (*os.File, error) {
		return os.OpenFile(log(name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	}
	return c
}

// What a run's processes need of the program lies in this folder of what the run
// leaves for its resumption.
const (
	folder      = "trainer"
	initialFile = "initial" // float32, little-endian
	dirFile     = "dir"
	pythonDir   = "python"
)

// Keep leaves in a folder of a run's directory what InRun and Recall need, if a
// program trains.
func Keep(s *scenarios.Scenario, dir string) error {
	if !s.Train.Foreign() {
		return nil
	}
	wrap := func(err error) error { return fmt.Errorf("keeping the program's initial parameters: %w", err) }
	if s.Train.Own == nil {
		return wrap(errors.New("it has not been asked for them"))
	}
	dir = filepath.Join(dir, folder)
	if err := os.CopyFS(filepath.Join(dir, pythonDir), python.Files); err != nil {
		return wrap(err)
	}
	initial, err := binary.Append(nil, binary.LittleEndian, s.Train.Own.Start())
	if err != nil {
		return wrap(err)
	}
	err = errors.Join(os.WriteFile(filepath.Join(dir, initialFile), initial, 0o644), os.WriteFile(filepath.Join(dir, dirFile), []byte(s.Train.Dir), 0o644))
	if err != nil {
		return wrap(err)
	}
	return nil
}

// Recall returns a scenario that was read from a run's directory with what it
// lacks of its program, which lies where it lay.
func Recall(s *scenarios.Scenario, dir string) (*scenarios.Scenario, error) {
	if !s.Train.Foreign() {
		return s, nil
	}
	wrap := func(err error) error { return fmt.Errorf("recalling the program: %w", err) }
	dir = filepath.Join(dir, folder)
	of, err := os.ReadFile(filepath.Join(dir, dirFile))
	if err != nil {
		return nil, wrap(err)
	}
	info, err := os.Stat(filepath.Join(dir, initialFile))
	if err != nil {
		return nil, wrap(err)
	}
	if s, err = sized(s, int(info.Size()/4)); err != nil {
		return nil, err
	}
	s.Train.Dir = string(of)
	if _, err := Find(s); err != nil {
		return nil, err
	}
	return s, nil
}

// Kept is what Keep has left in a run's directory for a worker's process, and how the
// program is run beside it: plain values, which travel to the process.
type Kept struct {
	program.Config
	Parameters int        // of the program's model
	Folder     string     // of Keep
	Run        record.Dir // the program's output goes to its logs
}

// InRun returns what a worker's process in a run's directory needs to run the program
// of a scenario; dir is that of Keep in it. Nil: no program trains.
func InRun(r *resolved.Scenario, run record.Dir, dir string) *Kept {
	if !r.Train.Foreign() {
		return nil
	}
	joins := map[policy.ID]policy.Time{}
	for _, w := range r.Workers {
		joins[w.ID] = w.JoinAt
	}
	return &Kept{settings(r.Train, r.Seed, r.InnerSteps, r.TargetOuterSteps, joins), r.Parameters, filepath.Join(dir, folder), run}
}

// Task makes the task of a worker's process.
func (k *Kept) Task() (train.Task, error) {
	data, err := os.ReadFile(filepath.Join(k.Folder, initialFile))
	if err != nil {
		return nil, fmt.Errorf("reading the program's initial parameters: %w", err)
	}
	initial := make([]float32, k.Parameters)
	if _, err := binary.Decode(data, binary.LittleEndian, initial); err != nil {
		return nil, fmt.Errorf("reading the program's initial parameters: %w", err)
	}
	log := func(name string) string { return k.Run.Log(name + ".trainer") }
	return program.New(here(k.Config, filepath.Join(k.Folder, pythonDir), log), initial), nil
}
