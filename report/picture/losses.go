package picture

import (
	"errors"
	"fmt"
	"io"
	"math"

	"testbed/record"
	"testbed/report/learning"
	"testbed/report/runs"
	"testbed/report/words"
)

// Format is a kind of file.
type Format string

// The formats of pictures of losses.
const (
	SVG Format = "svg"
	PDF Format = "pdf"
)

// A figure of losses, in points: as wide as the text of a paper in one column.
const (
	lossWidth  = 468
	lossHeight = 300
	lossLeft   = 54
	lossRight  = 14
	lossTop    = 30
	lossBottom = 44
)

// Colours of policies in their order, distinguishable without seeing red or
// green, and the dashes of their lines.
var (
	colours = []string{"#d98200", "#0b6bb3", "#00795a", "#a8438a", "#a84a00", "#57606a", "#c4161c", "#8fc1e8"}
	dashes  = [][]float64{nil, {6, 2}, {2, 2}, {8, 2, 2, 2}, {4, 4}, {1, 3}}
)

const (
	ink  = "#1b1f24"
	soft = "#57606a"
	grid = "#d9dee3"
)

// policyLine is the training result of one policy.
type policyLine struct {
	learning.Policy
	median []learning.Point
	colour string
	dash   []float64
}

// Trained reports whether there are losses to draw: every policy has training
// results in the drawn world.
func Trained(rec *runs.Record) bool {
	_, learnt := learntIn(rec)
	return learnt != nil
}

// learntIn has the training results of the real runs or, if there are none, of
// simulated ones.
func learntIn(rec *runs.Record) (world string, learnt *learning.Result) {
	policies := rec.Policies()
	for _, world := range []string{record.Real, record.SimLinks, record.Sim} {
		var seeds []map[string]record.Summary
		for _, name := range policies {
			played := rec.Of(world, name)
			if world == record.SimLinks {
				played = rec.OnLinks(name)
			}
			for k, run := range played {
				if k == len(seeds) {
					seeds = append(seeds, map[string]record.Summary{})
				}
				seeds[k][name] = run.Summary
			}
		}
		if learnt := learning.New(policies, seeds, rec.Target); learnt != nil {
			return world, learnt
		}
	}
	return "", nil
}

// WriteLosses draws the validation loss of the runs by scenario time, a line
// for each policy: the median of its runs, with the single runs as thin lines,
// and the time to the target.
func WriteLosses(out io.Writer, rec *runs.Record, format Format) error {
	world, learnt := learntIn(rec)
	if learnt == nil {
		return errors.New("the runs trained nothing, so there are no losses to draw; name runs of a scenario with a section train, simulated with --train or measured")
	}
	var c canvas = &svgCanvas{width: lossWidth, height: lossHeight}
	if format == PDF {
		c = &pdfCanvas{width: lossWidth, height: lossHeight}
	}
	f := lossFigure{canvas: c, learnt: learnt}
	for k, p := range learnt.Policies {
		f.lines = append(f.lines, policyLine{p, median(p.Curves), colours[k%len(colours)], dashes[k%len(dashes)]})
	}
	f.frame()
	f.axes(rec)
	f.target()
	f.curves()
	f.legend()
	title := fmt.Sprintf("%s: validation loss, %s", rec.Scenario.Name, map[string]string{record.Real: "measured", record.Sim: "simulated", record.SimLinks: "simulated on the planned links"}[world])
	c.write(label{at: point{lossLeft, 16}, text: title, size: 11, bold: true, colour: ink})
	return c.finish(out)
}

// median is the median of several curves.
func median(curves []learning.Curve) (all []learning.Point) {
	for _, p := range learning.Median(curves) {
		all = append(all, learning.Point{Round: p.Round, WallClock: p.WallClock, Loss: p.Loss})
	}
	return all
}

// lossFigure is a figure being drawn.
type lossFigure struct {
	canvas
	learnt       *learning.Result
	lines        []policyLine
	end          float64 // of the axis of time, in µs
	least, most  float64 // losses
	unit         float64 // of the axis of time, in µs
	unitName     string
	timeEvery    float64 // in units
	lossEvery    float64
	targetLegend string
}

// frame finds the bounds of the axes.
func (f *lossFigure) frame() {
	f.least, f.most = math.Inf(1), math.Inf(-1)
	for _, l := range f.lines {
		for _, c := range l.Curves {
			for _, p := range c.Points {
				f.end, f.least = max(f.end, float64(p.WallClock)), min(f.least, p.Loss)
				if p.Round > 0 { // losses before the first outer step are mostly above the figure
					f.most = max(f.most, p.Loss)
				}
			}
		}
	}
	f.least, f.most = min(f.least, f.learnt.Target), max(f.most, f.learnt.Target)
	f.unit, f.unitName = 1, "µs"
	switch {
	case f.end >= 1e6:
		f.unit, f.unitName = 1e6, "s"
	case f.end >= 1e3:
		f.unit, f.unitName = 1e3, "ms"
	}
	f.timeEvery = nice(f.end / f.unit / 7)
	f.lossEvery = nice(max(f.most-f.least, math.Abs(f.most)*1e-3, 1e-9) / 6)
	f.end *= 1.02
	f.least = math.Floor(f.least/f.lossEvery) * f.lossEvery
	f.most = math.Ceil(f.most/f.lossEvery) * f.lossEvery
	if f.least == f.most {
		f.most += f.lossEvery
	}
}

// nice rounds up to 1, 2 or 5 times a power of ten.
func nice(x float64) float64 {
	if !(x > 0) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, times := range []float64{1, 2, 5} {
		if times*power >= x*(1-1e-9) {
			return times * power
		}
	}
	return 10 * power
}

func (f *lossFigure) x(us float64) float64 {
	return lossLeft + us/f.end*(lossWidth-lossLeft-lossRight)
}

func (f *lossFigure) y(loss float64) float64 {
	return lossHeight - lossBottom - (loss-f.least)/(f.most-f.least)*(lossHeight-lossTop-lossBottom)
}

// digits is the number of decimals on an axis with such steps.
func digits(every float64) int { return max(0, -int(math.Floor(math.Log10(every)+1e-9))) }

func (f *lossFigure) axes(rec *runs.Record) {
	bottom := float64(lossHeight - lossBottom)
	for k := 0; ; k++ {
		loss := f.least + float64(k)*f.lossEvery
		if loss > f.most+f.lossEvery/2 {
			break
		}
		y := f.y(loss)
		f.line([]point{{lossLeft, y}, {lossWidth - lossRight, y}}, stroke{colour: grid, width: .5})
		f.write(label{at: point{lossLeft - 6, y + 3}, text: fmt.Sprintf("%.*f", digits(f.lossEvery), loss), size: 9, anchor: end, colour: ink})
	}
	for k := 0; ; k++ {
		at := float64(k) * f.timeEvery
		if at*f.unit > f.end {
			break
		}
		x := f.x(at * f.unit)
		f.line([]point{{x, bottom}, {x, bottom + 4}}, stroke{colour: ink, width: .75})
		f.write(label{at: point{x, bottom + 15}, text: fmt.Sprintf("%.*f", digits(f.timeEvery), at), size: 9, anchor: middle, colour: ink})
	}
	f.line([]point{{lossLeft, lossTop}, {lossLeft, bottom}, {lossWidth - lossRight, bottom}}, stroke{colour: ink, width: .75})
	f.write(label{at: point{(lossLeft + lossWidth - lossRight) / 2, lossHeight - 10}, text: fmt.Sprintf("scenario time (%s)", f.unitName), size: 10, anchor: middle, colour: ink})
	name := "validation loss"
	if unit := rec.Scenario.Train.LossUnit(); unit != "" {
		name += " (" + unit + ")"
	}
	f.write(label{at: point{14, (lossTop + bottom) / 2}, text: name, size: 10, anchor: middle, up: true, colour: ink})
}

// target marks the loss for times to a loss, and the time at which each policy
// reached it.
func (f *lossFigure) target() {
	y := f.y(f.learnt.Target)
	f.targetLegend = f.learnt.FinalName() + " of " + f.lines[0].Name + ", " + learning.LossText(f.learnt.Target)
	if f.learnt.Asked {
		f.targetLegend = "loss of " + learning.LossText(f.learnt.Target)
	}
	f.line([]point{{lossLeft, y}, {lossWidth - lossRight, y}}, stroke{colour: soft, width: .75, dash: []float64{3, 3}})
	for _, l := range f.lines {
		if l.Time.N == 0 {
			continue
		}
		x := f.x(l.Time.Median)
		f.line([]point{{x, y}, {x, lossHeight - lossBottom}}, stroke{colour: l.colour, width: .75, dash: []float64{3, 3}})
	}
}

func (f *lossFigure) curves() {
	line := func(points []learning.Point) (all []point) {
		var before point
		for k, p := range points {
			at := point{f.x(float64(p.WallClock)), f.y(p.Loss)}
			switch {
			case at.y >= lossTop && k > 0 && before.y < lossTop: // it comes from above the figure
				share := (lossTop - before.y) / (at.y - before.y)
				all = append(all, point{before.x + share*(at.x-before.x), lossTop}, at)
			case at.y >= lossTop:
				all = append(all, at)
			}
			before = at
		}
		return all
	}
	for _, l := range f.lines {
		if len(l.Curves) > 1 {
			for _, c := range l.Curves {
				f.line(line(c.Points), stroke{colour: l.colour, width: .6, opacity: .4})
			}
		}
	}
	for _, l := range f.lines {
		f.line(line(l.median), stroke{colour: l.colour, width: 1.75, dash: l.dash})
	}
}

// legend is in the upper right corner, where falling losses leave room.
func (f *lossFigure) legend() {
	type entry struct {
		text string
		s    stroke
	}
	var entries []entry
	for _, l := range f.lines {
		text := l.Name
		if n := len(l.Curves); n > 1 {
			text += fmt.Sprintf(", median of %s", words.Count(n, "seed"))
		}
		entries = append(entries, entry{text, stroke{colour: l.colour, width: 1.75, dash: l.dash}})
	}
	entries = append(entries, entry{f.targetLegend, stroke{colour: soft, width: .75, dash: []float64{3, 3}}})
	widest := 0.0
	for _, e := range entries {
		widest = max(widest, 1.12*textWidth(e.text, 9, false)) // for fonts that replace Helvetica
	}
	left := lossWidth - lossRight - 8 - widest - 30
	high := float64(len(entries))*13 + 6
	f.area([]point{{left - 6, lossTop + 2}, {lossWidth - lossRight - 2, lossTop + 2}, {lossWidth - lossRight - 2, lossTop + 2 + high}, {left - 6, lossTop + 2 + high}}, "#ffffff", .85)
	for k, e := range entries {
		y := lossTop + 14 + float64(k)*13
		f.line([]point{{left, y - 3}, {left + 24, y - 3}}, e.s)
		f.write(label{at: point{left + 30, y}, text: e.text, size: 9, colour: ink})
	}
}
