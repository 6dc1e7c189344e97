package report

import (
	_ "embed" // the page's parts
	"fmt"
	"html/template"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"testbed/internal/stats"
	"testbed/policy"
	"testbed/record"
	"testbed/report/agreement"
	"testbed/report/document"
	"testbed/report/learning"
	"testbed/report/runs"
	"testbed/report/timeline"
	"testbed/report/words"
	"testbed/scenarios"
)

var (
	//go:embed page/page.html
	pageHTML string
	//go:embed page/page.js
	pageJS string
)

// page is the data of the template.
type page struct {
	Scenario    string  `json:"scenario"`
	Description string  `json:"description"`
	TimeScale   float64 `json:"time_scale"`
	Sides       []side  `json:"sides"`
	// Trade is empty if there is nothing to compare or no work was counted.
	Trade []score `json:"trade,omitempty"`
	// Learning is nil if nothing was trained.
	Learning *learning.Result `json:"learning,omitempty"`
	// LossUnit is the unit of losses, empty if only the user's program knows it.
	LossUnit string `json:"loss_unit,omitempty"`
	// Gradients are those of the shown runs, if known.
	Gradients []*learning.Gradients `json:"gradients,omitempty"`

	world      string // world of the shown runs
	statistics Statistics
	scores     []score
	ranks      map[string]stats.Correlation

	// Agreement is nil unless there are several link backends.
	Agreement *agreement.Table `json:"-"`

	Record   *runs.Record      `json:"-"`
	Headline string            `json:"-"`
	Answers  []document.Answer `json:"-"`
}

// WriteHTML writes a report as one self-contained HTML file.
func WriteHTML(out io.Writer, rec *runs.Record) error {
	p, err := newPage(rec)
	if err != nil {
		return err
	}
	return document.Page{HTML: pageHTML, Data: p, Script: pageJS, Funcs: template.FuncMap{
		"micros": words.Micros, "real": func(t policy.Time) string { return seconds(rec.Scenario, t) },
		"megabits": func(bps float64) string { return fmt.Sprintf("%.1f Mbit/s", bps/1e6) },
		"percent":  func(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) },
		"yesno":    yesNo, "quality": quality, "minus": func(a, b policy.Time) policy.Time { return a - b },
		"signed":    signedMicros,
		"typed":     words.Typed,
		"gib":       func(n int64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) },
		"find":      func(list []timeline.Round, n int) *timeline.Round { return findRound(list, n) },
		"thousands": words.Thousands[policy.Time], "count": words.Thousands[int64], "base": filepath.Base,
		"node": policy.ID.Node, "noticed": noticed, "world": worldText, "summary": policy.Summary,
		"lossText": learning.LossText, "lines": lines, "share": percentText, "brief": learning.Share,
		"doubtful": doubtful, "arrivals": arrivals,
	}}.Write(out)
}

func newPage(rec *runs.Record) (*page, error) {
	p := &page{Scenario: rec.Scenario.Name, Description: rec.Scenario.Description, TimeScale: rec.Scenario.Real.TimeScale, LossUnit: rec.Scenario.Train.LossUnit(), Record: rec}
	world := record.Sim
	for _, run := range rec.Runs {
		if run.World == record.Real {
			world = record.Real
		}
	}
	for _, name := range rec.Policies() {
		played := rec.Of(world, name)
		if len(played) == 0 {
			continue
		}
		s := side{Policy: name, World: world, Runs: played, Run: *runs.Typical(played), Simulated: []timeline.Round{}}
		s.Timeline = timeline.New(rec.Scenario, s.Run.Events)
		s.Timeline.Group(s.Run.Hosts)
		s.Rounds, s.Workers = timeline.Rounds(&s.Run), timeline.Workers(&s.Run, s.Timeline)
		if world == record.Real {
			s.predict(rec.Of(record.Sim, name))
			onLinks := rec.OnLinks(name)
			s.LinksError, s.OnLinks = s.against(onLinks), runs.Seeded(onLinks, s.Run.Seed, 0)
		}
		var err error
		if s.Links, err = timeline.Links(rec.Scenario, s.Run.Events); err != nil {
			return nil, err
		}
		if g := learning.NewGradients(name, s.Run.Summary); g != nil {
			p.Gradients = append(p.Gradients, g)
		}
		s.Sidelining = judged(rec.Scenario, played)
		p.Sides = append(p.Sides, s)
	}
	p.world = world
	if len(p.Sides) > 0 {
		p.compare()
	}
	p.Headline = p.headline()
	p.Answers = []document.Answer{p.whoWasSlow(), p.whatWasDone(), p.whatWasGained(), p.trust()}
	if p.Learning != nil { // the loss first
		p.Headline = words.Capital(p.Learning.Headline())
		p.Answers = slices.Insert(p.Answers, 0, p.trainingAnswer())
	}
	p.Headline = document.Together.Replace(p.Headline)
	for _, a := range p.Answers {
		for k := range a.Text {
			a.Text[k] = document.Together.Replace(a.Text[k])
		}
	}
	return p, nil
}

// compare compares the policies.
func (p *page) compare() {
	policies := p.policies()
	all := matchRuns(p.Record, policies, p.world)
	if len(p.Record.Links) > 1 && p.world == record.Real {
		var played []record.Summary
		for _, run := range p.Record.Runs {
			played = append(played, run.Summary)
		}
		p.Agreement = agreement.New(policies, p.Record.Links, played)
	}
	var seeds []Set
	for _, m := range all {
		seeds = append(seeds, m.runs[p.world])
	}
	p.Learning = learning.New(policies, seeds, p.Record.Target)
	p.statistics, p.scores, p.ranks = statistics(policies, all), scores(policies, all), rankCorrelations(policies, all)
	if len(policies) > 1 && slices.ContainsFunc(p.scores, func(s score) bool { return s.Lost != nil }) {
		p.Trade = p.scores
	}
}

// policies are the shown policies, the reference first.
func (p *page) policies() (names []string) {
	for _, s := range p.Sides {
		names = append(names, s.Policy)
	}
	return names
}

// OtherPolicies are the names, without parameters, of the shown policies that
// the page does not explain elsewhere.
func (p *page) OtherPolicies() (names []string) {
	for _, s := range p.Sides {
		name, _, _ := strings.Cut(s.Policy, ":")
		if slices.Contains(policy.Names(), name) && !slices.Contains(scenarios.PolicyNames, name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Scores is the table of every policy in every world, if there are more than
// two policies or if the picture of the trade needs it.
func (p *page) Scores() []score {
	if len(p.Sides) > 2 || p.Trade != nil {
		return p.scores
	}
	return nil
}

// Ranks says whether the simulated orders agree with the measured one.
func (p *page) Ranks() []string { return rankText(p.ranks) }

// Completed reports whether there is a completed round to show.
func (p *page) Completed() bool {
	return slices.ContainsFunc(p.Sides, func(s side) bool { return len(s.Rounds) > 0 })
}

// Missed reports whether the parts of prediction errors are known.
func (p *page) Missed() bool {
	return slices.ContainsFunc(p.Sides, func(s side) bool { return len(s.Misses()) > 0 })
}

// OnLinks reports whether there are predictions on planned links.
func (p *page) OnLinks() bool {
	return slices.ContainsFunc(p.Sides, func(s side) bool { return s.LinksError.N > 0 })
}

// lines breaks a text of a table before its first bracket.
func lines(text string) template.HTML {
	first, rest, found := strings.Cut(text, " (")
	if !found {
		return template.HTML(template.HTMLEscapeString(text))
	}
	return template.HTML(template.HTMLEscapeString(first) + `<br><span class="soft">(` + template.HTMLEscapeString(rest) + "</span>")
}

// Lost reports whether a worker was lost without leaving.
func (p *page) Lost() bool {
	return slices.ContainsFunc(p.Sides, func(s side) bool { return len(s.Run.Detected) > 0 })
}

// noticed says how the loss of a worker was noticed.
func noticed(cause policy.Rule) string {
	switch cause {
	case policy.RuleHeartbeat:
		return "heartbeat: it was silent for too long"
	case policy.RuleConnection:
		return "connection: its control connection ended"
	case policy.RuleGaveUp:
		return "gave_up: it told the coordinator that it gives up"
	case policy.RuleProgress:
		return "progress: a reduction with it stalled"
	case policy.RuleReduceFailed:
		return "reduce_failed: it took part in several failed reductions of a round"
	}
	return string(cause)
}

func seconds(s *scenarios.Scenario, t policy.Time) string {
	return fmt.Sprintf("%.1f s", s.RealDuration(t).Seconds())
}
