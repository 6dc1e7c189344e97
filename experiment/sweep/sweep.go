// Package sweep varies fields of a scenario: the grid of assignments, the
// points that it makes with seeds and policies, the table of their results, and
// the summary. The caller provides the function that plays a point.
package sweep

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"testbed/policy/program"
	"testbed/record"
	"testbed/scenarios"
	"testbed/train/task"
)

// Limits keep a sweep in memory.
const (
	maxPoints = 1_000_000
	maxFields = 32
)

// Axis is a field with the values it takes.
type Axis struct {
	Field  string   `json:"field"`  // The path of the field in the scenario.
	Values []string `json:"values"` // The values, as they were written.
}

// ParseAxis reads FIELD=V1,V2,…; the errors of a field or a value are
// *scenarios.Error.
func ParseAxis(text string) (Axis, error) {
	field, values, ok := strings.Cut(text, "=")
	if !ok {
		return Axis{}, invalid(text, "has no values: write for example policy.straggler.k=1,2,3")
	}
	a := Axis{Field: field}
	for value := range strings.SplitSeq(values, ",") {
		value = strings.TrimSpace(value)
		if slices.Contains(a.Values, value) {
			return Axis{}, invalid(field, fmt.Sprintf("takes the value %s twice: keep one", value))
		}
		if _, err := newSetting(field, value); err != nil {
			return Axis{}, err
		}
		a.Values = append(a.Values, value)
	}
	return a, nil
}

// newSetting makes a setting of a field that a sweep may vary.
func newSetting(field, value string) (scenarios.Setting, error) {
	if field == "seed" {
		return scenarios.Setting{}, invalid(field, "cannot be varied as a field: give the seeds with --seeds")
	}
	return scenarios.NewSetting(field, value)
}

func invalid(field, problem string) error {
	return &scenarios.Error{Field: field, Problem: problem}
}

// Assignment is the settings of one cell of a sweep.
type Assignment []scenarios.Setting

// MarshalJSON writes an object of fields and values; numbers are written as
// numbers.
func (a Assignment) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, s := range a {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(s.Field)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		if _, err := strconv.ParseFloat(s.Value, 64); err == nil && json.Valid([]byte(s.Value)) {
			b.WriteString(s.Value)
			continue
		}
		value, err := json.Marshal(s.Value)
		if err != nil {
			return nil, err
		}
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// Value returns the assignment's value of a field, and "" for a field that it
// does not set.
func (a Assignment) Value(field string) string {
	for _, s := range a {
		if s.Field == field {
			return s.Value
		}
	}
	return ""
}

func (a Assignment) String() string {
	parts := make([]string, len(a))
	for i, s := range a {
		parts[i] = s.Field + "=" + s.Value
	}
	return strings.Join(parts, " ")
}

// ParseList reads one assignment a line, as JSON objects such as
// {"inner_steps": 4, "real.links.default.loss": "1%"}. The file name is used in
// errors, which are *scenarios.Error.
func ParseList(file string, data []byte) ([]Assignment, error) {
	var list []Assignment
	for n, line := range bytes.Split(data, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		a, err := parseAssignment(line)
		if err != nil {
			return nil, &scenarios.Error{File: file, Line: n + 1, Problem: err.Error()}
		}
		list = append(list, a)
	}
	if len(list) == 0 {
		return nil, &scenarios.Error{File: file, Problem: "the file contains no assignment; write one JSON object on each line"}
	}
	return list, nil
}

func parseAssignment(line []byte) (Assignment, error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New(`the assignment is not a JSON object; write for example {"inner_steps": 4}`)
	}
	var a Assignment
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("the assignment is not a JSON object: %w", err)
		}
		field := key.(string) // of an object
		value, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("%s is not JSON: %w", field, err)
		}
		var text string
		switch v := value.(type) {
		case string:
			text = v
		case json.Number:
			text = v.String()
		default:
			return nil, fmt.Errorf("%s must be a single number or text", field)
		}
		s, err := newSetting(field, text)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(a, func(o scenarios.Setting) bool { return o.Field == field }) {
			return nil, fmt.Errorf("%s is given twice: keep one", field)
		}
		a = append(a, s)
	}
	if _, err := dec.Token(); err != nil {
		return nil, errors.New("the assignment is not a JSON object: the object does not end")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("text follows the JSON object; write one object on each line")
	}
	return a, nil
}

// Grid returns the cartesian product of the list and the axes. The last axis
// varies first, and each combination follows each assignment of the list.
// Without a list it is the axes' product alone. Without either it is one empty
// assignment.
func Grid(list []Assignment, axes []Axis) ([]Assignment, error) {
	cells := list
	if len(cells) == 0 {
		cells = []Assignment{nil}
	}
	for i, axis := range axes {
		if i >= maxFields {
			return nil, invalid(axis.Field, fmt.Sprintf("is one field too many: at most %d fields can be varied", maxFields))
		}
		if len(cells)*len(axis.Values) > maxPoints {
			return nil, invalid(axis.Field, fmt.Sprintf("makes more than %d points: give fewer values", maxPoints))
		}
		var next []Assignment
		for _, cell := range cells {
			if cell.Value(axis.Field) != "" {
				return nil, invalid(axis.Field, "is given twice: keep one")
			}
			for _, value := range axis.Values {
				s, err := newSetting(axis.Field, value)
				if err != nil {
					return nil, err
				}
				next = append(next, append(slices.Clone(cell), s))
			}
		}
		cells = next
	}
	seen := make(map[string]bool, len(cells))
	for _, c := range cells {
		if seen[c.String()] {
			return nil, invalid("--list", fmt.Sprintf("has the assignment %q twice: keep one", c.String()))
		}
		seen[c.String()] = true
	}
	return cells, nil
}

// ParseSeeds reads A..B, both included, or a single seed.
func ParseSeeds(text string) ([]uint64, error) {
	first, last, isRange := strings.Cut(text, "..")
	if !isRange {
		last = first
	}
	a, err := strconv.ParseUint(first, 10, 64)
	b, err2 := strconv.ParseUint(last, 10, 64)
	switch {
	case err != nil || err2 != nil || b < a:
		return nil, invalid("--seeds", fmt.Sprintf("%q is not a range of whole numbers; write for example 1..10", text))
	case b-a >= maxPoints:
		return nil, invalid("--seeds", fmt.Sprintf("%q has more than %d seeds; give fewer", text, maxPoints))
	}
	seeds := make([]uint64, b-a+1)
	for i := range seeds {
		seeds[i] = a + uint64(i)
	}
	return seeds, nil
}

// Plan determines the points: every cell with every seed, repeat and policy.
type Plan struct {
	Scenario *scenarios.Scenario
	// Text is the scenario's source; it is part of the points' keys.
	Text    []byte
	World   string // record.Sim or record.Real
	How     string // everything else that a result depends on, for the keys
	Network string // of the simulator, if that is not churn\'s
	// Train reports that the sweep trains: every point trains as the section train
	// of the scenario demands.
	Train bool
	// Target is the validation loss for times to a loss; 0: the first policy's
	// final loss in the first cell.
	Target   float64
	Cells    []Assignment
	Seeds    []uint64
	Repeats  int
	Policies []string
}

// worldName is the name of the world in which the points are played.
func (p *Plan) worldName() string {
	if p.World == record.Sim && p.Network != "" {
		return record.SimLinks
	}
	return p.World
}

// Check validates the scenario of every cell, and with it the parameters of policies,
// and returns the first error.
func (p *Plan) Check() error {
	if n := float64(len(p.Cells)) * float64(len(p.Seeds)) * float64(p.Repeats) * float64(len(p.Policies)); n > maxPoints {
		return invalid("", fmt.Sprintf("the fields, seeds, repeats and policies make %.0f points, but at most %d can be played; give fewer values", n, maxPoints))
	}
	for _, cell := range p.Cells {
		s, err := p.Scenario.With(cell...)
		if err != nil {
			return err
		}
		if p.Train && !s.Train.Real() {
			return invalid("train.task", fmt.Sprintf("has no loss: choose a task that trains a model, for example --set train.task=%s", task.CharLM))
		}
		for _, name := range p.Policies {
			if !program.Is(name) {
				continue // its parameters are fields of the scenario
			}
			if _, err := s.Machine(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// Points is the number of points.
func (p *Plan) Points() int {
	return len(p.Cells) * len(p.Seeds) * p.Repeats * len(p.Policies)
}

// Point is one run of the sweep.
type Point struct {
	Cell   int // position in the plan's cells
	Set    Assignment
	Seed   uint64
	Repeat int // from 1
	Policy string
}

// Point returns a point by its position: policies vary first, then repeats,
// seeds and cells.
func (p *Plan) Point(i int) Point {
	digit := func(base int) int {
		d := i % base
		i /= base
		return d
	}
	var pt Point
	pt.Policy = p.Policies[digit(len(p.Policies))]
	pt.Repeat = 1 + digit(p.Repeats)
	pt.Seed = p.Seeds[digit(len(p.Seeds))]
	pt.Cell, pt.Set = i, p.Cells[i]
	return pt
}

// Keys returns the keys of all points, by their positions. Equal keys are
// points of the same scenario text, assignment, seed, repeat, policy and world.
func (p *Plan) Keys() []string {
	base := p.Digest() + "\n" + p.World + "\n" + p.How + "\n"
	keys := make([]string, p.Points())
	for i := range keys {
		pt := p.Point(i)
		sum := sha256.Sum256([]byte(base + pt.Set.String() + "\n" + fmt.Sprintf("%d %d %s", pt.Seed, pt.Repeat, pt.Policy)))
		keys[i] = hex.EncodeToString(sum[:8])
	}
	return keys
}

// Digest identifies the text of the scenario.
func (p *Plan) Digest() string {
	sum := sha256.Sum256(p.Text)
	return hex.EncodeToString(sum[:])
}

// Fields returns the fields that the cells set, in their order.
func (p *Plan) Fields() []string {
	var fields []string
	seen := map[string]bool{}
	for _, c := range p.Cells {
		for _, s := range c {
			if !seen[s.Field] {
				seen[s.Field] = true
				fields = append(fields, s.Field)
			}
		}
	}
	return fields
}
