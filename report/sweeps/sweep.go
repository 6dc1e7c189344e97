// Package sweeps writes the report of a sweep.
package sweeps

import (
	"cmp"
	_ "embed" // the page's parts
	"fmt"
	"html/template"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"testbed/experiment/sweep"
	"testbed/internal/stats"
	"testbed/record"
	"testbed/report/document"
	"testbed/report/learning"
	"testbed/report/words"
	"testbed/scenarios"
	"testbed/shaping/fidelity"
)

var (
	//go:embed sweep.html
	sweepHTML string
	//go:embed sweep.js
	sweepJS string
)

// maxRows is the number of cells that the tables of a sweep show.
const maxRows = 1000

// sweepPage is the data of a sweep's template.
type sweepPage struct {
	Scenario string       `json:"scenario"`
	World    string       `json:"world"`
	Policies []string     `json:"policies"`
	Fields   []sweep.Axis `json:"fields"`
	// Cells has for each cell the positions of its fields' values, -1 for a field
	// that it does not set.
	Cells   [][]int  `json:"cells"`
	Figures []figure `json:"figures"`
	// Curves are the curves of the loss, if something was trained.
	Curves []curve `json:"curves,omitempty"`
	// Target is the loss for times to a loss.
	Target *float64 `json:"target,omitempty"`
	// CellNames describe the cells' settings, if there are curves.
	CellNames []string `json:"cell_names,omitempty"`

	first    int               // number of figures in the first table
	Results  *sweep.Results    `json:"-"`
	Headline string            `json:"-"`
	Answers  []document.Answer `json:"-"`
}

// curve is the loss in a cell under one policy, as medians over the runs.
type curve struct {
	Cell   int               `json:"cell"`
	Policy int               `json:"policy"` // position
	Points []learning.Spread `json:"points"`
}

// maxCurvePoints limits the points of a page's curves. Further cells have none.
const maxCurvePoints = 50_000

// curves are the curves of the cells and policies, cell by cell.
func curves(r *sweep.Results) (all []curve) {
	points := 0
	for k, rows := range r.Rows {
		for n, name := range r.Policies {
			var runs []learning.Curve
			for _, row := range rows {
				if row.Policy == name && row.Complete && len(row.Curve) > 0 {
					runs = append(runs, learning.Curve{Points: row.Curve})
				}
			}
			c := curve{k, n, learning.Median(runs)}
			if points += len(c.Points); points > maxCurvePoints {
				return all
			}
			if len(c.Points) > 0 {
				all = append(all, c)
			}
		}
	}
	return all
}

// names describe each cell's settings.
func (p *sweepPage) names() (all []string) {
	for k := range p.Cells {
		var parts []string
		for _, f := range p.Fields {
			if v := p.Results.Cells[k].Set.Value(f.Field); v != "" {
				parts = append(parts, f.Field+"="+v)
			}
		}
		all = append(all, cmp.Or(strings.Join(parts, ", "), "as in the file"))
	}
	return all
}

// figure is a quantity that a sweep has measured in every cell.
type figure struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	What string `json:"what"` // how several runs are combined
	// Even is set for ratios, for which 1 is neither better nor worse.
	Even bool `json:"even"`
	// Narrow is set for values far from 0 with small differences.
	Narrow bool   `json:"narrow,omitempty"`
	Lines  []line `json:"lines"`
}

// line has a figure by cell, under one policy or as a comparison of two.
type line struct {
	Policy string `json:"policy"`
	// Over is the policy that Policy is compared with, in a speed-up.
	Over string `json:"over,omitempty"`
	// Points are the value and, if there is an interval, its ends; null if
	// unknown.
	Points [][]float64 `json:"points"`
}

// WriteHTML writes the report of a sweep as one self-contained HTML file.
func WriteHTML(out io.Writer, r *sweep.Results) error {
	p := newSweepPage(r)
	return document.Page{HTML: sweepHTML, Data: p, Script: sweepJS, Funcs: template.FuncMap{
		"text":  func(f figure, l line, cell int) string { return f.text(l.Points[cell]) },
		"value": func(a sweep.Assignment, field string) string { return cmp.Or(a.Value(field), "–") },
	}}.Write(out)
}

func newSweepPage(r *sweep.Results) *sweepPage {
	p := &sweepPage{Scenario: r.Scenario, World: r.World, Policies: r.Policies, Fields: r.Varied(), Results: r}
	if p.Fields == nil {
		p.Fields = []sweep.Axis{}
	}
	for _, c := range r.Cells {
		at := make([]int, len(p.Fields))
		for k, f := range p.Fields {
			at[k] = slices.Index(f.Values, c.Set.Value(f.Field))
		}
		p.Cells = append(p.Cells, at)
	}
	p.Figures = append(trainingFigures(r), times(r)...) // the loss first
	p.first = len(p.Figures)
	if p.Curves, p.Target = curves(r), r.Target; len(p.Curves) > 0 {
		p.CellNames = p.names()
	}
	p.Figures = append(p.Figures, figures(r)...)
	p.Headline = document.Together.Replace(p.headline())
	p.Answers = []document.Answer{p.whereMost(), p.everLost(), p.whatWasPlayed(), p.trust()}
	if r.Target != nil {
		p.Answers = slices.Insert(p.Answers, 0, p.trainingAnswer())
	}
	for _, a := range p.Answers {
		for k := range a.Text {
			a.Text[k] = document.Together.Replace(a.Text[k])
		}
	}
	return p
}

// times are the speed-ups and the wall-clocks.
func times(r *sweep.Results) (all []figure) {
	if len(r.Compared()) > 0 {
		f := figure{Name: "speed-up", Unit: "×", What: "median", Even: true}
		for _, name := range r.Compared() {
			l := line{Policy: name, Over: r.Policies[0], Points: [][]float64{}}
			for _, c := range r.Cells {
				l.Points = append(l.Points, point(c.SpeedupOf(name)))
			}
			f.Lines = append(f.Lines, l)
		}
		all = append(all, f)
	}
	wall := figure{Name: "wall-clock", Unit: "µs", What: "median"}
	for _, name := range r.Policies {
		l := line{Policy: name, Points: [][]float64{}}
		for _, c := range r.Cells {
			e := c.WallClock[name]
			l.Points = append(l.Points, point(&e))
		}
		wall.Lines = append(wall.Lines, l)
	}
	return append(all, wall)
}

// trainingFigures are the figures of the training results.
func trainingFigures(r *sweep.Results) (all []figure) {
	if r.Target == nil {
		return nil
	}
	percent := func(e stats.Estimate) stats.Estimate {
		e.Median *= 100
		if i := e.Interval; i != nil {
			e.Interval = &stats.Interval{Low: 100 * i.Low, High: 100 * i.High, Level: i.Level}
		}
		return e
	}
	for _, m := range []struct {
		figure
		of func(learning.Outcome) stats.Estimate
	}{
		{figure{Name: "validation loss", Unit: lossUnit, Narrow: true}, func(o learning.Outcome) stats.Estimate { return o.Final }},
		{figure{Name: "time to a loss of " + learning.LossText(*r.Target), Unit: "µs"}, func(o learning.Outcome) stats.Estimate { return o.Time }},
		{figure{Name: "loss at equal tokens", Unit: "% above the reference"}, func(o learning.Outcome) stats.Estimate { return percent(o.EqualTokens) }},
		{figure{Name: "loss at equal rounds", Unit: "% above the reference"}, func(o learning.Outcome) stats.Estimate { return percent(o.EqualRounds) }},
	} {
		f := m.figure
		f.What = "median"
		for _, name := range r.Policies {
			l := line{Policy: name, Points: [][]float64{}}
			for _, c := range r.Cells {
				e := m.of(c.Learning[name])
				l.Points = append(l.Points, point(&e))
			}
			f.Lines = append(f.Lines, l)
		}
		all = append(all, f)
	}
	return all
}

// lossUnit is the unit of losses, which depends on the task.
const lossUnit = "of the task"

// figures are all figures of a sweep besides times and losses, without those
// that are 0 everywhere, and without the effective wall-clock if no work was lost.
// A mean is over the runs in which the quantity is known.
func figures(r *sweep.Results) (all []figure) {
	anyLost := false
	for _, rows := range r.Rows {
		for _, row := range rows {
			anyLost = anyLost || row.Lost != nil && *row.Lost > 0
		}
	}
	always := func(of func(sweep.Row) float64) func(sweep.Row) (float64, bool) {
		return func(r sweep.Row) (float64, bool) { return of(r), true }
	}
	for _, m := range []struct {
		name, unit string
		of         func(sweep.Row) (value float64, known bool)
	}{
		{"effective wall-clock", "µs", func(r sweep.Row) (float64, bool) {
			if !anyLost || r.Lost == nil || *r.Lost == 1 || !r.Complete {
				return 0, false
			}
			return float64(r.WallClock) / (1 - *r.Lost), true
		}},
		{"work lost", "% of the contributions", func(r sweep.Row) (float64, bool) {
			if r.Lost == nil {
				return 0, false
			}
			return 100 * *r.Lost, true
		}},
		{"sidelined", "times a run", always(func(r sweep.Row) float64 { return float64(r.Sidelined) })},
		{"arrived in time again", "times a run", always(func(r sweep.Row) float64 { return float64(r.Rejoined) })},
		{"evicted", "workers a run", always(func(r sweep.Row) float64 { return float64(r.Evicted) })},
		{"computing", "% of the membership time", always(func(r sweep.Row) float64 { return 100 * r.ComputeFraction })},
		{"waiting for other workers", "% of the membership time", always(func(r sweep.Row) float64 { return 100 * r.BarrierWaitFraction })},
		{"stall of joiners", "µs", always(func(r sweep.Row) float64 { return float64(r.JoinerStall) })},
		{"bytes sent", "B", always(func(r sweep.Row) float64 { return float64(r.BytesSent) })},
		{"incomplete", "% of the runs", always(func(r sweep.Row) float64 {
			if r.Complete {
				return 0
			}
			return 100
		})},
	} {
		f := figure{Name: m.name, Unit: m.unit, What: "mean"}
		something := false
		for _, name := range r.Policies {
			l := line{Policy: name, Points: [][]float64{}}
			for _, rows := range r.Rows {
				var sum float64
				n := 0
				for _, row := range rows {
					if row.Policy != name {
						continue
					}
					if v, known := m.of(row); known {
						sum += v
						n++
					}
				}
				if n == 0 {
					l.Points = append(l.Points, nil)
					continue
				}
				l.Points = append(l.Points, []float64{sum / float64(n)})
				something = something || sum != 0
			}
			f.Lines = append(f.Lines, l)
		}
		if something {
			all = append(all, f)
		}
	}
	return all
}

func point(e *stats.Estimate) []float64 {
	switch {
	case e == nil || e.N == 0:
		return nil
	case e.Interval == nil:
		return []float64{e.Median}
	}
	return []float64{e.Median, e.Interval.Low, e.Interval.High}
}

// text is a point in a table.
func (f figure) text(p []float64) string {
	if p == nil {
		return "–"
	}
	format, unit := number, ""
	if f.Even {
		format, unit = func(x float64) string { return fmt.Sprintf("%.2f", x) }, "×"
	}
	if f.Unit == lossUnit {
		format = func(x float64) string { return fmt.Sprintf("%.3f", x) }
	}
	text := format(p[0]) + unit
	if len(p) == 3 {
		text += " (" + format(p[1]) + "–" + format(p[2]) + ")"
	}
	return text
}

// number writes a figure with at most two decimals, large ones with none.
func number(x float64) string {
	if x >= 1000 {
		return words.Thousands(int64(x + .5))
	}
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", x), "0"), ".")
}

// sweepTable is a table of cells.
type sweepTable struct {
	Page    *sweepPage
	Figures []figure
	Finding bool
}

// Table is the first table of the page, or the table of all other figures.
func (p *sweepPage) Table(first bool) sweepTable {
	if !first {
		return sweepTable{p, p.Other(), false}
	}
	return sweepTable{p, p.Figures[:p.first], len(p.Results.Policies) == 2}
}

// Other are the figures besides times and losses.
func (p *sweepPage) Other() []figure { return p.Figures[p.first:] }

// Reference is the reference policy.
func (p *sweepPage) Reference() string { return p.Results.Policies[0] }

// Shown are the cells of the tables; Hidden counts the rest.
func (p *sweepPage) Shown() []sweep.Cell { return p.Results.Cells[:min(maxRows, len(p.Results.Cells))] }
func (p *sweepPage) Hidden() int         { return len(p.Results.Cells) - len(p.Shown()) }

// Varied reports whether there is something to draw.
func (p *sweepPage) Varied() bool { return len(p.Fields) > 0 && len(p.Cells) > 1 }

// extremes are the cells with the smallest and the largest value. Cells without
// a value do not count.
func extremes(cells []sweep.Cell, of func(sweep.Cell) *stats.Estimate) (least, most *sweep.Cell) {
	for k := range cells {
		e := of(cells[k])
		if e == nil || e.N == 0 {
			continue
		}
		if least == nil || e.Median < of(*least).Median {
			least = &cells[k]
		}
		if most == nil || e.Median > of(*most).Median {
			most = &cells[k]
		}
	}
	return least, most
}

// speedupOf returns the speed-up of a policy over the first.
func speedupOf(name string) func(sweep.Cell) *stats.Estimate {
	return func(c sweep.Cell) *stats.Estimate { return c.SpeedupOf(name) }
}

// best is the policy with the largest speed-up in any cell; with two policies
// it is the second.
func (p *sweepPage) best() (name string) {
	var most *stats.Estimate
	for _, other := range p.Results.Compared() {
		_, cell := extremes(p.Results.Cells, speedupOf(other))
		if cell != nil && (most == nil || cell.SpeedupOf(other).Median > most.Median) {
			name, most = other, cell.SpeedupOf(other)
		}
	}
	return cmp.Or(name, p.Results.Compared()[0])
}

// wallOf returns the wall-clock under the first policy of a sweep.
func (p *sweepPage) wallOf(c sweep.Cell) *stats.Estimate {
	e := c.WallClock[p.Results.Policies[0]]
	return &e
}

// set describes a cell's settings, with short names, and the number of equally
// good cells.
func (p *sweepPage) set(c *sweep.Cell, of func(sweep.Cell) *stats.Estimate) string {
	var parts []string
	for _, f := range p.Fields {
		if v := c.Set.Value(f.Field); v != "" {
			parts = append(parts, p.brief(f.Field)+"="+v)
		}
	}
	text := strings.Join(parts, ", ")
	switch {
	case text == "" && len(p.Results.Fields) > 0:
		text = "the values that all cells have"
	case text == "":
		text = "the scenario as it is"
	}
	same := -1
	for _, other := range p.Results.Cells {
		if e := of(other); e != nil && e.N > 0 && e.Median == of(*c).Median {
			same++
		}
	}
	if same > 0 {
		text += fmt.Sprintf(" (and in %s)", counted(same, "other cell"))
	}
	return text
}

// brief is the end of a field's path, if it is unique.
func (p *sweepPage) brief(field string) string {
	end := func(field string) string { return field[strings.LastIndexByte(field, '.')+1:] }
	for _, other := range p.Fields {
		if other.Field != field && end(other.Field) == end(field) {
			return field
		}
	}
	if end(field) == "count" {
		return field // of workers
	}
	return end(field)
}

// verdicts counts the cells by the conclusion from a policy's speed-up. Without
// intervals the medians decide.
func (p *sweepPage) verdicts(name string) (faster, slower, open, unknown int) {
	for _, c := range p.Results.Cells {
		switch e := c.SpeedupOf(name); {
		case e == nil || e.N == 0:
			unknown++
		case e.Interval == nil && e.Median > 1 || e.Interval != nil && e.Interval.Low > 1:
			faster++
		case e.Interval == nil && e.Median < 1 || e.Interval != nil && e.Interval.High < 1:
			slower++
		default:
			open++
		}
	}
	return faster, slower, open, unknown
}

// headline is the result of the sweep in a sentence.
func (p *sweepPage) headline() string {
	if p.Results.Target != nil {
		if text := p.learnt(); text != "" {
			return text
		}
	}
	if len(p.Results.Policies) < 2 {
		return p.headlineOfOne()
	}
	name, reference := p.best(), words.Policy(p.Reference())
	speedup := speedupOf(name)
	least, most := extremes(p.Results.Cells, speedup)
	if least == nil {
		both := "both"
		if len(p.Results.Policies) > 2 {
			both = "two"
		}
		return fmt.Sprintf("No cell has complete runs of %s policies with the same seed.", both)
	}
	_, slower, open, unknown := p.verdicts(name)
	known := len(p.Cells) - unknown
	low, high := words.Times(speedup(*least).Median), words.Times(speedup(*most).Median)
	text := fmt.Sprintf("%s was %s as fast as %s", words.Capital(words.Policy(name)), high, reference)
	switch {
	case speedup(*least).Median != speedup(*most).Median:
		text = fmt.Sprintf("Over %s, %s was %s to %s as fast as %s. Its speed-up was largest with %s", counted(known, "cell"), words.Policy(name), low, high, reference, p.set(most, speedup))
	case known > 1:
		text += fmt.Sprintf(" in each of %s", counted(known, "cell"))
	}
	if n := len(p.Results.Policies); n > 2 {
		lead := fmt.Sprintf("Of %d policies, %s gained the most. ", n, name)
		if speedup(*most).Median <= 1 {
			lead = fmt.Sprintf("None of the other %d policies gained on %s. ", n-1, reference)
		}
		text = lead + text
	}
	switch {
	case len(p.Cells) == 1 && open > 0:
		text += ". No difference was shown."
	case len(p.Cells) == 1:
		text += "."
	case slower > 0:
		text += fmt.Sprintf(". It was slower in %s.", counted(slower, "cell"))
	case open > 0:
		text += fmt.Sprintf(". It was never slower, but in %s no difference was shown.", counted(open, "cell"))
	default:
		text += ". It was never slower."
	}
	if unknown > 0 {
		text += fmt.Sprintf(" In %s there is no pair of complete runs.", counted(unknown, "cell"))
	}
	return text
}

// headlineOfOne gives the wall-clocks of the only policy.
func (p *sweepPage) headlineOfOne() string {
	known := 0
	for _, c := range p.Results.Cells {
		if p.wallOf(c).N > 0 {
			known++
		}
	}
	least, most := extremes(p.Results.Cells, p.wallOf)
	if least == nil {
		return "No run was complete."
	}
	low, high := number(p.wallOf(*least).Median), number(p.wallOf(*most).Median)
	text := fmt.Sprintf("Under %s, the wall-clock is %s µs", p.Reference(), low)
	switch {
	case low != high:
		text = fmt.Sprintf("Under %s, the wall-clock of %s lies between %s and %s µs. It is shortest with %s", p.Reference(), counted(known, "cell"), low, high, p.set(least, p.wallOf))
	case known > 1:
		text += fmt.Sprintf(" in each of %s", counted(known, "cell"))
	}
	if n := len(p.Cells) - known; n > 0 {
		text += fmt.Sprintf(". In %s no run was complete", counted(n, "cell"))
	}
	return text + "."
}

// learnt says how much sooner than the first policy another one reached the
// target, or which had the least loss; empty if nothing was trained.
func (p *sweepPage) learnt() string {
	target, reference := learning.LossText(*p.Results.Target), words.Policy(p.Reference())
	sooner := func(name string) func(sweep.Cell) *stats.Estimate {
		return func(c sweep.Cell) *stats.Estimate { return new(c.Learning[name].Sooner) }
	}
	var best string
	var least, most *sweep.Cell
	for _, name := range p.Results.Compared() {
		low, high := extremes(p.Results.Cells, sooner(name))
		if high != nil && (most == nil || sooner(name)(*high).Median > sooner(best)(*most).Median) {
			best, least, most = name, low, high
		}
	}
	if most == nil {
		if a := p.trainingAnswer(); len(a.Text) > 0 {
			return words.Capital(a.Short) + ". " + strings.Join(a.Text, " ")
		}
		return ""
	}
	of := sooner(best)
	low, high := words.Times(of(*least).Median), words.Times(of(*most).Median)
	if low == high {
		return fmt.Sprintf("%s was %s as fast as %s in reaching a loss of %s.", words.Capital(words.Policy(best)), high, reference, target)
	}
	known := 0
	for _, c := range p.Results.Cells {
		if of(c).N > 0 {
			known++
		}
	}
	return fmt.Sprintf("Over %s, %s was %s to %s as fast as %s in reaching a loss of %s. It gained most with %s.", counted(known, "cell"), words.Policy(best), low, high, reference, target, p.set(most, of))
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%s %ss", words.Thousands(int64(n)), noun)
}

func (p *sweepPage) whereMost() document.Answer {
	if len(p.Results.Policies) < 2 {
		a := document.Answer{Question: "What is fastest?", Short: "not known"}
		if least, most := extremes(p.Results.Cells, p.wallOf); least != nil {
			a.Short = number(p.wallOf(*least).Median) + " µs"
			a.Text = []string{"With " + p.set(least, p.wallOf) + "."}
			if most != least {
				a.Text = append(a.Text, fmt.Sprintf("Slowest: %s µs with %s.", number(p.wallOf(*most).Median), p.set(most, p.wallOf)))
			}
		}
		return a
	}
	a := document.Answer{Question: "Where is the gain largest?", Short: "not known"}
	name, reference := p.best(), p.Reference()
	speedup := speedupOf(name)
	least, most := extremes(p.Results.Cells, speedup)
	if least == nil {
		return a
	}
	f := p.Figures[0]
	a.Short = f.text(point(speedup(*most)))
	a.Text = []string{
		fmt.Sprintf("With %s: %s µs under %s, %s µs under %s.", p.set(most, speedup),
			number(most.WallClock[name].Median), name, number(most.WallClock[reference].Median), reference),
	}
	if least != most {
		a.Text = append(a.Text, fmt.Sprintf("Smallest: %s with %s.", f.text(point(speedup(*least))), p.set(least, speedup)))
	}
	return a
}

func (p *sweepPage) everLost() document.Answer {
	a := document.Answer{Question: "Is the policy ever slower?"}
	if len(p.Results.Policies) > 2 {
		a.Question = fmt.Sprintf("Is a policy ever slower than %s?", words.Policy(p.Reference()))
	}
	if len(p.Results.Policies) < 2 {
		a.Short = "not known"
		a.Text = []string{"Only one policy was swept."}
		return a
	}
	var lost, won, decided int
	for _, name := range p.Results.Compared() {
		faster, slower, open, unknown := p.verdicts(name)
		lost, won, decided = lost+slower, won+faster+open, decided+faster+slower+open
		who := "Faster"
		if len(p.Results.Policies) > 2 {
			who = name + ": faster"
		}
		a.Text = append(a.Text, fmt.Sprintf("%s in %d, slower in %d, and no difference shown in %d of %s.", who, faster, slower, open, counted(len(p.Cells), "cell")))
		if unknown > 0 {
			a.Text = append(a.Text, fmt.Sprintf("In %s there is no pair of complete runs.", counted(unknown, "cell")))
		}
	}
	a.Short = "no"
	if lost > 0 {
		a.Short = "yes, in " + counted(lost, "cell")
		if len(p.Results.Policies) > 2 {
			a.Short = fmt.Sprintf("yes, in %d of %d comparisons", lost, decided)
		}
	} else if won == 0 {
		a.Short = "not known"
	}
	same, few := false, false
	for _, c := range p.Results.Cells {
		for _, name := range p.Results.Compared() {
			if e := c.SpeedupOf(name); e != nil && e.N > 0 {
				same, few = same || e.Same, few || e.Interval == nil && !e.Same
			}
		}
	}
	if same {
		a.Text = append(a.Text, "Where all runs of a cell took the same time, the seeds change nothing, and there is no interval.")
	}
	if few {
		a.Text = append(a.Text, fmt.Sprintf("Where there are fewer than %d pairs of runs, there is no interval. The median alone decides, and the difference may be chance. Use --seeds or --repeat.", stats.LeastRepeats))
	}
	return a
}

func (p *sweepPage) whatWasPlayed() document.Answer {
	r := p.Results
	a := document.Answer{Question: "What was played?", Short: fmt.Sprintf("%s of %s", words.Thousands(int64(r.Done)), counted(r.Points, "point"))}
	var fields []string
	for _, f := range p.Fields {
		fields = append(fields, fmt.Sprintf("%s (%s)", f.Field, counted(len(f.Values), "value")))
	}
	if len(fields) > 0 {
		a.Text = append(a.Text, "Varied: "+strings.Join(fields, ", ")+".")
	}
	if fixed := r.Fixed(); len(fixed) > 0 {
		a.Text = append(a.Text, "All points have "+fixed.String()+".")
	}
	text := counted(len(r.Seeds), "seed")
	if r.Repeats > 1 {
		text += fmt.Sprintf(", %d repeats", r.Repeats)
	}
	and := " and "
	if len(r.Policies) > 2 {
		and = ", "
	}
	a.Text = append(a.Text, fmt.Sprintf("In each cell: %s, under %s.", text, strings.Join(r.Policies, and)))
	return a
}

// trainingAnswer names the policy that reached the target loss first, and the
// one with the least loss.
func (p *sweepPage) trainingAnswer() document.Answer {
	a := document.Answer{Question: "What was learnt?", Short: "nothing"}
	var soonest, least struct {
		what string
		o    learning.Outcome
	}
	for _, c := range p.Results.Cells {
		for _, name := range p.Results.Policies {
			o, what := c.Learning[name], name
			if len(p.Cells) > 1 {
				what += " with " + p.set(&c, func(sweep.Cell) *stats.Estimate { return nil })
			}
			if o.Time.N > 0 && (soonest.o.Time.N == 0 || o.Time.Median < soonest.o.Time.Median) {
				soonest.what, soonest.o = what, o
			}
			if o.Final.N > 0 && (least.o.Final.N == 0 || o.Final.Median < least.o.Final.Median) {
				least.what, least.o = what, o
			}
		}
	}
	if least.o.Final.N == 0 {
		return a
	}
	a.Short = fmt.Sprintf("validation loss down to %.3f", least.o.Final.Median)
	a.Text = []string{"Lowest loss: " + least.what + "."}
	if soonest.o.Time.N > 0 {
		a.Text = append(a.Text, fmt.Sprintf("Fastest to a loss of %s: %s, after %s.", learning.LossText(*p.Results.Target), soonest.what, soonest.o.When()))
	}
	return a
}

func (p *sweepPage) trust() document.Answer {
	a := document.Answer{Question: "Can the result be trusted?", Short: "simulated only"}
	incomplete := map[string]int{}
	verdicts := map[fidelity.Level]int{}
	for _, rows := range p.Results.Rows {
		for _, row := range rows {
			verdicts[row.Fidelity]++
			if !row.Complete {
				incomplete[row.Policy]++
			}
		}
	}
	if p.World == record.Real {
		a.Level, a.Short = fidelity.Valid, "yes: every emulation matched its plan"
		for _, level := range []fidelity.Level{fidelity.Suspect, fidelity.Invalid} {
			if n := verdicts[level]; n > 0 {
				a.Level, a.Short = level, fmt.Sprintf("%s %s", counted(n, "run"), level)
				a.Text = append(a.Text, fmt.Sprintf("%s: %d of %d runs. The directory of each run gives the reasons.", words.Capital(string(level)), n, p.Results.Done))
			}
		}
	}
	for _, name := range p.Results.Policies {
		if n := incomplete[name]; n > 0 {
			a.Text = append(a.Text, fmt.Sprintf("Incomplete under %s: %s. Wall-clocks leave out incomplete runs.", name, counted(n, "run")))
		}
	}
	if p.Results.Done < p.Results.Points {
		a.Text = append(a.Text, fmt.Sprintf("Missing points: %d.", p.Results.Points-p.Results.Done))
	}
	if len(a.Text) == 0 {
		a.Text = []string{"All runs were complete."}
	}
	return a
}

// Intervals explains the intervals of the page; empty if there are none.
func (p *sweepPage) Intervals() string {
	var most stats.Estimate
	for _, c := range p.Results.Cells {
		for _, e := range c.WallClock {
			if e.Interval != nil && e.N > most.N {
				most = e
			}
		}
	}
	if most.N == 0 {
		return ""
	}
	return fmt.Sprintf("%.3g %% bootstrap intervals of the median over %d runs of a cell", 100*most.Interval.Level, most.N)
}

// Command is the command line that plays the same points, empty if a list of
// assignments was swept.
func (p *sweepPage) Command() string {
	r := p.Results
	cells := 1
	command := []string{"testbed", "sweep", filepath.Join(r.Dir, "scenario.json")}
	for _, f := range r.Fields {
		cells *= len(f.Values)
		command = append(command, "--set", f.Field+"="+strings.Join(f.Values, ","))
	}
	if cells != len(r.Cells) {
		return ""
	}
	command = append(command, "--seeds", fmt.Sprintf("%d..%d", r.Seeds[0], r.Seeds[len(r.Seeds)-1]))
	if !slices.Equal(r.Policies, scenarios.PolicyNames) {
		command = append(command, "--policy", strings.Join(r.Policies, ","))
	}
	if r.Target != nil && r.World == record.Sim {
		command = append(command, "--train", "--loss", strconv.FormatFloat(*r.Target, 'g', -1, 64))
	}
	if r.Network != "" {
		command = append(command, "--network", r.Network)
	}
	if r.World == record.Real {
		command = append(command, "--real", "--repeat", fmt.Sprint(r.Repeats))
	}
	return words.Typed(command)
}

// How says how the points were played.
func (p *sweepPage) How() string {
	if p.World == record.Sim {
		return "simulated"
	}
	return "measured"
}
