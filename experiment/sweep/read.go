package sweep

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"testbed/record"
)

// Files of a sweep's directory, beside the scenario.
const (
	TableFile  = "results.jsonl"
	CSVFile    = "results.csv"
	HeaderFile = "columns.json" // what the columns of TableFile mean
)

// Results is a sweep as stored in its directory.
type Results struct {
	Summary
	// Rows has the finished points of each of the summary's cells, in the order of
	// the table.
	Rows [][]Row
}

// Is reports whether a directory is that of a sweep.
func Is(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, TableFile))
	return err == nil
}

// Read reads the directory of a sweep. If the table has more points than the
// last command asked for, only those of the last command count.
func Read(dir string) (*Results, error) {
	name := filepath.Join(dir, record.SummaryFile)
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no %s, so the sweep has not finished; repeat its command with --resume --out %[1]s", dir, record.SummaryFile)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the sweep: %w", err)
	}
	r := &Results{}
	if err := json.Unmarshal(text, &r.Summary); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	r.Dir = dir // it may have been moved since
	var raw struct {
		Cells []struct{ Set json.RawMessage }
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(raw.Cells) == 0 {
		return nil, fmt.Errorf("%s: the file has no cells, so it is not the summary of a sweep", name)
	}
	cells := map[string]int{} // by their settings, as both files write them
	for i, c := range raw.Cells {
		var set bytes.Buffer
		if err := json.Compact(&set, c.Set); err != nil {
			return nil, fmt.Errorf("%s: cell %d: the field set is missing", name, i)
		}
		if r.Cells[i].Set, err = parseAssignment(set.Bytes()); err != nil {
			return nil, fmt.Errorf("%s: cell %d: %w", name, i, err)
		}
		cells[set.String()] = i
	}
	r.Rows = make([][]Row, len(r.Cells))
	name = filepath.Join(dir, TableFile)
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading the sweep: %w", err)
	}
	defer file.Close()
	if err := r.readTable(name, file, cells); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

func (r *Results) readTable(name string, in io.Reader, cells map[string]int) error {
	check := func(h header) error {
		switch {
		case h.Sweep != Schema:
			return fmt.Errorf("the table has version %d of the format, but this testbed reads version %d; use the testbed that wrote it", h.Sweep, Schema)
		case h.Scenario != r.Scenario:
			return fmt.Errorf("the table has points of scenario %s, but %s is of scenario %s; restore an intact copy", h.Scenario, record.SummaryFile, r.Scenario)
		}
		return nil
	}
	var h header
	lines := bufio.NewReader(in)
	known := map[string]int{} // lines, by key
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // an incomplete last line is ignored
		}
		if err != nil {
			return err
		}
		if n == 1 {
			var within bool
			if h, within = asHeader(line); within {
				if err := check(h); err != nil {
					return err
				}
				continue
			}
			if h, err = readHeader(name); err == nil {
				err = check(h)
			}
			if err != nil {
				return err
			}
		}
		var row Row
		var raw struct{ Set json.RawMessage }
		if err := errors.Join(json.Unmarshal(line, &row), json.Unmarshal(line, &raw)); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if before := known[row.Key]; before > 0 {
			return fmt.Errorf("line %d: the point %s is already in line %d; the table is damaged: restore an intact copy", n, row.Key, before)
		}
		known[row.Key] = n
		i, ok := cells[string(raw.Set)]
		if !ok || !slices.Contains(r.Seeds, row.Seed) || row.Repeat > r.Repeats || !slices.Contains(r.Policies, row.Policy) || row.World != r.World {
			continue
		}
		row.Set = r.Cells[i].Set
		r.Rows[i] = append(r.Rows[i], row)
	}
}
