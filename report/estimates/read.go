package estimates

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"

	"testbed/estimate"
	"testbed/scenarios"
)

// file is the output of testbed estimate --json. A sweep has inputs, axes,
// points and perhaps measurements. A run with measured terms has page, further
// and measurements. Any other run has variant, inputs and results.
type file struct {
	Inputs       *estimate.Run          `json:"inputs"`
	Axes         []estimate.Axis        `json:"axes"`
	Points       []estimate.Point       `json:"points"`
	Variant      estimate.Variant       `json:"variant"`
	Results      estimate.Results       `json:"results"`
	Page         *estimate.Estimate     `json:"page"`
	Further      estimate.Further       `json:"further"`
	Measurements *estimate.Measurements `json:"measurements"`
}

// Read reads the output of testbed estimate --json, for a sweep or for a run. A
// single run becomes a sweep without axes. Every error names the file and the
// fix.
func Read(name string) (*estimate.Sweep, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading the estimate: %w", err)
	}
	s, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; name a file with the output of testbed estimate --json", name, err)
	}
	return s, nil
}

func parse(text []byte) (*estimate.Sweep, error) {
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, err
	}
	s := &estimate.Sweep{Measured: f.Measurements}
	switch {
	case f.Page != nil && f.Measurements != nil:
		s.Run = estimate.Run{Inputs: f.Page.Inputs, Further: f.Further}
		f.Results = f.Page.Results
	case f.Inputs == nil:
		return nil, errors.New("the file has no inputs")
	default:
		s.Run = *f.Inputs
	}
	switch {
	case s.Measured != nil:
		s.Variants = everyVariant
		if err := s.Measured.Check(); err != nil {
			return nil, fmt.Errorf("measurements: %w", err)
		}
	case len(f.Points) > 0:
		s.Variants = []estimate.Variant{f.Points[0].Variant}
	default:
		s.Variants = []estimate.Variant{f.Variant}
	}
	if v := s.Variants[0]; v != estimate.Page && v != estimate.Document {
		return nil, fmt.Errorf("variant: %q must be page or document, or there must be measurements", v)
	}
	if s.Measured == nil {
		s.Run.Further = estimate.DefaultFurther()
	}
	if err := s.Run.Check(); err != nil {
		return nil, fmt.Errorf("inputs: %w", err)
	}
	for _, a := range f.Axes {
		axis, err := axis(s, a.Input, a.Values...)
		if err != nil {
			return nil, fmt.Errorf("axes: %w", err)
		}
		s.Axes = append(s.Axes, axis)
	}
	return s, f.check(s)
}

// check compares the file with this program's results: values that were changed
// by hand, or that come from other formulas, must not be shown as if they were
// correct.
func (f *file) check(s *estimate.Sweep) error {
	points := []estimate.Point{{Days: f.Results.Days}}
	if len(f.Axes) > 0 {
		points = f.Points
	}
	if err := s.Check(); err != nil {
		return fmt.Errorf("axes: %w", err)
	}
	want, err := s.Points()
	if err != nil {
		return fmt.Errorf("axes: %w", err)
	}
	if len(f.Axes) > 0 && len(points) != len(want) {
		return fmt.Errorf("the file has %d points, but its axes make %d", len(points), len(want))
	}
	for i, p := range points {
		if !(math.Abs(p.Days-want[i].Days) <= 1e-9*want[i].Days) {
			field := "days"
			if len(f.Axes) > 0 {
				field = fmt.Sprintf("points[%d].days", i)
			}
			return fmt.Errorf("%s is %.10g in the file, but this version computes %.10g", field, p.Days, want[i].Days)
		}
	}
	return nil
}

// axis makes an axis of values.
func axis(s *estimate.Sweep, input string, values ...string) (estimate.Axis, error) {
	return estimate.ParseAxis(join(input, values), func(r *estimate.Run, name, value string) error {
		if s.Measured == nil {
			return scenarios.Assign(&r.Inputs, name, value)
		}
		return scenarios.Assign(r, name, value)
	})
}
