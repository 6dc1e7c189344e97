// Package picture draws runs as one SVG file: a lane for each worker, with its
// activities and its outer steps.
package picture

import (
	"fmt"
	"html"
	"io"
	"slices"
	"strings"

	"testbed/policy"
	"testbed/record"
	"testbed/report/runs"
	"testbed/report/timeline"
)

// Sizes, in pixels.
const (
	width = 760
	left  = 40 // names
	right = 12
	lane  = 16
	gap   = 4 // between lanes
	head  = 36
	foot  = 30
)

// style has the colours, for light and dark pages. Heights show workers'
// activities, too.
const style = `<style>
text{font:11px system-ui,sans-serif;fill:#333}.title{font-weight:bold;font-size:12px}
.ground{fill:#fff}.lane{fill:#f1f1f1}.away{fill:#fff;stroke:#bbb;stroke-dasharray:3 3}.axis{stroke:#999}
.step{fill:#8fb8de}.dropped{fill:#cfdbe6}.reduce{fill:#e8a33d}.fetch{fill:#a584c9}.cut{fill:#c33}
.took{fill:#2a7d3f}.failed{stroke:#c33;stroke-width:2}.fault{fill:#c33}.down{fill:#c33;opacity:.2}
@media(prefers-color-scheme:dark){text{fill:#ddd}.ground{fill:#16181c}.lane{fill:#26292f}.away{fill:#16181c;stroke:#555}.step{fill:#3f6f9f}.dropped{fill:#31404e}.took{fill:#4fc06d}}
</style>
`

// legend explains the shapes.
var legend = []struct{ shape, text string }{
	{`<rect class="step" x="0" y="-9" width="14" height="10"/>`, "inner steps"},
	{`<rect class="dropped" x="0" y="-9" width="14" height="10"/>`, "thrown away"},
	{`<rect class="reduce" x="0" y="-9" width="14" height="10"/>`, "reduces"},
	{`<rect class="fetch" x="0" y="-9" width="14" height="10"/>`, "heals"},
	{`<rect class="lane" x="0" y="-9" width="14" height="10"/>`, "waits"},
	{`<rect class="away" x="0" y="-9" width="14" height="10"/>`, "is gone"},
	{`<circle class="took" cx="7" cy="-4" r="4"/>`, "outer step counts"},
	{`<path class="failed" d="M3,-8l8,8m0,-8l-8,8"/>`, "fails"},
	{`<path class="fault" d="M2,-9h10l-5,9z"/>`, "fault"},
}

// Write draws the runs of a record below each other, on one axis of scenario time.
func Write(out io.Writer, rec *runs.Record) error {
	var all []timeline.Timeline
	var end policy.Time = 1
	height := 24
	for _, run := range rec.Runs {
		t := timeline.New(rec.Scenario, run.Events)
		all, end = append(all, t), max(end, t.End)
		height += head + len(t.Nodes)*(lane+gap) + foot
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img">`+"\n%s", width, height, style)
	fmt.Fprintf(&b, `<rect class="ground" width="%d" height="%d"/>`+"\n", width, height)
	top := 0
	for i, t := range all {
		p := panel{out: &b, top: top + head, scale: float64(width-left-right) / float64(end), rows: map[string]int{}}
		p.draw(rec.Runs[i], t, end)
		top += head + len(t.Nodes)*(lane+gap) + foot
	}
	x := left
	for _, l := range legend {
		fmt.Fprintf(&b, `<g transform="translate(%d,%d)">%s<text x="18">%s</text></g>`+"\n", x, height-10, l.shape, l.text)
		x += 30 + 6*len(l.text)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(out, b.String())
	return err
}

// panel is one run.
type panel struct {
	out   io.Writer
	top   int
	scale float64
	rows  map[string]int
}

func (p *panel) x(t policy.Time) float64 { return left + float64(t)*p.scale }

func (p *panel) y(node string) int { return p.top + p.rows[node]*(lane+gap) }

func (p *panel) draw(run runs.Run, t timeline.Timeline, end policy.Time) {
	fmt.Fprintf(p.out, `<text class="title" x="%d" y="%d">%s, %s</text>`+"\n", left, p.top-20, html.EscapeString(run.Policy), world(run.World))
	for i, node := range t.Nodes {
		p.rows[node] = i
		fmt.Fprintf(p.out, `<text x="8" y="%d">%s</text>`, p.y(node)+12, node)
		p.box("lane", timeline.Span{Node: node, End: t.End}, 0, lane)
	}
	for _, s := range t.Doing {
		p.doing(s)
	}
	for _, s := range t.Standing {
		switch s.Kind {
		case timeline.Dead, timeline.Removed:
			p.box("away", s, 0, lane)
		case timeline.CutOff, timeline.Relinked, timeline.Paused:
			p.box("cut", s, lane-2, 2)
		}
	}
	p.outages(run.Events, p.top+len(t.Nodes)*(lane+gap))
	p.outcomes(run.Events)
	for _, m := range t.Marks {
		if _, worker := p.rows[m.Node]; worker && m.Injected() && m.T > 0 {
			fmt.Fprintf(p.out, `<path class="fault" d="M%.1f,%dh10l-5,9z"><title>%s</title></path>`+"\n", p.x(m.T)-5, p.y(m.Node)-3, html.EscapeString(m.Text))
		}
	}
	p.axis(p.top+len(t.Nodes)*(lane+gap), end)
}

// doing draws a worker's activity. Waiting is the background of its lane.
func (p *panel) doing(s timeline.Span) {
	switch s.Kind {
	case timeline.InnerStep:
		p.box("step", s, 3, lane-6)
	case timeline.Dropped:
		p.box("dropped", s, 3, lane-6)
	case timeline.AllReduce, timeline.ReduceScatter, timeline.AllGather:
		p.box("reduce", s, 1, lane-2)
	case timeline.Fetch:
		p.box("fetch", s, 1, lane-2)
	}
}

func (p *panel) box(class string, s timeline.Span, down, high int) {
	if s.End <= s.Start {
		return
	}
	fmt.Fprintf(p.out, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"/>`+"\n", class, p.x(s.Start), p.y(s.Node)+down, float64(s.End-s.Start)*p.scale, high)
}

// outages shades the times without a coordinator, over all lanes.
func (p *panel) outages(events []record.Event, bottom int) {
	for i, e := range events {
		if e.Type != record.CoordinatorCrash {
			continue
		}
		until := events[len(events)-1].T
		if back := slices.IndexFunc(events[i:], func(e record.Event) bool { return e.Type == record.CoordinatorBack }); back >= 0 {
			until = events[i+back].T
		}
		fmt.Fprintf(p.out, `<rect class="down" x="%.1f" y="%d" width="%.1f" height="%d"><title>no coordinator</title></rect>`+"\n", p.x(e.T), p.top, float64(until-e.T)*p.scale, bottom-gap-p.top)
	}
}

// outcomes marks, in the lane of each participant, the results of its
// reductions.
func (p *panel) outcomes(events []record.Event) {
	labelled := 0.0 // end of the last label
	for _, e := range events {
		for _, id := range e.Participants {
			x, y := p.x(e.T), p.y(id.Node())+lane/2
			switch e.Type {
			case record.OuterStep:
				fmt.Fprintf(p.out, `<circle class="took" cx="%.1f" cy="%d" r="4"><title>outer step %d</title></circle>`, x, y, e.Round)
			case record.ReduceAbort:
				fmt.Fprintf(p.out, `<path class="failed" d="M%.1f,%dl8,8m0,-8l-8,8"/>`, x-4, y-4)
			}
		}
		if x := p.x(e.T); e.Type == record.OuterStep && x > labelled {
			labelled = x + 16
			fmt.Fprintf(p.out, `<text x="%.1f" y="%d" text-anchor="middle">%d</text>`+"\n", x, p.top-6, e.Round)
		}
	}
}

// axis has a mark at each 1, 2 or 5 times a power of ten, up to ten of them.
func (p *panel) axis(y int, end policy.Time) {
	every := policy.Time(1)
	for i := 0; end/every > 10; i++ {
		every = every * []policy.Time{2, 5, 2}[i%3] / []policy.Time{1, 2, 1}[i%3]
	}
	fmt.Fprintf(p.out, `<path class="axis" d="M%d,%dH%d"/>`, left, y, width-right)
	for t := policy.Time(0); t <= end; t += every {
		fmt.Fprintf(p.out, `<path class="axis" d="M%.1f,%dv4"/><text x="%.1f" y="%d" text-anchor="middle">%d</text>`, p.x(t), y, p.x(t), y+15, t)
	}
	fmt.Fprintf(p.out, `<text x="%d" y="%d" text-anchor="end">µs</text>`+"\n", left-6, y+15)
}

func world(name string) string {
	if name == record.Real {
		return "measured"
	}
	return "simulated"
}
