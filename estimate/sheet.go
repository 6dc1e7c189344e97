package estimate

import (
	"fmt"
	"math"
	"reflect"
	"strings"
)

// Sheet is a sweep, with the run that it varies, in words and figures.
type Sheet struct {
	Headline string     `json:"headline"` // result of the last variant
	Answers  []Answer   `json:"answers"`  // of the run itself, by variant
	Replaced []Row      `json:"replaced"` // effect of measured terms on the run itself
	Settings []string   `json:"settings"` // NAME=VALUE of inputs that differ from their defaults
	MaxDays  float64    `json:"maxDays"`  // limit of a run; 0 if points differ in it
	Columns  []string   `json:"columns"`  // of Rows
	Rows     [][]string `json:"rows"`     // the first points in words, at most MaxRows
	Table    string     `json:"table"`    // all points, as from WriteCSV
}

// MaxRows is the number of points that a Sheet has in words.
const MaxRows = 1000

// Sheet computes all points, and the run itself.
func (s *Sweep) Sheet() (Sheet, error) {
	x := Sheet{Answers: []Answer{}, Replaced: []Row{}, Settings: s.settings(), Columns: s.columns()}
	if err := s.Run.Check(); err != nil {
		return x, err
	}
	for _, v := range s.Variants {
		if v != Measured {
			x.Answers = append(x.Answers, Explain(s.Run.Inputs, v).Answer())
			continue
		}
		c := Compare(s.Run, *s.Measured)
		x.Answers, x.Replaced = append(x.Answers, c.Measured.Answer()), c.Replaced()
	}
	var table strings.Builder
	if err := s.WriteCSV(&table); err != nil {
		return x, err
	}
	x.Table = table.String()
	return x, s.summarise(&x)
}

// summarise fills in the rows and the headline, from the last of the variants.
func (s *Sweep) summarise(x *Sheet) error {
	last := s.Variants[len(s.Variants)-1]
	points, within, fewest, limit := 0, 0, math.Inf(1), math.NaN()
	var best []string
	err := s.each(func(at []int, v Variant, r *Results) error {
		if len(x.Rows) < MaxRows {
			x.Rows = append(x.Rows, s.cells(at, v, r))
		}
		if v != last {
			return nil
		}
		if points++; points == 1 {
			limit = r.MaxDays
		}
		if r.MaxDays != limit {
			limit = 0
		}
		if r.feasible() {
			within++
		}
		if r.Days < fewest {
			fewest, best = r.Days, s.set(at)
		}
		return nil
	})
	if err != nil {
		return err
	}
	count := fmt.Sprintf("%d of %d points are", within, points)
	switch {
	case points == 1 && within == 0:
		count = "the run is not"
	case points == 1:
		count = "the run is"
	case within == 0:
		count = fmt.Sprintf("none of the %d points is", points)
	case within == points:
		count = fmt.Sprintf("all %d points are", points)
	case within == 1:
		count = fmt.Sprintf("1 of %d points is", points)
	}
	run := "The shortest run takes"
	if points == 1 {
		run = "It takes"
	}
	with := ""
	switch n := len(best); {
	case n == 1:
		with = ", with " + best[0]
	case n > 1:
		with = ", with " + strings.Join(best[:n-1], ", ") + " and " + best[n-1]
	}
	what := "the time that a run may take"
	if x.MaxDays = limit; limit > 0 {
		what = "the limit of " + trim(limit) + " days for a run"
	}
	how := last.how()
	x.Headline = fmt.Sprintf("%s, %s within %s. %s %s days%s.", strings.ToUpper(how[:1])+how[1:], count, what, run, trim(fewest), with)
	return nil
}

// settings are the inputs that differ from their defaults, as for --set.
func (s *Sweep) settings() []string {
	all, run, defaults := []string{}, reflect.ValueOf(s.Run), reflect.ValueOf(Run{Defaults(), DefaultFurther()})
	if s.Measured == nil {
		run, defaults = reflect.ValueOf(s.Run.Inputs), reflect.ValueOf(Defaults())
	}
	for _, f := range reflect.VisibleFields(run.Type()) {
		name, v := f.Tag.Get("json"), run.FieldByIndex(f.Index)
		if name != "" && !v.Equal(defaults.FieldByIndex(f.Index)) {
			all = append(all, fmt.Sprintf("%s=%v", name, v))
		}
	}
	return all
}
