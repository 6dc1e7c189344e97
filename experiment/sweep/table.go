package sweep

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"

	"testbed/internal/lines"
	"testbed/policy"
	"testbed/record"
	"testbed/report/learning"
	"testbed/shaping/fidelity"
)

// Row is the result of one point.
type Row struct {
	Key    string     `json:"key"`
	Set    Assignment `json:"set"`
	Seed   uint64     `json:"seed"`
	Repeat int        `json:"repeat"`
	Policy string     `json:"policy"`
	World  string     `json:"world"`
	// WorldName is as in record.WorldName. Older tables lack it.
	WorldName string `json:"world_name,omitempty"`
	Figures
}

// Figures are the figures of a run's summary, with lists as their lengths.
type Figures struct {
	Complete            bool        `json:"complete"`
	WallClock           policy.Time `json:"wall_clock_us"`
	OuterSteps          int         `json:"outer_steps"`
	ComputeFraction     float64     `json:"compute_fraction"`
	BarrierWaitFraction float64     `json:"barrier_wait_fraction"`
	JoinerStall         policy.Time `json:"joiner_stall_us"`
	Sidelined           int         `json:"sidelined"`
	Evicted             int         `json:"evicted"`
	Rejoined            int         `json:"rejoined"`
	BytesSent           int64       `json:"bytes_sent"`
	// Lost is as in record.Work; nil in tables from before it was counted.
	Lost *float64 `json:"lost,omitempty"`
	// Training results; absent if nothing was trained. Loss is the validation loss
	// after the last outer step, Curve the loss after each.
	Loss         *float64         `json:"loss,omitempty"`
	TokensSeen   *int             `json:"tokens_seen,omitempty"`
	TokensLost   *int             `json:"tokens_lost,omitempty"`
	Curve        []learning.Point `json:"curve,omitempty"`
	BitIdentical *bool            `json:"bit_identical"`
	Fidelity     fidelity.Level   `json:"fidelity"`
	Dir          string           `json:"dir,omitempty"`
}

// NewRow makes the row of a point.
func (p *Plan) NewRow(key string, pt Point, sum record.Summary) Row {
	r := Row{Key: key, Set: pt.Set, Seed: pt.Seed, Repeat: pt.Repeat, Policy: pt.Policy, World: p.World, WorldName: p.worldName(), Figures: Figures{
		Complete: sum.Complete, WallClock: sum.WallClock, OuterSteps: sum.OuterSteps,
		ComputeFraction: sum.ComputeFraction, BarrierWaitFraction: sum.BarrierWaitFraction, JoinerStall: sum.JoinerStall,
		Sidelined: len(sum.Sidelined), Evicted: len(sum.Evicted), Rejoined: len(sum.Rejoined),
		BitIdentical: sum.BitIdentical, Fidelity: sum.Fidelity.Verdict, Dir: sum.Dir,
	}}
	if sum.Work != nil {
		r.Lost = &sum.Work.Lost
	}
	if c := learning.NewCurve(sum); len(c.Points) > 0 {
		r.Loss, r.TokensSeen, r.TokensLost, r.Curve = new(c.Final()), &c.Seen, &c.Lost, c.Points
	}
	for _, round := range sum.Rounds {
		r.BytesSent += round.BytesSent
	}
	return r
}

// UnmarshalJSON reads nothing: the key identifies the point's settings.
func (a *Assignment) UnmarshalJSON([]byte) error { return nil }

// Schema is the version of the table's format.
const Schema = 1

// header is the content of HeaderFile. Older programs wrote it as the first
// line of the table.
type header struct {
	Sweep    int               `json:"sweep"`
	Scenario string            `json:"scenario"`
	Digest   string            `json:"scenario_sha256"`
	Columns  map[string]string `json:"columns"`
}

// asHeader reports whether a line is the header of a table of older programs.
func asHeader(line []byte) (h header, is bool) {
	return h, json.Unmarshal(line, &h) == nil && h.Sweep != 0
}

// readHeader reads the header that belongs to a table.
func readHeader(table string) (h header, err error) {
	name := filepath.Join(filepath.Dir(table), HeaderFile)
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return h, fmt.Errorf("the file is not the table of a sweep: there is no %s in its folder; choose another directory", HeaderFile)
	}
	if err != nil {
		return h, fmt.Errorf("reading the meaning of the columns: %w", err)
	}
	if err := json.Unmarshal(text, &h); err != nil || h.Sweep == 0 {
		return h, fmt.Errorf("the file is not the table of a sweep: testbed sweep did not write %s, or the file is damaged; choose another directory", name)
	}
	return h, nil
}

// check reports whether further points of the plan may be added to a table.
func (h header) check(p *Plan) error {
	switch {
	case h.Sweep != Schema:
		return fmt.Errorf("the table has version %d of the format, but this testbed writes version %d; choose another directory", h.Sweep, Schema)
	case h.Digest != p.Digest() && h.Scenario != "" && h.Scenario != p.Scenario.Name:
		return fmt.Errorf("the table contains points of scenario %s, not of %s; choose another directory", h.Scenario, p.Scenario.Name)
	case h.Digest != p.Digest():
		return fmt.Errorf("the table contains points of a different version of scenario %s; choose another directory", p.Scenario.Name)
	}
	return nil
}

// curve is the training curve. It has no points if nothing was trained, or if
// the run was incomplete.
func (f Figures) curve() (c learning.Curve) {
	if !f.Complete || f.Curve == nil {
		return c
	}
	return learning.Curve{Points: f.Curve, Seen: *f.TokensSeen, Lost: *f.TokensLost}
}

// column is a figure of a point. JSON lines have it in the field of Row with
// its name.
type column struct {
	name  string
	what  string // for the header of the table; empty: only in the CSV
	train bool   // only in sweeps that train
	// value is the value in the CSV, with nil pointers as empty cells; nil: only
	// in the table.
	value func(csvRow) any
}

// csvRow is a row, with the loss for times to a loss.
type csvRow struct {
	Row
	target float64
}

// columns are in the order of the CSV.
var columns = []column{
	{"set", "the fields set, by their paths in the scenario file", false, nil}, // the CSV has a column for each
	{"seed", "seed of the run", false, func(r csvRow) any { return r.Seed }},
	{"repeat", "counts real runs of the same point from 1", false, func(r csvRow) any { return r.Repeat }},
	{"policy", "the policy as it was given, with its parameters", false, func(r csvRow) any { return r.Policy }},
	{"world", "sim or real", false, func(r csvRow) any { return r.World }},
	{"world_name", "sim (churn's network), sim_links (the planned links) or real", false, nil},
	{"complete", "all outer steps were done before the horizon", false, func(r csvRow) any { return r.Complete }},
	{"wall_clock_us", "time of the last outer step, µs of scenario time", false, func(r csvRow) any { return r.WallClock }},
	{"outer_steps", "number of outer steps that were done", false, func(r csvRow) any { return r.OuterSteps }},
	{"compute_fraction", "share of the membership time spent in inner steps", false, func(r csvRow) any { return r.ComputeFraction }},
	{"barrier_wait_fraction", "share of the membership time spent waiting for others", false, func(r csvRow) any { return r.BarrierWaitFraction }},
	{"joiner_stall_us", "how long late joiners waited for the state, µs of scenario time", false, func(r csvRow) any { return r.JoinerStall }},
	{"sidelined", "how often a worker was sidelined", false, func(r csvRow) any { return r.Sidelined }},
	{"evicted", "how many workers were evicted", false, func(r csvRow) any { return r.Evicted }},
	{"rejoined", "how often a sidelined worker arrived in time again", false, func(r csvRow) any { return r.Rejoined }},
	{"bytes_sent", "bytes that all workers sent to the ring's streams; 0 in the simulator", false, func(r csvRow) any { return r.BytesSent }},
	{"lost", "share of the contributions that the workers could have made, but that entered no outer step", false, func(r csvRow) any { return r.Lost }},
	{"bit_identical", "all workers ended with the same bytes; null where no bytes moved", false, func(r csvRow) any { return r.BitIdentical }},
	{"fidelity", "verdict on the emulation", false, func(r csvRow) any { return r.Fidelity }},
	{"dir", "directory of the record of a real run", false, func(r csvRow) any { return r.Dir }},
	{"key", "names the point: scenario, set, seed, repeat, policy and world", false, func(r csvRow) any { return r.Key }},
	{"loss", "validation loss after the last outer step, as the task measures it", true, func(r csvRow) any { return r.Loss }},
	{"time_to_loss_us", "", true, func(r csvRow) any {
		if t, ok := r.curve().Reached(r.target); ok {
			return t
		}
		return ""
	}},
	{"tokens_seen", "tokens of the inner steps that entered outer steps", true, func(r csvRow) any { return r.TokensSeen }},
	{"tokens_lost", "tokens of inner steps that were thrown away", true, func(r csvRow) any { return r.TokensLost }},
	{"curve", "the validation loss at the start (round 0) and after each outer step, with the wall-clock and the tokens seen until then; train is the mean training loss of its inner steps", true, nil},
}

// Table is the file of results: a row a point, as JSON lines. HeaderFile has
// the meanings of the columns.
type Table struct {
	file *os.File
	buf  *bufio.Writer
	enc  *json.Encoder
}

// OpenTable opens or makes the table of a plan and returns the rows that it
// already holds, by key. It removes an incomplete last line. The caller closes
// the table.
func OpenTable(path string, p *Plan) (t *Table, done map[string]Row, err error) {
	file, err := lines.Append(path)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the table of results: %w", err)
	}
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the table of results: %w", err)
	}
	if len(text) == 0 {
		if err := writeHeader(path, p); err != nil {
			return nil, nil, err
		}
	}
	if done, err = readRows(path, text, p); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	t = &Table{file: file, buf: bufio.NewWriter(file)}
	t.enc = json.NewEncoder(t.buf)
	return t, done, nil
}

// writeHeader writes the file with the meanings of a table's columns.
func writeHeader(table string, p *Plan) error {
	what := map[string]string{}
	for _, c := range columns {
		if c.what != "" && (p.Train || !c.train) {
			what[c.name] = c.what
		}
	}
	return record.Dir(filepath.Dir(table)).WriteJSON(HeaderFile, header{Sweep: Schema, Scenario: p.Scenario.Name, Digest: p.Digest(), Columns: what})
}

// readRows reads a table that ends with a whole line. A repeated row is an
// error.
func readRows(path string, text []byte, p *Plan) (map[string]Row, error) {
	first, _, _ := bytes.Cut(text, []byte("\n"))
	h, within := asHeader(first)
	if !within {
		var err error
		if h, err = readHeader(path); err != nil {
			return nil, err
		}
	}
	if err := h.check(p); err != nil {
		return nil, err
	}
	done := map[string]Row{}
	line := 0
	for l := range bytes.Lines(text) {
		line++
		if line == 1 && within {
			continue
		}
		var r Row
		if err := json.Unmarshal(l, &r); err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if r.Key == "" {
			return nil, fmt.Errorf("line %d: the row has no key; the table is damaged: restore an intact copy", line)
		}
		if _, twice := done[r.Key]; twice {
			return nil, fmt.Errorf("line %d: the point %s is already in an earlier line; the table is damaged: restore an intact copy", line, r.Key)
		}
		done[r.Key] = r
	}
	return done, nil
}

// Add appends a row. It is on disk after the next Flush.
func (t *Table) Add(r Row) error {
	if err := t.enc.Encode(r); err != nil {
		return fmt.Errorf("writing the table of results: %w", err)
	}
	return nil
}

// Flush writes the added rows to the file.
func (t *Table) Flush() error {
	if err := t.buf.Flush(); err != nil {
		return fmt.Errorf("writing the table of results: %w", err)
	}
	return nil
}

// Close flushes and closes the file.
func (t *Table) Close() error { return errors.Join(t.Flush(), t.file.Close()) }

// WriteCSV writes the finished rows of a plan, in the order of its points.
// Every field that a point sets has a column, which is empty for points that do
// not set it.
func WriteCSV(out io.Writer, p *Plan, keys []string, done map[string]Row) error {
	fields, target := p.Fields(), p.target(keys, done)
	var shown []column
	line := slices.Clone(fields)
	for _, c := range columns {
		if c.value != nil && (p.Train || !c.train) {
			shown, line = append(shown, c), append(line, c.name)
		}
	}
	w := csv.NewWriter(out)
	if err := w.Write(line); err != nil {
		return err
	}
	for i, key := range keys {
		r, ok := done[key]
		if !ok {
			continue
		}
		pt := p.Point(i)
		line = line[:0]
		for _, f := range fields {
			line = append(line, pt.Set.Value(f))
		}
		for _, c := range shown {
			line = append(line, cell(c.value(csvRow{r, target})))
		}
		if err := w.Write(line); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

// cell is a value in a CSV.
func cell(value any) string {
	if v := reflect.ValueOf(value); v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		value = v.Elem().Interface()
	}
	if f, ok := value.(float64); ok {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	return fmt.Sprint(value)
}
