package estimate

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"testbed/internal/errs"
)

// maxPoints keeps a sweep in memory.
const maxPoints = 1_000_000

// Axis is an input with its values in a sweep.
type Axis struct {
	Input  string   `json:"input"`
	Values []string `json:"values"` // as they were written
	index  []int    // of the field in a Run
	fields []reflect.Value
}

// ParseAxis reads NAME=V1,V2,…. assign sets an input of a run to a value.
func ParseAxis(text string, assign func(r *Run, name, value string) error) (Axis, error) {
	name, values, ok := strings.Cut(text, "=")
	if !ok {
		return Axis{}, fmt.Errorf("%q must be NAME=V1,V2,…, such as numNodes=16,32,64", text)
	}
	a := Axis{Input: name}
	for value := range strings.SplitSeq(values, ",") {
		var r Run
		value = strings.TrimSpace(value)
		if err := assign(&r, name, value); err != nil {
			return Axis{}, err
		}
		if slices.Contains(a.Values, value) {
			return Axis{}, &errs.FieldError{Field: name, Problem: "takes the value " + value + " twice; keep one"}
		}
		a.index = fieldIndex(reflect.TypeFor[Run](), name)
		a.Values = append(a.Values, value)
		a.fields = append(a.fields, reflect.ValueOf(r).FieldByIndex(a.index))
	}
	return a, nil
}

// Text is the input of ParseAxis, with numbers in one format.
func (a Axis) Text() string {
	var values []string
	for _, f := range a.fields {
		values = append(values, fmt.Sprint(f))
	}
	return a.Input + "=" + strings.Join(values, ",")
}

// fieldIndex finds an input by its name, which assign has accepted.
func fieldIndex(t reflect.Type, name string) []int {
	for _, f := range reflect.VisibleFields(t) {
		if f.Tag.Get("json") == name {
			return f.Index
		}
	}
	panic("estimate: no input " + name)
}

// Point is one estimate of a sweep. Names are those of the results.
type Point struct {
	Set             map[string]any `json:"set"` // the axes' inputs
	Variant         Variant        `json:"variant"`
	Mode            string         `json:"mode"`
	Days            float64        `json:"days"`
	RawDays         float64        `json:"rawDays"`
	Efficiency      float64        `json:"efficiency"`
	GlobalMFU       float64        `json:"globalMfu"`
	ComputeBlockSec float64        `json:"computeBlockSec"`
	GlobalCommSec   float64        `json:"globalCommSec"`
	Bottleneck      string         `json:"bottleneck"`
	Feasible        bool           `json:"feasible"`
}

// Sweep is a run computed for every combination of the axes' values, the last
// axis varying first.
type Sweep struct {
	Run      Run
	Axes     []Axis
	Variants []Variant
	Measured *Measurements // for the variant of that name
}

// Check reports what is wrong with the axes themselves.
func (s *Sweep) Check() error {
	points := len(s.Variants)
	seen := map[string]bool{}
	for _, a := range s.Axes {
		if seen[a.Input] {
			return &errs.FieldError{Field: a.Input, Problem: "is swept twice: keep one"}
		}
		seen[a.Input] = true
		if points *= len(a.Values); points > maxPoints {
			return errs.Fieldf(a.Input, "makes more than %d points: give fewer values", maxPoints)
		}
	}
	return nil
}

// each computes the points and calls point for each, with the indices of its
// values. It ends at the first impossible value, with a *errs.FieldError.
func (s *Sweep) each(point func(at []int, v Variant, r *Results) error) error {
	run, at := s.Run, make([]int, len(s.Axes))
	fields := make([]reflect.Value, len(s.Axes))
	for k, a := range s.Axes {
		fields[k] = reflect.ValueOf(&run).Elem().FieldByIndex(a.index)
	}
	all := make([]formulas, len(s.Variants))
	for i, v := range s.Variants {
		all[i] = published(v)
		if v == Measured {
			all[i] = corrected(everyCorrection, s.Measured, &run.Further)
		}
	}
	var axis func(k int) error
	axis = func(k int) error {
		if k == len(s.Axes) {
			if err := run.Check(); err != nil {
				return s.where(err, at)
			}
			for i := range all {
				q := quantify(&run.Inputs, all[i])
				r := q.results(&run.Inputs)
				if err := point(at, s.Variants[i], &r); err != nil {
					return err
				}
			}
			return nil
		}
		for i, v := range s.Axes[k].fields {
			at[k] = i
			fields[k].Set(v)
			if err := axis(k + 1); err != nil {
				return err
			}
		}
		return nil
	}
	return axis(0)
}

// where adds to an error the point at which it occurred.
func (s *Sweep) where(err error, at []int) error {
	var wrong *errs.FieldError
	if !errors.As(err, &wrong) {
		return err
	}
	return &errs.FieldError{Field: wrong.Field, Problem: wrong.Problem + " (with " + strings.Join(s.set(at), ", ") + ")"}
}

// set names the values of a point.
func (s *Sweep) set(at []int) (all []string) {
	for k, a := range s.Axes {
		all = append(all, a.Input+"="+a.Values[at[k]])
	}
	return all
}

// Points computes all points.
func (s *Sweep) Points() ([]Point, error) {
	var all []Point
	err := s.each(func(at []int, v Variant, r *Results) error {
		set := make(map[string]any, len(at))
		for k, a := range s.Axes {
			set[a.Input] = a.fields[at[k]].Interface()
		}
		all = append(all, Point{set, v, r.Mode, r.Days, r.RawDays, r.Efficiency, r.GlobalMFU, r.ComputeBlockSec, r.GlobalCommSec, r.Bottleneck, r.feasible()})
		return nil
	})
	return all, err
}

func (r *Results) feasible() bool { return r.Feasibility == feasible }

// WriteCSV computes all points and writes a row for each: the swept inputs,
// then the fields of a Point.
func (s *Sweep) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	var row []string
	for _, a := range s.Axes {
		row = append(row, a.Input)
	}
	if err := out.Write(append(row, "variant", "mode", "days", "rawDays", "efficiency", "globalMfu", "computeBlockSec", "globalCommSec", "bottleneck", "feasible")); err != nil {
		return fmt.Errorf("writing the sweep: %w", err)
	}
	err := s.each(func(at []int, v Variant, r *Results) error {
		row = row[:0]
		for k, a := range s.Axes {
			row = append(row, a.Values[at[k]])
		}
		row = append(row, string(v), r.Mode)
		for _, x := range []float64{r.Days, r.RawDays, r.Efficiency, r.GlobalMFU, r.ComputeBlockSec, r.GlobalCommSec} {
			row = append(row, strconv.FormatFloat(x, 'g', -1, 64))
		}
		return out.Write(append(row, r.Bottleneck, strconv.FormatBool(r.feasible())))
	})
	out.Flush()
	return errors.Join(err, out.Error())
}

// maxShown is the number of rows that are printed. CSV and JSON have all.
const maxShown = 60

// WriteText computes all points and writes them as text: for two axes a matrix
// of days per variant, otherwise a line for each point.
func (s *Sweep) WriteText(w io.Writer) error {
	cells := make([][]string, len(s.Variants))
	var points int
	var line func(at []int, v Variant, r *Results) error
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	matrix := len(s.Axes) == 2
	if matrix {
		line = func(_ []int, _ Variant, r *Results) error {
			i := points % len(s.Variants)
			cells[i] = append(cells[i], marked(r))
			points++
			return nil
		}
	} else {
		fmt.Fprintln(t, strings.Join(s.columns(), "\t")+"\t")
		line = func(at []int, v Variant, r *Results) error {
			if points++; points > maxShown {
				return nil
			}
			fmt.Fprintln(t, strings.Join(s.cells(at, v, r), "\t")+"\t")
			return nil
		}
	}
	if err := s.each(line); err != nil {
		return err
	}
	if matrix {
		for i, v := range s.Variants {
			fmt.Fprintf(w, "days, %s: %s down, %s across\n", v, s.Axes[0].Input, s.Axes[1].Input)
			if err := s.writeMatrix(t, cells[i]); err != nil {
				return err
			}
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if !matrix && points > maxShown {
		fmt.Fprintf(w, "… and %d more of %d points; --csv prints all of them\n", points-maxShown, points)
	}
	_, err := fmt.Fprintln(w, "! marks days beyond the time that a run may take")
	return err
}

// columns are the titles of cells.
func (s *Sweep) columns() (names []string) {
	for _, a := range s.Axes {
		names = append(names, a.Input)
	}
	return append(names, "variant", "days", "learning %", "MFU %", "bottleneck", "mode")
}

// cells are a point in words.
func (s *Sweep) cells(at []int, v Variant, r *Results) (cells []string) {
	for k, a := range s.Axes {
		cells = append(cells, a.Values[at[k]])
	}
	return append(cells, string(v), marked(r), trim(r.Efficiency), trim(r.GlobalMFU), strings.ToLower(r.Bottleneck), r.Mode)
}

// marked writes days, and marks those beyond the limit.
func marked(r *Results) string {
	if r.feasible() {
		return trim(r.Days) + "  "
	}
	return trim(r.Days) + " !"
}

func (s *Sweep) writeMatrix(t *tabwriter.Writer, cells []string) error {
	down, across := s.Axes[0].Values, s.Axes[1].Values
	fmt.Fprint(t, "\t")
	for _, v := range across {
		fmt.Fprint(t, v, "  \t")
	}
	fmt.Fprintln(t)
	for i, v := range down {
		fmt.Fprintf(t, "%s\t%s\t\n", v, strings.Join(cells[i*len(across):(i+1)*len(across)], "\t"))
	}
	return t.Flush()
}
