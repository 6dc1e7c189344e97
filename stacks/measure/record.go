package measure

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"testbed/internal/lines"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
)

// Record is the record of a run.
type Record struct {
	Summary record.Summary
	Events  []record.Event
	// Programs is the record of a stack's programs; empty for a policy.
	Programs []record.ProgramEvent
	// Uses have what each worker's node has sent and computed since the beginning of
	// the run, at the end of each round; empty for a stack.
	Uses        []map[string]Use
	Environment record.Environment

	Values     int // float32 values of a pseudo-gradient
	InnerSteps int // in a round
	// Joins are the times at which the scenario's workers come, by scenario time.
	Joins map[policy.ID]policy.Time
}

// Use is what a node has sent, and what its processes have computed.
type Use struct {
	Sent      uint64        `json:"sent_bytes"` // of Ethernet frames
	Processor time.Duration `json:"cpu_ns"`
}

// Read reads the directory of a real run.
func Read(path string) (*Record, error) {
	dir, r := record.Dir(path), &Record{Joins: map[policy.ID]policy.Time{}}
	if err := readJSON(dir.Path(record.SummaryFile), &r.Summary); err != nil {
		return nil, err
	}
	if err := readJSON(dir.Path(record.EnvironmentFile), &r.Environment); err != nil {
		return nil, err
	}
	var err error
	if r.Events, err = readLines[record.Event](dir.Path(record.EventsFile)); err != nil {
		return nil, err
	}
	if r.Summary.Stack != nil {
		if r.Programs, err = readLines[record.ProgramEvent](record.Dir(dir.Path("stack")).Path(record.ProgramsFile)); err != nil {
			return nil, err
		}
	} else if r.Uses, err = readUses(dir.Path(record.FidelityFile)); err != nil {
		return nil, err
	}
	return r, r.readScenario(dir)
}

// readScenario reads what the measures need of the scenario.
func (r *Record) readScenario(dir record.Dir) error {
	file := dir.Path("scenario.yaml")
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		file = dir.Path("scenario.json")
	}
	s, err := scenarios.Load(file)
	if err != nil {
		return err
	}
	values, err := s.Resolve("")
	if err != nil {
		return err
	}
	r.Values, r.InnerSteps = values.Parameters, values.InnerSteps
	for _, w := range values.Workers {
		r.Joins[w.ID] = w.JoinAt
	}
	return nil
}

// readUses reads the uses of nodes from the measurements of the emulation.
func readUses(file string) (all []map[string]Use, err error) {
	var fidelity struct {
		Rounds []struct {
			Nodes map[string]Use `json:"nodes"`
		} `json:"rounds"`
	}
	if err := readJSON(file, &fidelity); err != nil && !errors.Is(err, fs.ErrNotExist) { // a run that was cut short has none
		return nil, err
	}
	for _, round := range fidelity.Rounds {
		all = append(all, round.Nodes)
	}
	return all, nil
}

func readJSON(file string, to any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the record of a run: %w", err)
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("reading the record of a run: %s: %w", file, err)
	}
	return nil
}

func readLines[T any](name string) (all []T, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading the record of a run: %w", err)
	}
	defer file.Close()
	err = lines.Read(file, name, func(_ int, _ []byte, v *T) error {
		all = append(all, *v)
		return nil
	})
	return all, err
}
