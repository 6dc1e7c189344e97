package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the page's parts
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"testbed/policy"
	"testbed/runlog"
	"testbed/scenarios"
)

//go:generate sh page/echarts/refresh.sh

// The page is one file: its style, its script and the chart library are inside.
var (
	//go:embed page/page.html
	pageHTML string
	//go:embed page/page.css
	pageCSS string
	//go:embed page/page.js
	pageJS string
	//go:embed page/echarts/echarts.min.js
	chartLibrary string
)

// side is what the page shows of one policy. Where a policy was run several
// times the pictures are those of the run with the median wall-clock.
type side struct {
	Policy    string   `json:"policy"`
	World     string   `json:"world"`
	Timeline  Timeline `json:"timeline"`
	Rounds    []Round  `json:"rounds"`
	Simulated []Round  `json:"simulated"` // the prediction for a real run
	Links     []Link   `json:"links"`

	Workers    []Worker   `json:"-"`
	Run        Run        `json:"-"` // the one shown
	Runs       []Run      `json:"-"` // all of them
	Prediction *Run       `json:"-"`
	Sidelining Sidelining `json:"-"` // over all of them
}

// page is what the template is filled with.
type page struct {
	Scenario    string  `json:"scenario"`
	Description string  `json:"description"`
	TimeScale   float64 `json:"time_scale"`
	Sides       []side  `json:"sides"`

	Record   *Record  `json:"-"`
	Headline string   `json:"-"`
	Answers  []answer `json:"-"`
}

// together keeps numbers and their units in one line.
var together = strings.NewReplacer(" µs", "\u00a0µs", " s ", "\u00a0s ", " %", "\u00a0%", " × ", "\u00a0×\u00a0")

// answer is one of the questions that a reader has.
type answer struct {
	Question string
	Short    string
	Text     []string
	Level    string // of trust, for its colour
}

// WriteHTML writes a report as one HTML file that needs nothing else.
func WriteHTML(out io.Writer, rec *Record) error {
	p, err := newPage(rec)
	if err != nil {
		return err
	}
	t, err := template.New("report").Funcs(template.FuncMap{
		"micros": micros, "real": func(t policy.Time) string { return seconds(rec.Scenario, t) },
		"megabits": func(bps float64) string { return fmt.Sprintf("%.1f Mbit/s", bps/1e6) },
		"percent":  func(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) },
		"yesno":    yesNo, "quality": quality, "minus": func(a, b policy.Time) policy.Time { return a - b },
		"signed":    signedMicros,
		"policy":    policyParameters,
		"typed":     typed,
		"gib":       func(n int64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) },
		"find":      func(list []Round, n int) *Round { return findRound(list, n) },
		"thousands": thousands[policy.Time], "count": thousands[int64], "base": filepath.Base,
		"doubtful": doubtful, "arrivals": arrivals,
	}).Parse(pageHTML)
	if err != nil {
		return fmt.Errorf("parsing the page: %w", err)
	}
	// Only these two scripts may run, and nothing may be fetched: were text of
	// a scenario to get into the page as markup, it could do nothing.
	security := fmt.Sprintf("default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; script-src '%s' '%s'",
		scriptHash(chartLibrary), scriptHash(pageJS))
	var b bytes.Buffer
	err = t.Execute(&b, map[string]any{
		"Page": p, "Security": security,
		"Style": template.CSS(pageCSS), "Library": template.JS(chartLibrary), "Script": template.JS(pageJS),
	})
	if err != nil {
		return fmt.Errorf("filling in the page: %w", err)
	}
	_, err = out.Write(b.Bytes())
	return err
}

func scriptHash(source string) string {
	sum := sha256.Sum256([]byte(source))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func newPage(rec *Record) (*page, error) {
	p := &page{Scenario: rec.Scenario.Name, Description: rec.Scenario.Description, TimeScale: rec.Scenario.Real.TimeScale, Record: rec}
	world := runlog.Sim
	for _, run := range rec.Runs {
		if run.World == runlog.Real {
			world = runlog.Real
		}
	}
	for _, name := range scenarios.PolicyNames {
		runs := rec.of(world, name)
		if len(runs) == 0 {
			continue
		}
		s := side{Policy: name, World: world, Runs: runs, Run: *typical(runs), Simulated: []Round{}}
		s.Timeline = NewTimeline(rec.Scenario, s.Run.Events)
		s.Rounds, s.Workers = rounds(&s.Run), workers(&s.Run, s.Timeline)
		if world == runlog.Real {
			if s.Prediction = typical(rec.of(runlog.Sim, name)); s.Prediction != nil {
				s.Simulated = rounds(s.Prediction)
			}
		}
		var err error
		if s.Links, err = links(rec.Scenario, s.Run.Events); err != nil {
			return nil, err
		}
		for _, run := range runs {
			s.Sidelining.add(sidelining(rec.Scenario, run.Events))
		}
		p.Sides = append(p.Sides, s)
	}
	p.Headline = p.headline()
	p.Answers = []answer{p.whoWasSlow(), p.whatWasDone(), p.whatWasGained(), p.trust()}
	p.Headline = together.Replace(p.Headline)
	for _, a := range p.Answers {
		for k := range a.Text {
			a.Text[k] = together.Replace(a.Text[k])
		}
	}
	return p, nil
}

// Completed says that there is a completed round to show.
func (p *page) Completed() bool {
	return slices.ContainsFunc(p.Sides, func(s side) bool { return len(s.Rounds) > 0 })
}

// side returns the side of a policy, or nil.
func (p *page) side(name string) *side {
	for k := range p.Sides {
		if p.Sides[k].Policy == name {
			return &p.Sides[k]
		}
	}
	return nil
}

// ratios are baseline's wall-clocks by straggler's, in pairs of runs that
// belong together, ascending.
func (p *page) ratios() []float64 {
	base, other := p.side(scenarios.Baseline), p.side(scenarios.Straggler)
	if base == nil || other == nil {
		return nil
	}
	var all []float64
	for k := range min(len(base.Runs), len(other.Runs)) {
		if wall := other.Runs[k].WallClock; wall > 0 && base.Runs[k].Complete && other.Runs[k].Complete {
			all = append(all, float64(base.Runs[k].WallClock)/float64(wall))
		}
	}
	slices.Sort(all)
	return all
}

// predictedRatio is the simulator's, 0 where there is none.
func (p *page) predictedRatio() float64 {
	base, other := p.side(scenarios.Baseline), p.side(scenarios.Straggler)
	if base == nil || other == nil || base.Prediction == nil || other.Prediction == nil || other.Prediction.WallClock == 0 {
		return 0
	}
	return float64(base.Prediction.WallClock) / float64(other.Prediction.WallClock)
}

func (p *page) headline() string {
	if ratios := p.ratios(); len(ratios) > 0 {
		base, other := p.side(scenarios.Baseline), p.side(scenarios.Straggler)
		return fmt.Sprintf("The straggler policy was %s as fast as the baseline: %s instead of %s for %d rounds.",
			times(median(ratios)), wallText(p.Record.Scenario, other), wallText(p.Record.Scenario, base), other.Run.OuterSteps)
	}
	var parts []string
	for _, s := range p.Sides {
		text := fmt.Sprintf("Under %s %d rounds took %s.", s.Policy, s.Run.OuterSteps, wallText(p.Record.Scenario, &s))
		if !s.Run.Complete {
			text = fmt.Sprintf("Under %s the run stayed incomplete: %d of %d rounds.", s.Policy, s.Run.OuterSteps, p.Record.Scenario.TargetOuterSteps)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

// wallText is a typical wall-clock in words.
func wallText(s *scenarios.Scenario, of *side) string {
	if of.World == runlog.Sim {
		return micros(of.Run.WallClock)
	}
	return fmt.Sprintf("%s (%s)", seconds(s, of.Run.WallClock), micros(of.Run.WallClock))
}

// slowShare is how many times the median a worker's inner steps take if the
// report calls it slow.
const slowShare = 1.5

func (p *page) whoWasSlow() answer {
	a := answer{Question: "Who was slow?", Short: "nobody"}
	if len(p.Sides) == 0 {
		return a
	}
	s := p.Sides[0]
	var means []policy.Time
	for _, w := range s.Workers {
		if w.Steps > 0 {
			means = append(means, w.MeanStep)
		}
	}
	var names []string
	if len(means) == 0 {
		a.Short = "not known"
		a.Text = append(a.Text, "No inner step was completed.")
	} else {
		middle := policy.Median(means)
		for _, w := range s.Workers {
			if share := float64(w.MeanStep) / float64(max(middle, 1)); share >= slowShare {
				names = append(names, w.Node)
				a.Text = append(a.Text, fmt.Sprintf("%s: an inner step took it %s on average under %s; the median of all workers is %s.", w.Node, micros(w.MeanStep), s.Policy, micros(middle)))
			}
		}
		if len(names) == 0 {
			a.Text = append(a.Text, fmt.Sprintf("An inner step took the slowest worker %s on average under %s, the median one %s.", micros(slices.Max(means)), s.Policy, micros(middle)))
		}
	}
	var acts []string
	var slowed []string // for a while: not on the average of the run
	for _, m := range s.Timeline.Marks {
		if injected[m.Type] {
			acts = append(acts, fmt.Sprintf("Scenario, %s after the start: %s.", micros(m.T), m.Text))
		}
		if m.Type == runlog.Slow && !slices.Contains(slowed, m.Node) {
			slowed = append(slowed, m.Node)
		}
	}
	switch {
	case len(names) > 0:
		a.Short = list(names)
	case len(slowed) > 0:
		a.Short = list(slowed) + ", for a while"
	}
	a.Text = append(few(a.Text), few(acts)...)
	return a
}

// few keeps the first of many lines: the tables have them all.
func few(lines []string) []string {
	const most = 4
	if len(lines) <= most {
		return lines
	}
	return append(slices.Clone(lines[:most]), fmt.Sprintf("… and %d more, in the tables.", len(lines)-most))
}

// injected are the marks that the scenario, and not the policy, has set.
var injected = map[runlog.Type]bool{
	runlog.Join: true, runlog.Crash: true, runlog.Leave: true, runlog.Slow: true, runlog.Restore: true, runlog.Partition: true,
	runlog.Heal: true, runlog.LinkFault: true, runlog.LinkRestored: true,
}

func (p *page) whatWasDone() answer {
	a := answer{Question: "What did it do, and why?", Short: "nothing out of the ordinary"}
	for _, s := range p.Sides {
		text := s.Policy + ": " + crowd(s.Run.Summary) + "."
		acted := len(s.Run.Sidelined)+len(s.Run.Evicted) > 0
		if acted {
			a.Short = s.Policy + " acted"
			var who []string
			for _, m := range append(slices.Clone(s.Run.Sidelined), s.Run.Evicted...) {
				if name := scenarios.NodeName(m.ID); !slices.Contains(who, name) {
					who = append(who, name)
				}
			}
			a.Short = fmt.Sprintf("%s left %s out", s.Policy, list(who))
			if len(s.Run.Sidelined) == 0 {
				a.Short = fmt.Sprintf("%s removed %s", s.Policy, list(who))
			}
			first := append(slices.Clone(s.Run.Sidelined), s.Run.Evicted...)[0]
			text += fmt.Sprintf(" Why, in round %d: %s.", first.Round, Because(first.Why))
		} else if s.Policy == scenarios.Baseline {
			text += " It waits for every member."
		}
		a.Text = append(a.Text, text)
	}
	return a
}

func (p *page) whatWasGained() answer {
	a := answer{Question: "What did it gain?"}
	ratios := p.ratios()
	if len(ratios) == 0 {
		a.Short = "one policy only"
		for _, s := range p.Sides {
			a.Text = append(a.Text, fmt.Sprintf("%s: %s.", s.Policy, wallText(p.Record.Scenario, &s)))
		}
		if len(p.Sides) == 2 {
			a.Short = "not known"
			a.Text = append(a.Text, "A run that stayed incomplete has no speed-up.")
		}
		return a
	}
	a.Short = times(median(ratios))
	base, other := p.side(scenarios.Baseline), p.side(scenarios.Straggler)
	a.Text = append(a.Text, fmt.Sprintf("%s under straggler, %s under baseline.", wallText(p.Record.Scenario, other), wallText(p.Record.Scenario, base)))
	if n := len(ratios); n > 1 {
		a.Text = append(a.Text, fmt.Sprintf("Over %d pairs of runs the speed-up was %.2f at least, %.2f in the middle, %.2f at most.", n, ratios[0], median(ratios), ratios[n-1]))
	}
	if predicted := p.predictedRatio(); predicted > 0 {
		a.Text = append(a.Text, fmt.Sprintf("The simulator had predicted %s.", times(predicted)))
	}
	return a
}

func (p *page) trust() answer {
	a := answer{Question: "Can it be trusted?"}
	if len(p.Sides) == 0 || p.Sides[0].World == runlog.Sim {
		a.Short = "simulated only"
		return a
	}
	rank := map[string]int{"valid": 0, "suspect": 1, "invalid": 2}
	meaning := []string{
		"yes: the emulation was what it claimed to be",
		"with care: the figures may be off by what the reasons say",
		"no: the figures say more about the machine than about the plan",
	}
	worst := 0
	var reasons []string
	for _, s := range p.Sides {
		for _, run := range s.Runs {
			r, known := rank[run.Fidelity.Verdict]
			if !known {
				r = 2
			}
			worst = max(worst, r)
			for _, reason := range run.Fidelity.Reasons {
				reasons = append(reasons, filepath.Base(run.Dir)+": "+reason)
			}
			switch {
			case !run.Complete:
				worst, meaning[2] = 2, "no: a run stayed incomplete"
				reasons = append(reasons, fmt.Sprintf("%s: incomplete, %d of %d rounds", filepath.Base(run.Dir), run.OuterSteps, p.Record.Scenario.TargetOuterSteps))
			case run.BitIdentical != nil && !*run.BitIdentical:
				worst, meaning[2] = 2, "no: workers ended with different bytes"
				reasons = append(reasons, filepath.Base(run.Dir)+": workers ended with different bytes")
			}
		}
	}
	a.Level = []string{"valid", "suspect", "invalid"}[worst]
	a.Short = meaning[worst]
	a.Text = append(a.Text, reasons...)
	if worst < 2 {
		a.Text = append(a.Text, "Every worker ended every round with the same bytes.")
	}
	for _, s := range p.Sides {
		if s.Policy == scenarios.Straggler {
			a.Text = append(a.Text, brief(s.Sidelining))
		}
	}
	if s := p.Sides[0]; s.Prediction != nil && len(s.Prediction.NotSimulated) > 0 {
		a.Text = append(a.Text, capital(leftOut(s.Prediction.Summary))+".")
	}
	for _, s := range p.Sides {
		if off, ok := s.PredictionError(); ok {
			a.Text = append(a.Text, fmt.Sprintf("The simulator's wall-clock under %s is off by %+.1f %%.", s.Policy, 100*off))
		}
	}
	return a
}

// PredictionError is (simulated − measured) / measured wall-clock.
func (s *side) PredictionError() (share float64, ok bool) {
	measured := float64(s.MedianWall())
	incomplete := func(run Run) bool { return !run.Complete }
	if s.Prediction == nil || measured == 0 || slices.ContainsFunc(s.Runs, incomplete) {
		return 0, false
	}
	return (float64(s.Prediction.WallClock) - measured) / measured, true
}

// ErrorText is the prediction error for a table.
func (s *side) ErrorText() string {
	if off, ok := s.PredictionError(); ok {
		return fmt.Sprintf("%+.1f %%", 100*off)
	}
	return "–"
}

// MedianWall is the median wall-clock of all runs.
func (s *side) MedianWall() policy.Time { return policy.Median(walls(s.Runs)) }

// WallText is the wall-clock of all runs: one, or least, median and most.
func (s *side) WallText() string {
	all := walls(s.Runs)
	middle := policy.Median(all) // sorts
	if len(all) == 1 {
		return micros(middle)
	}
	return fmt.Sprintf("%s – %s – %s", thousands(all[0]), thousands(middle), micros(all[len(all)-1]))
}

// crowd says who was sidelined and evicted, or how many where it is many.
func crowd(sum runlog.Summary) string {
	if len(sum.Sidelined)+len(sum.Rejoined)+len(sum.Evicted) <= 2*maxListed {
		return standing(sum)
	}
	count := func(members []runlog.Membership) string {
		who := map[policy.ID]bool{}
		for _, m := range members {
			who[m.ID] = true
		}
		return fmt.Sprintf("%d times, %d workers", len(members), len(who))
	}
	return fmt.Sprintf("sidelined %s; back in time %s; evicted %d", count(sum.Sidelined), count(sum.Rejoined), len(sum.Evicted))
}

// Stands says who was sidelined and evicted, and whether as predicted.
func (s *side) Stands() string {
	text := crowd(s.Run.Summary)
	switch {
	case s.Prediction == nil:
		return text
	case standing(s.Prediction.Summary) != standing(s.Run.Summary):
		return text + "; simulated: " + crowd(s.Prediction.Summary)
	}
	return text + " (simulated: the same)"
}

// add counts another run in.
func (s *Sidelining) add(o Sidelining) {
	s.Left += o.Left
	s.Right += o.Right
	s.Excused += o.Excused
	s.Slow += o.Slow
	s.Caught += o.Caught
}

// quality puts precision and recall of sidelining into words.
func quality(s Sidelining) string {
	var parts []string
	if precision, ok := s.Precision(); ok {
		parts = append(parts, fmt.Sprintf("of %d times that a worker was left out as late, %d met one that the scenario had slowed down (precision %.2f)", s.Left-s.Excused, s.Right, precision))
	} else {
		parts = append(parts, "nobody was left out as late without another cause")
	}
	if s.Excused > 0 {
		parts = append(parts, fmt.Sprintf("%d times it met a worker that was not slow, but cut off, crashed, on a changed link or joining", s.Excused))
	}
	if recall, ok := s.Recall(); ok {
		parts = append(parts, fmt.Sprintf("of %d times that a slow worker could have been left out, it was %d times (recall %.2f)", s.Slow, s.Caught, recall))
	}
	return "Sidelining: " + strings.Join(parts, "; ") + "."
}

// brief is quality in one short line.
func brief(s Sidelining) string {
	precision, left := s.Precision()
	recall, slow := s.Recall()
	switch {
	case left && slow:
		return fmt.Sprintf("Sidelining of slowed workers: precision %.2f, recall %.2f.", precision, recall)
	case left:
		return fmt.Sprintf("Sidelining: precision %.2f; nobody was slow at a deadline.", precision)
	case slow:
		return fmt.Sprintf("Sidelining: nobody was left out as late; recall %.2f.", recall)
	}
	return "Sidelining: nobody was slow at a deadline, nor left out without another cause."
}

// doingKinds are the columns of the table of workers' time.
var doingKinds = []Kind{InnerStep, Dropped, Waiting, ReduceScatter, AllGather, AllReduce, Fetch}

// Kinds lists what any worker of the side did.
func (s *side) Kinds() (kinds []Kind) {
	for _, kind := range doingKinds {
		if slices.ContainsFunc(s.Timeline.Doing, func(span Span) bool { return span.Kind == kind }) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// Command is the command line that makes the same runs again.
func (p *page) Command() string {
	rec := p.Record
	source := rec.Scenario.Name
	if !rec.Library {
		source = quote(rec.source.File)
	}
	var links string
	most := 0
	for _, s := range p.Sides {
		most = max(most, len(s.Runs))
		if s.World == runlog.Real {
			links = " --links " + s.Run.Links
		}
	}
	flags := links
	if scale := rec.Scenario.Real.TimeScale; scale != rec.ownScale {
		flags += fmt.Sprintf(" --time-scale %g", scale)
	}
	if len(p.Sides) == 2 {
		if most > 1 {
			flags += fmt.Sprintf(" --repeat %d", most)
		}
		return "testbed compare " + source + flags
	}
	verb := "run"
	if links == "" {
		verb = "simulate"
	}
	return fmt.Sprintf("testbed %s %s --policy %s%s", verb, source, p.Sides[0].Policy, flags)
}

// Environment is that of the first run which has one.
func (p *page) Environment() *runlog.Environment {
	for _, s := range p.Sides {
		if s.Run.Environment != nil {
			return s.Run.Environment
		}
	}
	return nil
}

func typed(command []string) string {
	words := make([]string, len(command))
	for k, word := range command {
		words[k] = quote(word)
	}
	return strings.Join(words, " ")
}

// quote writes a word as a shell takes it.
func quote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,+@%", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func policyParameters(s *scenarios.Scenario) string {
	p := s.Policy.Straggler
	return fmt.Sprintf("quorum %g, k %g, window %d, min_history %d, min_slack %s (real runs: at least %s of real time), sideline_limit %d",
		p.Quorum, p.K, p.Window, p.MinHistory, micros(p.MinSlack), s.Real.MinSlack, p.SidelineLimit)
}

func seconds(s *scenarios.Scenario, t policy.Time) string {
	return fmt.Sprintf("%.1f s", s.RealDuration(t).Seconds())
}

func findRound(list []Round, n int) *Round {
	for k := range list {
		if list[k].Round == n {
			return &list[k]
		}
	}
	return nil
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

func times(ratio float64) string { return fmt.Sprintf("%.2f×", ratio) }

// median is that of ascending numbers.
func median(ascending []float64) float64 {
	n := len(ascending)
	return (ascending[(n-1)/2] + ascending[n/2]) / 2
}

func list(names []string) string {
	n := len(names)
	if n > maxListed {
		return fmt.Sprintf("%d workers", n)
	}
	if n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return strings.Join(names, "")
}

func signedMicros(t policy.Time) string {
	if t < 0 {
		return "−" + micros(-t)
	}
	return "+" + micros(t)
}

// doubtful lists the rounds of a run whose verdict is not the best one.
func doubtful(run Run) (lines []string) {
	for _, r := range run.Rounds {
		if r.Verdict != "valid" {
			lines = append(lines, fmt.Sprintf("round %d %s: %s", r.Round, r.Verdict, strings.Join(r.Reasons, "; ")))
		}
	}
	return lines
}

// arrivals lists when workers arrived, of many only the last.
func arrivals(r Round) string {
	var parts []string
	for _, a := range r.Arrivals {
		text := a.Node + "\u00a0" + thousands(a.Offset)
		if a.Late {
			text += "\u00a0(late)"
		}
		parts = append(parts, text)
	}
	if n := len(parts); n > maxListed {
		return fmt.Sprintf("%d arrivals, the last %s", n, strings.Join(parts[n-3:], ", "))
	}
	return strings.Join(parts, ", ")
}
