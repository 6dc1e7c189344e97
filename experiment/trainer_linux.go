package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"testbed/internal/filelock"
	"testbed/policy"
	"testbed/python"
	"testbed/record"
	"testbed/scenarios"
	"testbed/train/program"
)

// importsFile is where the Python package lists the program's imports; an
// environment variable has the path.
const (
	importsFile = "imports.json"
	envImports  = "TESTBED_IMPORTS"
)

// trainers hold the files of the programs of several runs, and the programs
// themselves between runs if they can wait.
type trainers struct {
	dir  string
	lock *os.File
	warm *program.Warm
	logs atomic.Int64 // number of files for output
}

func newTrainers() (*trainers, error) {
	dir, lock, err := scratch()
	if err != nil {
		return nil, fmt.Errorf("creating a folder for the program's output: %w", err)
	}
	t := &trainers{dir: dir, lock: lock, warm: &program.Warm{}}
	if err := python.Write(filepath.Join(dir, "python")); err != nil {
		return nil, errors.Join(fmt.Errorf("writing the Python package for the program: %w", err), t.close())
	}
	return t, nil
}

// close ends all programs, and removes their files.
func (t *trainers) close() error {
	t.warm.Close()
	err := os.RemoveAll(t.dir)
	if t.lock != nil {
		t.lock.Close()
	}
	return err
}

func withTrainer(ctx context.Context, s *scenarios.Scenario, play func(*scenarios.Scenario) error) (err error) {
	t, err := newTrainers()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	return t.with(ctx, s, play)
}

// with is WithTrainer for a scenario with a program.
func (t *trainers) with(ctx context.Context, s *scenarios.Scenario, play func(*scenarios.Scenario) error) error {
	joins := map[policy.ID]policy.Time{}
	for _, w := range s.Workers {
		joins[w.ID] = w.JoinAt
	}
	imports := filepath.Join(t.dir, importsFile)
	cfg := program.Settings(s.Train, s.Seed, s.InnerSteps, s.TargetOuterSteps, joins).Here(filepath.Join(t.dir, "python"), func(name string) string {
		return filepath.Join(t.dir, fmt.Sprintf("%s.%d.log", name, t.logs.Add(1)))
	})
	cfg.OwnGroup, cfg.Quotes, cfg.Warm = true, true, t.warm
	cfg.Env = append(cfg.Env, envImports+"="+imports)
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
	if asked.Train.Made, err = describeTrainer(s, imports, len(initial)); err != nil {
		return err
	}
	return play(asked)
}

// describeTrainer describes the program of a scenario for the record. The file
// of imports may be missing: other languages have none.
func describeTrainer(s *scenarios.Scenario, imports string, parameters int) (*record.Trainer, error) {
	path, err := s.FindProgram()
	if err != nil {
		return nil, err
	}
	t := &record.Trainer{Command: s.Train.Program, Dir: s.Train.Dir, Path: path, SHA256: map[string]string{}, Parameters: parameters}
	var said struct {
		Python    string            `json:"python"`
		Libraries map[string]string `json:"libraries"`
		Files     []string          `json:"files"`
	}
	const most = 4 << 20 // bytes
	if info, err := os.Stat(imports); err == nil && info.Size() <= most {
		text, err := os.ReadFile(imports)
		if err == nil {
			err = json.Unmarshal(text, &said)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the program's imports: %w", err)
		}
	}
	t.Python, t.Libraries = said.Python, said.Libraries
	files := append([]string{path}, said.Files...)
	for _, argument := range s.Train.Program[1:] {
		if !filepath.IsAbs(argument) {
			argument = filepath.Join(s.Train.Dir, argument)
		}
		files = append(files, argument)
	}
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
			continue // an argument that is not a file
		}
		name := file
		if inner, err := filepath.Rel(s.Train.Dir, file); err == nil && filepath.IsLocal(inner) {
			name = filepath.ToSlash(inner)
		}
		if t.SHA256[name], err = record.FileDigest(file); err != nil {
			return nil, fmt.Errorf("reading the program: %w", err)
		}
	}
	return t, nil
}

const (
	scratchPrefix = "testbed-trainer-"
	// scratchAge is the age at which a folder without a lock is abandoned: its
	// maker would have locked it by then.
	scratchAge = time.Minute
)

// scratch makes a folder that is locked while this process lives, and removes
// the folders of processes that ended without doing so.
func scratch() (dir string, lock *os.File, err error) {
	others, err := filepath.Glob(filepath.Join(os.TempDir(), scratchPrefix+"*"))
	if err != nil {
		return "", nil, err
	}
	for _, other := range others {
		if info, err := os.Stat(other); err != nil || time.Since(info.ModTime()) < scratchAge {
			continue
		}
		lock, err := locked(other)
		if err == nil {
			_ = os.RemoveAll(other) // another user's folder stays
		}
		if lock != nil {
			lock.Close()
		}
	}
	if dir, err = os.MkdirTemp("", scratchPrefix); err != nil {
		return "", nil, err
	}
	if lock, err = locked(dir); err != nil && !errors.Is(err, filelock.ErrUnsupported) { // without locks no process removes another's folder
		return "", nil, errors.Join(err, os.Remove(dir))
	}
	return dir, lock, nil
}

// locked locks a folder until the file is closed, if no process has locked it.
// The file may be returned together with an error.
func locked(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := filelock.Try(f); err != nil {
		return f, err
	}
	return f, nil
}
