package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Files of a run directory.
const (
	EventsFile  = "events.jsonl"
	SummaryFile = "summary.json"
	PlanFile    = "plan.json"
	// ComparisonFile is the result of a comparison, in the directory of its runs.
	ComparisonFile = "comparison.json"
	// EnvironmentFile holds an Environment.
	EnvironmentFile = "environment.json"
	// FidelityFile holds the measurements and verdicts of the emulation, for the
	// run and for every round.
	FidelityFile = "fidelity.json"
	LogsDir      = "logs"
	// ModelFile holds the trained model, if one was trained.
	ModelFile = "model"
	// QueuesFile holds the Queues of a real run, one on a line.
	QueuesFile = "queues.jsonl"
	// QlogDir has a directory for each node, with a file for each of its QUIC
	// connections, if they were asked for.
	QlogDir = "qlog"
)

// Dir is the directory that keeps everything about one run.
type Dir string

// CreateDir makes a run directory. It refuses a directory that is not empty, so
// that no run overwrites another.
func CreateDir(path string) (Dir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("making the run directory: %w", err)
	}
	if err := Free(path); err != nil {
		return "", err
	}
	if err := os.MkdirAll(abs, 0o755); err != nil {
		return "", fmt.Errorf("making the run directory: %w; choose another with --out", err)
	}
	return Dir(abs), nil
}

// Free reports an error if CreateDir would refuse the path.
func Free(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("making the run directory: %w; choose another with --out", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("the run directory %s is not empty; choose another with --out", path)
	}
	return nil
}

// Path returns the path of a file in the directory.
func (d Dir) Path(name string) string { return filepath.Join(string(d), name) }

// Log returns the path of a node's log.
func (d Dir) Log(node string) string { return filepath.Join(string(d), LogsDir, node+".log") }

// WriteFile writes a file of the directory.
func (d Dir) WriteFile(name string, data []byte) error {
	if err := os.WriteFile(d.Path(name), data, 0o644); err != nil {
		return fmt.Errorf("writing the run directory: %w", err)
	}
	return nil
}

// WriteScenario writes a copy of the scenario that can be run: its text, which
// was read from a file of this name, and the files that it names, at the same
// relative paths.
func (d Dir) WriteScenario(file string, source []byte, named map[string][]byte) error {
	name := "scenario.yaml"
	if strings.HasSuffix(file, ".json") {
		name = "scenario.json"
	}
	return errors.Join(d.WriteNamed(named), d.WriteFile(name, source))
}

// WriteNamed writes the files that a scenario names, by their paths relative to
// it.
func (d Dir) WriteNamed(named map[string][]byte) error {
	for name, text := range named {
		if err := os.MkdirAll(filepath.Dir(d.Path(name)), 0o755); err != nil {
			return fmt.Errorf("writing the run directory: %w", err)
		}
		if err := d.WriteFile(name, text); err != nil {
			return err
		}
	}
	return nil
}

// WriteJSON writes a file of the directory as indented JSON. A reader sees the
// old file or the new one, never half of it.
func (d Dir) WriteJSON(name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	temporary := "." + name + ".new"
	if err := d.WriteFile(temporary, append(data, '\n')); err != nil {
		return err
	}
	if err := os.Rename(d.Path(temporary), d.Path(name)); err != nil {
		return fmt.Errorf("writing the run directory: %w", err)
	}
	return nil
}
