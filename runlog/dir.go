package runlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Files of a run directory.
const (
	EventsFile  = "events.jsonl"
	SummaryFile = "summary.json"
	PlanFile    = "plan.json"
	// EnvironmentFile has an Environment.
	EnvironmentFile = "environment.json"
	LogsDir         = "logs"
)

// Dir is the directory that keeps everything about one run.
type Dir string

// CreateDir makes a run directory. It refuses one that already holds
// something, so that no run overwrites another.
func CreateDir(path string) (Dir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("making the run directory: %w", err)
	}
	entries, err := os.ReadDir(abs)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("making the run directory: %w", err)
	}
	if len(entries) > 0 {
		return "", fmt.Errorf("the run directory %s is not empty; choose another with --out", path)
	}
	if err := os.MkdirAll(abs, 0o755); err != nil {
		return "", fmt.Errorf("making the run directory (choose another place with --out): %w", err)
	}
	return Dir(abs), nil
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
