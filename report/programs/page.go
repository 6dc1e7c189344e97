package programs

import (
	_ "embed" // the page's parts
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"testbed/policy"
	"testbed/record"
	"testbed/report/document"
	"testbed/report/words"
	"testbed/shaping/fidelity"
)

var (
	//go:embed programs.html
	pageHTML string
	//go:embed programs.js
	pageJS string
)

// page is the data of the template. Pictures are drawn from its JSON.
type page struct {
	Nodes    []string     `json:"nodes"`
	End      policy.Time  `json:"end"`
	Clock    *policy.Time `json:"clock"`
	Spans    []Span       `json:"spans"`
	Marks    []Mark       `json:"marks"`
	Sent     []Curve      `json:"sent"`
	Received []Curve      `json:"received"`
	Shares   []Curve      `json:"shares"`
	Losses   []Curve      `json:"losses"`

	Record   *Record           `json:"-"`
	Story    Story             `json:"-"`
	Headline string            `json:"-"`
	Answers  []document.Answer `json:"-"`
	Hidden   int               `json:"-"` // marks that are not drawn
}

// mostMarks is the number of marks that a page draws at most. The record has
// all.
const mostMarks = 20_000

// WriteHTML writes the report of programs as one self-contained HTML file.
func WriteHTML(out io.Writer, rec *Record) error {
	s := NewStory(rec)
	p := &page{
		Nodes: []string{}, End: s.End, Clock: s.Clock, Spans: s.Spans, Marks: s.Marks,
		Sent: s.Sent, Received: s.Received, Shares: s.Shares, Losses: s.Losses, Record: rec, Story: s,
	}
	for _, node := range slices.Concat(rec.Run.Nodes, slices.Sorted(maps.Keys(rec.Run.Commands))) {
		shown := slices.ContainsFunc(s.Spans, func(x Span) bool { return x.Node == node }) || slices.ContainsFunc(s.Marks, func(m Mark) bool { return m.Node == node })
		if shown && !slices.Contains(p.Nodes, node) {
			p.Nodes = append(p.Nodes, node)
		}
	}
	if len(p.Marks) > mostMarks {
		p.Hidden = len(p.Marks) - mostMarks
		p.Marks = p.Marks[:mostMarks]
	}
	p.Headline = headline(rec, s)
	p.Answers = []document.Answer{ending(s), faults(rec, s), traffic(s), trust(rec, s)}
	return document.Page{HTML: pageHTML, Data: p, Script: pageJS, Funcs: template.FuncMap{
		"time":  seconds,
		"share": func(v float64) string { return fmt.Sprintf("%.3g", v) },
		"over":  func(a, b float64) string { return fmt.Sprintf("%.3g", a/b) },
		"bytes": func(n *uint64) string {
			if n == nil {
				return "–"
			}
			return fmt.Sprintf("%.2f MB", float64(*n)/1e6)
		},
		"cpu": func(t *policy.Time) string {
			if t == nil {
				return "–"
			}
			return seconds(*t)
		},
		"inject": injectText,
		"link":   linkText,
		"mean":   func(t policy.Time, n int) string { return seconds(t / policy.Time(max(n, 1))) },
	}}.Write(out)
}

// seconds is a real time as text.
func seconds(t policy.Time) string {
	d := time.Duration(t) * time.Microsecond
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.2f ms", float64(t)/1e3)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// linkText is a change of links as text.
func linkText(e record.ProgramEvent) string {
	var of string
	for _, id := range e.IDs {
		of += " " + id.Node()
	}
	switch {
	case e.Type == record.Partition:
		return "Partition" + of
	case e.Type == record.Heal && of == "":
		return "all partitions end"
	case e.Type == record.Heal:
		return "the partition ends for" + of
	case e.Node != "":
		of = " " + e.Node
	default:
		of = " " + e.From + " → " + e.To
	}
	if e.Type == record.LinkRestored {
		return "the end of " + e.Op + of
	}
	return e.Op + of
}

func headline(rec *Record, s Story) string {
	switch {
	case s.Exit == nil:
		return fmt.Sprintf("The record was cut short after %s", seconds(s.End))
	case s.Cause != "":
		cause, _, _ := strings.Cut(s.Cause, " (its last line")
		return words.Capital(cause)
	case *s.Exit != 0:
		return fmt.Sprintf("The program exited with code %d after %s", *s.Exit, seconds(s.End))
	case len(s.Programs) < 2:
		return fmt.Sprintf("The program ended without a failure after %s", seconds(s.End))
	}
	return fmt.Sprintf("All programs ended without a failure after %s", seconds(s.End))
}

// ending answers the question how the programs ended.
func ending(s Story) document.Answer {
	a := document.Answer{Question: "How did the programs end?"}
	switch {
	case s.Exit == nil:
		a.Short = "the record has no end"
		a.Text = []string{"Testbed was killed before it could record the end."}
	case *s.Exit == 0:
		a.Short = "exit code 0"
	default:
		a.Short = fmt.Sprintf("exit code %d", *s.Exit)
		if s.Cause != "" {
			a.Text = []string{"The first failure: " + s.Cause + "."}
		}
	}
	return a
}

// faults answers the question which faults programs and links had.
func faults(rec *Record, s Story) document.Answer {
	a := document.Answer{Question: "Which injects happened?"}
	n := len(s.Injects)
	for _, e := range s.Links {
		if e.Type != record.LinkRestored { // it is the end of an inject
			n++
		}
	}
	if a.Short = words.Count(n, "inject"); n == 0 {
		a.Short = "no inject"
	}
	if s.Clock == nil {
		a.Text = append(a.Text, fmt.Sprintf("The clock of the scenario did not start (--clock %s), so no inject happened.", rec.Run.Clock))
	} else {
		a.Text = append(a.Text, fmt.Sprintf("The scenario's clock started after %s, with %s.", seconds(*s.Clock), s.ClockBy))
	}
	for _, e := range s.Slowings {
		a.Text = append(a.Text, fmt.Sprintf("%s computed %.3g times as slowly as before (intended: %.3g times).", e.Node, e.ShareBefore/e.ShareUsed, e.ShareBefore/e.ShareIntended))
	}
	return a
}

// traffic answers the question how much the links carried.
func traffic(s Story) document.Answer {
	a := document.Answer{Question: "What crossed the links?"}
	var all, most uint64
	var by string
	for _, p := range s.Programs {
		if p.Sent == nil {
			continue
		}
		all += *p.Sent
		if *p.Sent > most {
			most, by = *p.Sent, p.Node
		}
	}
	if by == "" {
		a.Short = "the record contains no traffic"
		return a
	}
	a.Short = fmt.Sprintf("%.1f MB", float64(all)/1e6)
	a.Text = []string{fmt.Sprintf("%s sent the most: %.1f MB.", by, float64(most)/1e6)}
	return a
}

// trust answers the question whether the network was as planned.
func trust(rec *Record, s Story) document.Answer {
	a := document.Answer{Question: "Did the network match its plan?"}
	if rec.Verdict == nil {
		a.Short = "there is no verdict"
		if s.Clock == nil {
			a.Text = []string{"The network is measured only after the scenario's clock has started."}
		}
		return a
	}
	a.Short, a.Level, a.Text = string(rec.Verdict.Verdict), rec.Verdict.Verdict, rec.Verdict.Reasons
	if rec.Verdict.Verdict == fidelity.Valid {
		a.Text = []string{"The network matched its plan since the scenario's clock started."}
	}
	return a
}
