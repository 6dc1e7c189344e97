//go:build linux

package programs

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"testbed/policy"
	"testbed/record"
	"testbed/scenarios/resolved"
)

// Recorder writes the record of programs, in the user's process. A nil Recorder
// writes nothing.
type Recorder struct{ file *os.File }

// NewRecorder begins the record in an existing directory; without a directory
// it returns nil.
func NewRecorder(dir string) (*Recorder, error) {
	if dir == "" {
		return nil, nil
	}
	file, err := os.Create(record.Dir(dir).Path(record.ProgramsFile))
	if err != nil {
		return nil, fmt.Errorf("beginning the record: %w", err)
	}
	return &Recorder{file}, nil
}

// Write writes an event.
func (r *Recorder) Write(e *record.ProgramEvent) error {
	if r == nil || e == nil {
		return nil
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = r.file.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("writing the record: %w", err)
	}
	return nil
}

// Close ends the record.
func (r *Recorder) Close() error {
	if r == nil {
		return nil
	}
	return r.file.Close()
}

// Told is the part of a job's notes about programs.
type Told struct {
	Event *record.ProgramEvent `json:"event,omitempty"`
}

// Record hands an event to the user's process, which keeps it if the user wants a record.
func (g *Ground) Record(e record.ProgramEvent) error {
	if g.began.IsZero() {
		g.began = time.Now()
	}
	e.T = policy.Time(time.Since(g.began).Microseconds())
	return g.S.Hand(Told{Event: &e})
}

// RecordBegin records the first event: the command of each node, and the rule
// of the clock.
func (g *Ground) RecordBegin(commands map[string][]string, rule Rule) error {
	run := &record.ProgramsRun{
		Schema: record.Schema, Scenario: g.spec.Name, Links: string(g.Links.Backend), TimeScale: g.spec.Faults.TimeScale, Dilation: g.spec.Faults.Dilation,
		Commands: commands, Clock: string(rule),
	}
	if tcp, err := g.Links.Kernel.TCP(); err == nil { // this host may have no node
		run.TCP = tcp
	}
	for _, n := range g.spec.Plan.Nodes {
		run.Nodes = append(run.Nodes, n.Name)
	}
	return g.Record(record.ProgramEvent{Type: record.ProgramsBegin, Run: run})
}

// StartClock starts the clock of the scenario at the scenario time zero. From
// now on links change by the clock, and the verdict covers the network.
func (g *Ground) StartClock(by string, zero policy.Time) error {
	g.Watch()
	if err := g.Record(record.ProgramEvent{Type: record.ProgramClock, Cause: by}); err != nil {
		return err
	}
	g.faults.Schedule(time.Now(), zero, func(before, at time.Duration) error {
		for _, e := range resolved.NetworkChanges(g.spec.Faults, before, at) {
			if err := g.Record(record.ProgramEvent{Type: e.Type, Op: e.Op, Node: e.Node, From: e.From, To: e.To, IDs: e.IDs}); err != nil {
				return err
			}
		}
		return nil
	})
	return nil
}

// RecordMark records a mark.
func (g *Ground) RecordMark(m Mark) error {
	return g.Record(record.ProgramEvent{Type: record.ProgramMark, Node: m.Node, Mark: m.Type, Fields: m.Fields})
}
