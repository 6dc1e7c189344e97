// Package estimates writes the page of an estimate: a sweep of it in pictures,
// and a program in the page that computes it again when an input is moved.
package estimates

import (
	_ "embed" // the page's parts
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"

	"testbed/estimate"
	"testbed/internal/errs"
	"testbed/report/document"
	"testbed/report/words"
)

//go:generate sh wasm/refresh.sh

var (
	//go:embed estimates.html
	pageHTML string
	//go:embed estimates.js
	pageJS string
	//go:embed wasm/estimate.wasm.gz
	program []byte
	//go:embed wasm/wasm_exec.js
	starter string
)

// maxPoints is the number of points that a page and a browser can handle.
const maxPoints = 10_000

var everyVariant = []estimate.Variant{estimate.Page, estimate.Document, estimate.Measured}

// page is the data of the template. Its JSON is the first question to the
// page's program, with the answer.
type page struct {
	Run          estimate.Run           `json:"run"`
	Variants     []estimate.Variant     `json:"variants"`
	Axes         []axisData             `json:"axes"`
	Measurements *estimate.Measurements `json:"measurements"`
	Sheet        estimate.Sheet         `json:"sheet"`
	Rest         string                 `json:"rest"` // of the command, after the settings

	Groups  []group       `json:"-"`
	Program template.HTML `json:"-"` // of digits, letters, +, / and =
	Hidden  int           `json:"-"` // points without a row in the table
}

// axisData is an axis with its values, as they were written and as the program
// reads them.
type axisData struct {
	Input  string   `json:"input"`
	Values []string `json:"values"`
	Text   string   `json:"text"`
}

// WriteHTML writes the page of a sweep as one self-contained HTML file. A sweep
// without axes gets two: nodes and bandwidth around the run's. An impossible
// value is a *errs.FieldError.
func WriteHTML(out io.Writer, s *estimate.Sweep) error {
	p, err := newPage(s)
	if err != nil {
		return err
	}
	return document.Page{
		HTML: pageHTML, Data: p, Funcs: template.FuncMap{"swept": p.swept},
		// The starter gives up with an error if the browser lacks a feature. The rest
		// of the page works without it.
		Script: "try {\n" + starter + "\n} catch {}\n" + pageJS, Computes: true,
	}.Write(out)
}

func newPage(s *estimate.Sweep) (*page, error) {
	if len(s.Axes) == 0 {
		around := *s
		var err error
		if around.Axes, err = neighbours(s); err != nil {
			return nil, err
		}
		s = &around
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	points := len(s.Variants)
	for _, a := range s.Axes {
		if points *= len(a.Values); points > maxPoints {
			return nil, errs.Fieldf(a.Input, "makes more than %d points, the most that a page shows: give fewer values, or use --csv", maxPoints)
		}
	}
	sheet, err := s.Sheet()
	if err != nil {
		return nil, err
	}
	p := &page{
		Run: s.Run, Variants: s.Variants, Measurements: s.Measured, Sheet: sheet,
		Groups: controls(s), Program: template.HTML(base64.StdEncoding.EncodeToString(program)), Hidden: points - len(sheet.Rows),
	}
	var command []string
	if s.Variants[0] == estimate.Document {
		command = append(command, "--variant", "document")
	}
	if s.Measured != nil {
		command = append(command, "--calibration", "calibration.json")
	}
	for _, a := range s.Axes {
		p.Axes = append(p.Axes, axisData{a.Input, a.Values, a.Text()})
		command = append(command, "--sweep", join(a.Input, a.Values))
	}
	p.Rest = words.Typed(append(command, "--html", "estimate.html"))
	return p, nil
}

// neighbours are the axes of a run without axes.
func neighbours(s *estimate.Sweep) (axes []estimate.Axis, err error) {
	for _, n := range []struct {
		input   string
		value   float64
		factors []float64
		whole   bool
	}{
		{"numNodes", s.Run.NumNodes, []float64{.125, .25, .5, 1, 2, 4, 8}, true},
		{"bandwidthMbps", s.Run.BandwidthMbps, []float64{.125, .25, .5, 1, 2, 4, 8, 16}, false},
	} {
		var values []string
		for _, f := range n.factors {
			x := n.value * f
			if n.whole {
				x = max(1, math.Round(x))
			}
			if text := fmt.Sprint(x); !slices.Contains(values, text) {
				values = append(values, text)
			}
		}
		a, err := axis(s, n.input, values...)
		if err != nil {
			return nil, err
		}
		axes = append(axes, a)
	}
	return axes, nil
}

func join(input string, values []string) string { return input + "=" + strings.Join(values, ",") }

// swept reports whether an input is an axis.
func (p *page) swept(input string) bool {
	return slices.ContainsFunc(p.Axes, func(a axisData) bool { return a.Input == input })
}

// Inputs names the axes.
func (p *page) Inputs() string {
	var names []string
	for _, a := range p.Axes {
		names = append(names, a.Input)
	}
	return strings.Join(names, ", ")
}

// Command is the command line that makes the page.
func (p *page) Command() string {
	command := []string{"testbed", "estimate"}
	for _, s := range p.Sheet.Settings {
		command = append(command, "--set", s)
	}
	return words.Typed(command) + " " + p.Rest
}
