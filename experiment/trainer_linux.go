package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"testbed/internal/filelock"
	"testbed/policy"
	"testbed/python"
	"testbed/record"
	"testbed/scenarios"
	"testbed/train/program"
)

// importsFile is where the Python package says what the program has imported; the
// environment tells it the path.
const (
	importsFile = "imports.json"
	envImports  = "TESTBED_IMPORTS"
)

func withTrainer(ctx context.Context, s *scenarios.Scenario, play func(*scenarios.Scenario) error) (err error) {
	dir, lock, err := scratch()
	if err != nil {
		return fmt.Errorf("making a folder for what the program says: %w", err)
	}
	defer lock.Close()
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := python.Write(filepath.Join(dir, "python")); err != nil {
		return fmt.Errorf("keeping the Python package for the program: %w", err)
	}
	joins := map[policy.ID]policy.Time{}
	for _, w := range s.Workers {
		joins[w.ID] = w.JoinAt
	}
	cfg := program.Settings(s.Train, s.Seed, s.InnerSteps, s.TargetOuterSteps, joins).Here(filepath.Join(dir, "python"), func(name string) string { return filepath.Join(dir, name+".log") })
	cfg.OwnGroup, cfg.Quotes = true, true
	asking := cfg
	asking.Env = append(slices.Clone(cfg.Env), envImports+"="+filepath.Join(dir, importsFile))
	initial, err := program.Ask(ctx, asking)
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
	if asked.Train.Made, err = describeTrainer(s, filepath.Join(dir, importsFile), len(initial)); err != nil {
		return err
	}
	return play(asked)
}

// describeTrainer says what the program of a scenario is. The file of imports may be
// missing: other languages have none.
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
			return nil, fmt.Errorf("reading what the program imports: %w", err)
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
			continue // an argument that names no file
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
		lock, err := locked(other)
		if err == nil {
			_ = os.RemoveAll(other) // another user's stays
		}
		if lock != nil {
			lock.Close()
		}
	}
	if dir, err = os.MkdirTemp("", scratchPrefix); err != nil {
		return "", nil, err
	}
	if lock, err = locked(dir); err != nil && !errors.Is(err, filelock.ErrUnsupported) { // without locks nobody removes another's
		return "", nil, errors.Join(err, os.Remove(dir))
	}
	return dir, lock, nil
}

// locked locks a folder, if nobody has, until the file is closed. The file may come
// with an error.
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
