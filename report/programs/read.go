// Package programs writes the report of a user's own programs, from a directory
// that testbed launch or testbed net has written.
package programs

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"testbed/internal/lines"
	"testbed/policy"
	"testbed/record"
	"testbed/shaping/fidelity"
)

// Record is the record of a run of programs.
type Record struct {
	Dir    string
	Run    record.ProgramsRun
	Events []record.ProgramEvent
	// Verdict is nil if there is none.
	Verdict *fidelity.Verdict
}

// Is reports whether a directory has a record of programs.
func Is(dir string) bool {
	_, err := os.Stat(record.Dir(dir).Path(record.ProgramsFile))
	return err == nil
}

// Read reads the record in a directory. A record that was cut short is read up
// to the cut.
func Read(dir string) (*Record, error) {
	rec := &Record{Dir: dir}
	file, err := os.Open(record.Dir(dir).Path(record.ProgramsFile))
	if err != nil {
		return nil, fmt.Errorf("reading the record: %w", err)
	}
	defer file.Close()
	err = lines.Read(file, file.Name(), func(_ int, _ []byte, e *record.ProgramEvent) error {
		rec.Events = append(rec.Events, *e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(rec.Events) == 0 || rec.Events[0].Run == nil {
		return nil, fmt.Errorf("%s: the first line is not an event of type begin; name a directory that testbed launch or net wrote with --out", file.Name())
	}
	rec.Run = *rec.Events[0].Run
	if rec.Run.Schema > record.Schema {
		return nil, fmt.Errorf("%s: its format %d is too new, because this program reads formats up to %d; use a newer testbed", file.Name(), rec.Run.Schema, record.Schema)
	}
	text, err := os.ReadFile(record.Dir(dir).Path(record.FidelityFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("reading the record: %w", err)
	default:
		rec.Verdict = new(fidelity.Verdict)
		if err := json.Unmarshal(text, rec.Verdict); err != nil {
			return nil, fmt.Errorf("%s: %w", record.Dir(dir).Path(record.FidelityFile), err)
		}
	}
	return rec, nil
}

// Condition is a condition of a node, for some time.
type Condition string

// The conditions. The page's colours have these names.
const (
	Running     Condition = "program runs"
	Paused      Condition = "paused"
	Slowed      Condition = "slowed down"
	CutOff      Condition = "cut off"
	LinkChanged Condition = "link changed"
	Crashed     Condition = "dead"
)

// Span is a condition of a node from one time to another, in real microseconds.
type Span struct {
	Node string      `json:"node"`
	Is   Condition   `json:"is"`
	From policy.Time `json:"from"`
	To   policy.Time `json:"to"`
	Text string      `json:"text,omitempty"`
}

// Mark is something that happened at a moment.
type Mark struct {
	Node string      `json:"node"`
	At   policy.Time `json:"at"`
	What string      `json:"what"` // mark, inject or exit
	Text string      `json:"text"`
}

// Curve is a quantity of a node over time.
type Curve struct {
	Node   string       `json:"node"`
	Points [][2]float64 `json:"points"` // microseconds, value
}

// Program is the outcome of the programs of a node, all incarnations together.
type Program struct {
	Node    string
	Command string
	Starts  int
	Began   policy.Time // the first
	Ended   policy.Time // the last
	Outcome string      // in words
	// Sent, Received and Processor are the values of the last sample, nil without
	// one.
	Sent, Received *uint64
	Processor      *policy.Time
	Marks          int
}

// Waiting is how long a node waited for the slowest one, in the rounds that all
// nodes marked.
type Waiting struct {
	Node   string
	Rounds int
	Waited policy.Time // for the last arrival, over all rounds
	Longer policy.Time // from the last arrival until the node had the outcome
}

// Story is the content of a record, for pictures and tables.
type Story struct {
	End      policy.Time
	Clock    *policy.Time // when the scenario's clock started
	ClockBy  string
	Spans    []Span
	Marks    []Mark
	Sent     []Curve // Mbit/s
	Received []Curve // Mbit/s
	Shares   []Curve // of a processor
	Losses   []Curve // of marks with a field loss
	Programs []Program
	Slowings []record.ProgramEvent
	Injects  []record.ProgramEvent
	Links    []record.ProgramEvent
	Waits    []Waiting
	Exit     *int // of the launch; nil if the record was cut short
	Cause    string
}

// storyteller collects a Story event by event.
type storyteller struct {
	Story
	run      record.ProgramsRun
	open     map[string][]Span // by node
	programs map[string]*Program
	samples  map[string]record.ProgramEvent // the last of each node
	curves   map[string]map[string]*Curve   // by kind and node
	rounds   map[string]map[string]arrival  // by round and node
}

// arrival has the times at which a node came to a reduction and had its
// outcome.
type arrival struct{ at, outcome policy.Time }

// NewStory makes the story of a record.
func NewStory(rec *Record) Story {
	s := &storyteller{
		run: rec.Run, open: map[string][]Span{}, programs: map[string]*Program{}, samples: map[string]record.ProgramEvent{},
		curves: map[string]map[string]*Curve{}, rounds: map[string]map[string]arrival{},
	}
	for _, e := range rec.Events {
		s.End = max(s.End, e.T)
		s.take(e)
	}
	for _, node := range s.nodes() {
		for len(s.open[node]) > 0 {
			s.close(node, s.open[node][0].Is, s.End)
		}
	}
	slices.SortStableFunc(s.Spans, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	s.Sent, s.Received, s.Shares, s.Losses = s.all("sent"), s.all("received"), s.all("share"), s.all("loss")
	for _, node := range s.nodes() {
		if p := s.programs[node]; p != nil {
			s.Programs = append(s.Programs, *p)
		}
	}
	s.wait()
	return s.Story
}

// nodes returns the nodes of the network, and any others that had programs.
func (s *storyteller) nodes() []string {
	all := slices.Clone(s.run.Nodes)
	for node := range s.run.Commands {
		if !slices.Contains(all, node) {
			all = append(all, node)
		}
	}
	return all
}

func (s *storyteller) take(e record.ProgramEvent) {
	switch e.Type {
	case record.ProgramStart:
		p := s.program(e.Node)
		if p.Starts == 0 {
			p.Began = e.T
		}
		p.Starts++
		p.Outcome = "ran until the end of the record"
		s.close(e.Node, Crashed, e.T)
		s.begin(e.Node, Running, e.T, fmt.Sprintf("incarnation %d", e.Incarnation))
	case record.ProgramExit:
		p := s.program(e.Node)
		p.Ended, p.Outcome = e.T, outcome(e)
		crashed := len(s.open[e.Node]) > 0 && slices.ContainsFunc(s.open[e.Node], func(o Span) bool { return o.Is == Crashed })
		s.close(e.Node, Running, e.T)
		s.close(e.Node, Paused, e.T)
		if !crashed {
			s.Marks = append(s.Marks, Mark{e.Node, e.T, "exit", p.Outcome})
		}
	case record.ProgramClock:
		s.Clock, s.ClockBy = new(e.T), e.Cause
	case record.ProgramInject:
		s.Injects = append(s.Injects, e)
		s.Marks = append(s.Marks, Mark{e.Node, e.T, "inject", injectText(e)})
		s.inject(e)
	case record.ProgramSlowed:
		s.Slowings = append(s.Slowings, e)
	case record.ProgramMark:
		s.mark(e)
	case record.ProgramSample:
		s.sample(e)
	case record.ProgramsFinish:
		s.Exit, s.Cause = e.Code, e.Cause
	case record.Partition, record.Heal, record.LinkFault, record.LinkRestored:
		s.link(e)
	}
}

func (s *storyteller) program(node string) *Program {
	p := s.programs[node]
	if p == nil {
		p = &Program{Node: node, Command: strings.Join(s.run.Commands[node], " ")}
		s.programs[node] = p
	}
	return p
}

// outcome is the end of a program as text.
func outcome(e record.ProgramEvent) string {
	switch {
	case e.Cause != "":
		return "could not be started: " + e.Cause
	case e.Signal != "":
		return "ended by " + e.Signal
	case e.Code != nil:
		return fmt.Sprintf("exited with code %d", *e.Code)
	}
	return "ended"
}

// injectText is an inject as text.
func injectText(e record.ProgramEvent) string {
	text := e.Op
	if e.Factor != 0 {
		text += fmt.Sprintf(" by %g", e.Factor)
	}
	switch n := e.Processes; {
	case n == nil:
	case *n == 1:
		text += ", 1 process"
	default:
		text += fmt.Sprintf(", %d processes", *n)
	}
	return text
}

func (s *storyteller) begin(node string, is Condition, at policy.Time, text string) {
	s.open[node] = append(s.open[node], Span{Node: node, Is: is, From: at, Text: text})
}

// close ends the first open condition of a kind, if there is one.
func (s *storyteller) close(node string, is Condition, at policy.Time) {
	k := slices.IndexFunc(s.open[node], func(o Span) bool { return o.Is == is })
	if k < 0 {
		return
	}
	span := s.open[node][k]
	s.open[node] = slices.Delete(s.open[node], k, k+1)
	span.To = at
	s.Spans = append(s.Spans, span)
}

func (s *storyteller) inject(e record.ProgramEvent) {
	switch e.Op {
	case "Pause":
		s.begin(e.Node, Paused, e.T, "")
	case "Resume":
		s.close(e.Node, Paused, e.T)
	case "Slow":
		s.close(e.Node, Slowed, e.T)
		s.begin(e.Node, Slowed, e.T, fmt.Sprintf("by %g", e.Factor))
	case "Restore":
		s.close(e.Node, Slowed, e.T)
	case "Crash", "Restart", "Preempt":
		if e.Op != "Preempt" || e.Processes != nil { // else it is the warning
			s.close(e.Node, Running, e.T)
			s.close(e.Node, Paused, e.T)
			s.begin(e.Node, Crashed, e.T, "")
		}
	}
}

func (s *storyteller) link(e record.ProgramEvent) {
	s.Links = append(s.Links, e)
	var nodes []string
	is := LinkChanged
	for _, id := range e.IDs {
		nodes = append(nodes, id.Node())
	}
	switch {
	case e.Type == record.Partition:
		is = CutOff
	case e.Type == record.Heal:
		is = CutOff
		if len(nodes) == 0 {
			nodes = s.run.Nodes // all
		}
	case e.Node != "":
		nodes = []string{e.Node}
	default:
		nodes = []string{e.From, e.To}
	}
	for _, node := range nodes {
		if e.Type == record.Partition || e.Type == record.LinkFault {
			s.begin(node, is, e.T, e.Op)
		} else {
			s.close(node, is, e.T)
		}
	}
}

// point adds a point to the curve of a kind and a node.
func (s *storyteller) point(kind, node string, at policy.Time, value float64) {
	if s.curves[kind] == nil {
		s.curves[kind] = map[string]*Curve{}
	}
	c := s.curves[kind][node]
	if c == nil {
		c = &Curve{Node: node}
		s.curves[kind][node] = c
	}
	c.Points = append(c.Points, [2]float64{float64(at), value})
}

func (s *storyteller) all(kind string) (curves []Curve) {
	for _, node := range s.nodes() {
		if c := s.curves[kind][node]; c != nil {
			curves = append(curves, *c)
		}
	}
	return curves
}

// sample adds a sample of a node. Rates are averages since the previous sample.
func (s *storyteller) sample(e record.ProgramEvent) {
	before, is := s.samples[e.Node]
	s.samples[e.Node] = e
	p := s.program(e.Node)
	p.Sent, p.Received, p.Processor = e.BytesSent, e.BytesReceived, e.Processor
	took := float64(e.T - before.T)
	if !is || took <= 0 {
		return
	}
	rate := func(kind string, was, now *uint64) {
		if was != nil && now != nil && *now >= *was {
			s.point(kind, e.Node, e.T, float64(*now-*was)*8/took)
		}
	}
	rate("sent", before.BytesSent, e.BytesSent)
	rate("received", before.BytesReceived, e.BytesReceived)
	if before.Processor != nil && e.Processor != nil {
		s.point("share", e.Node, e.T, float64(*e.Processor-*before.Processor)/took)
	}
}

// mark adds a mark of a program. Marks that report when a worker came to a
// reduction, and when it had the outcome, are recognised by their types.
func (s *storyteller) mark(e record.ProgramEvent) {
	text := e.Mark
	fields, err := json.Marshal(e.Fields)
	if len(e.Fields) > 0 && err == nil {
		text += " " + string(fields)
	}
	s.Marks = append(s.Marks, Mark{e.Node, e.T, "mark", text})
	if slices.Contains(s.nodes(), e.Node) {
		s.program(e.Node).Marks++
	}
	if loss, is := e.Fields["loss"].(float64); is {
		s.point("loss", e.Node, e.T, loss)
	}
	round := fmt.Sprint(e.Fields["round"])
	if e.Fields["round"] == nil || e.Mark != "arrive" && e.Mark != "reduced" && e.Mark != "reduce_end" {
		return
	}
	if s.rounds[round] == nil {
		s.rounds[round] = map[string]arrival{}
	}
	a := s.rounds[round][e.Node]
	if e.Mark == "arrive" {
		a.at = e.T
	} else {
		a.outcome = e.T
	}
	s.rounds[round][e.Node] = a
}

// wait adds up how long nodes waited for each other, in rounds that at least
// two nodes have marked.
func (s *storyteller) wait() {
	waits := map[string]*Waiting{}
	for _, round := range s.rounds {
		var last policy.Time
		arrived := 0
		for _, a := range round {
			if a.at > 0 {
				arrived++
				last = max(last, a.at)
			}
		}
		if arrived < 2 {
			continue
		}
		for node, a := range round {
			if a.at == 0 {
				continue
			}
			w := waits[node]
			if w == nil {
				w = &Waiting{Node: node}
				waits[node] = w
			}
			w.Rounds++
			w.Waited += last - a.at
			w.Longer += max(a.outcome-last, 0)
		}
	}
	for _, node := range s.nodes() {
		if w := waits[node]; w != nil {
			s.Waits = append(s.Waits, *w)
		}
	}
}
