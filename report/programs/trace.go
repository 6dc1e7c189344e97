package programs

import (
	"encoding/json"
	"fmt"
	"io"
)

// traceEvent is an event of the Trace Event Format, the JSON that Chrome's tracing and
// Perfetto read ("Trace Event Format", Google, 2016). Times are microseconds.
type traceEvent struct {
	Name     string         `json:"name"`
	Phase    string         `json:"ph"`
	Time     float64        `json:"ts"`
	Duration *float64       `json:"dur,omitempty"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	Scope    string         `json:"s,omitempty"`
	Args     map[string]any `json:"args,omitempty"`
}

// Threads of a node's process.
const (
	programThread   = 1
	conditionThread = 2
)

// WriteTrace writes the record in the Trace Event Format: each node is a process, with
// its program, its conditions and its counters, in real time.
func WriteTrace(out io.Writer, rec *Record) error {
	s := NewStory(rec)
	process := map[string]int{}
	events := []traceEvent{}
	of := func(node string) int {
		if n, is := process[node]; is {
			return n
		}
		n := len(process) + 1
		process[node] = n
		for k, name := range []string{"program", "conditions"} {
			events = append(events, traceEvent{Name: "thread_name", Phase: "M", Process: n, Thread: programThread + k, Args: map[string]any{"name": name}})
		}
		events = append(events, traceEvent{Name: "process_name", Phase: "M", Process: n, Args: map[string]any{"name": node}})
		return n
	}
	for _, node := range rec.Run.Nodes {
		of(node)
	}
	for _, span := range s.Spans {
		thread := conditionThread
		if span.Is == Running {
			thread = programThread
		}
		took := float64(span.To - span.From)
		events = append(events, traceEvent{Name: string(span.Is), Phase: "X", Time: float64(span.From), Duration: &took, Process: of(span.Node), Thread: thread, Args: map[string]any{"what": span.Text}})
	}
	for _, m := range s.Marks {
		events = append(events, traceEvent{Name: m.Text, Phase: "i", Time: float64(m.At), Process: of(m.Node), Thread: programThread, Scope: "t"})
	}
	if s.Clock != nil {
		events = append(events, traceEvent{Name: "the scenario's clock starts", Phase: "i", Time: float64(*s.Clock), Scope: "g"})
	}
	for _, kind := range []struct {
		name   string
		curves []Curve
	}{{"sent, Mbit/s", s.Sent}, {"received, Mbit/s", s.Received}, {"processors", s.Shares}, {"loss", s.Losses}} {
		for _, c := range kind.curves {
			for _, p := range c.Points {
				events = append(events, traceEvent{Name: kind.name, Phase: "C", Time: p[0], Process: of(c.Node), Args: map[string]any{"value": p[1]}})
			}
		}
	}
	if err := json.NewEncoder(out).Encode(map[string]any{"traceEvents": events, "displayTimeUnit": "ms"}); err != nil {
		return fmt.Errorf("writing the trace: %w", err)
	}
	return nil
}
