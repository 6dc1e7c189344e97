package timeline

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"testbed/policy"
	"testbed/record"
	"testbed/report/runs"
)

// traceEvent is an event of the Trace Event Format, the JSON that Chrome's
// tracing and Perfetto read ("Trace Event Format", Google, 2016). Times are
// microseconds.
type traceEvent struct {
	Name     string         `json:"name"`
	Phase    string         `json:"ph"`
	Time     float64        `json:"ts"`
	Duration *float64       `json:"dur,omitempty"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	Category string         `json:"cat,omitempty"`
	Scope    string         `json:"s,omitempty"`
	Args     map[string]any `json:"args,omitempty"`
}

// Phases of events.
const (
	traceMeta    = "M"
	traceSpan    = "X"
	traceInstant = "i"
	traceCounter = "C"
)

// The coordinator's process and its threads; the workers' processes follow.
const (
	coordinatorProcess = 1
	roundsThread       = 1
	decisionsThread    = 2
	doingThread        = 1 // of a worker; its conditions follow
)

type tracer struct {
	scale  float64
	events []traceEvent
}

// at is a time of the trace: real time since the start of the run, to a
// nanosecond, so that adjacent spans do not overlap by rounding.
func (t *tracer) at(time policy.Time) float64 {
	return math.Round(float64(time)*t.scale*1e3) / 1e3
}

func (t *tracer) name(process, thread int, what, name string) {
	t.events = append(t.events, traceEvent{Name: what, Phase: traceMeta, Process: process, Thread: thread, Args: map[string]any{"name": name}})
}

// process names the process of a node, which is placed with those on its host.
func (t *tracer) process(number int, node string, hosts []record.Host) {
	name := node
	for _, h := range hosts {
		if slices.Contains(h.Nodes, node) {
			name = h.Name + ": " + node
		}
	}
	t.name(number, 0, "process_name", name)
}

func (t *tracer) span(process, thread int, name string, start, end policy.Time, args map[string]any) {
	begin := t.at(start)
	took := math.Round((t.at(end)-begin)*1e3) / 1e3
	t.events = append(t.events, traceEvent{Name: name, Phase: traceSpan, Time: begin, Duration: &took, Process: process, Thread: thread, Args: args})
}

func (t *tracer) count(process int, name string, time policy.Time, value float64) {
	t.events = append(t.events, traceEvent{Name: name, Phase: traceCounter, Time: t.at(time), Process: process, Args: map[string]any{"value": value}})
}

// WriteTrace writes the record's only run in the Trace Event Format: each node
// is a process, and all are on the coordinator's clock in real time.
func WriteTrace(out io.Writer, rec *runs.Record) error {
	if len(rec.Runs) != 1 {
		var dirs []string
		for _, run := range rec.Runs {
			dirs = append(dirs, run.Dir)
		}
		return fmt.Errorf("a trace covers a single run, but there are %d; name one of %s", len(dirs), strings.Join(dirs, ", "))
	}
	run := rec.Runs[0]
	t := &tracer{scale: run.TimeScale}
	line := New(rec.Scenario, run.Events)
	line.Group(run.Hosts)
	process := map[string]int{}
	t.process(coordinatorProcess, policy.CoordinatorNode, run.Hosts)
	t.name(coordinatorProcess, roundsThread, "thread_name", "rounds")
	t.name(coordinatorProcess, decisionsThread, "thread_name", "faults and decisions")
	for k, node := range line.Nodes {
		process[node] = coordinatorProcess + 1 + k
		t.process(process[node], node, run.Hosts)
		t.name(process[node], doingThread, "thread_name", "doing")
	}
	t.spans(line, process)
	t.rounds(run)
	t.marks(line, process)
	t.counters(run, process)
	t.queues(run, process)
	// Metadata first, then in order of time.
	slices.SortStableFunc(t.events, func(a, b traceEvent) int {
		meta := func(e traceEvent) int {
			if e.Phase == traceMeta {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(meta(a), meta(b)), cmp.Compare(a.Time, b.Time))
	})
	w := bufio.NewWriter(out)
	other, err := json.Marshal(map[string]any{
		"scenario": run.Scenario, "policy": run.Policy, "world": run.World, "links": run.Links,
		"seed": run.Seed, "time_scale": run.TimeScale, "clock": "real time since the start; scenario time × time_scale",
	})
	if err != nil {
		return fmt.Errorf("writing the trace: %w", err)
	}
	fmt.Fprintf(w, "{\"displayTimeUnit\":\"ms\",\"otherData\":%s,\"traceEvents\":[\n", other)
	for k, e := range t.events {
		text, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("writing the trace: %w", err)
		}
		if k > 0 {
			w.WriteString(",\n")
		}
		w.Write(text)
	}
	w.WriteString("\n]}\n")
	return w.Flush() // the first error of all writes
}

// spans writes workers' activities and conditions: one thread for each
// condition, because conditions overlap.
func (t *tracer) spans(line Timeline, process map[string]int) {
	for _, s := range line.Doing {
		args := map[string]any{"round": s.Round}
		if s.Note != "" {
			args["note"] = s.Note
		}
		t.span(process[s.Node], doingThread, string(s.Kind), s.Start, s.End, args)
	}
	type track struct {
		process int
		kind    Kind
		lane    int // number among overlapping spans of one kind
	}
	threads := map[track]int{}
	last := map[int]int{}           // highest thread of a process
	ends := map[track]policy.Time{} // of the latest span
	for _, s := range line.Standing {
		k := track{process[s.Node], s.Kind, 0}
		for ends[k] > s.Start {
			k.lane++
		}
		ends[k] = s.End
		if threads[k] == 0 {
			last[k.process] = max(last[k.process], doingThread) + 1
			threads[k] = last[k.process]
			t.name(k.process, threads[k], "thread_name", string(s.Kind))
		}
		var args map[string]any
		if s.Note != "" {
			args = map[string]any{"why": s.Note}
		}
		t.span(k.process, threads[k], string(s.Kind), s.Start, s.End, args)
	}
}

func (t *tracer) rounds(run runs.Run) {
	for _, r := range Rounds(&run) {
		args := map[string]any{"round": r.Round, "participants": r.Participants, "left out": r.Left, "why": r.Why}
		t.span(coordinatorProcess, roundsThread, fmt.Sprintf("round %d: collecting", r.Round), r.Start, r.Close, args)
		t.span(coordinatorProcess, roundsThread, fmt.Sprintf("round %d: %s", r.Round, r.reduction()), r.Close, r.End, args)
	}
}

func (t *tracer) marks(line Timeline, process map[string]int) {
	for _, m := range line.Marks {
		e := traceEvent{Name: string(m.Type), Phase: traceInstant, Time: t.at(m.T), Process: process[m.Node], Thread: doingThread, Scope: "p", Category: "decision", Args: map[string]any{"text": m.Text}}
		if m.Injected() {
			e.Category = "injected"
		}
		if e.Process == 0 { // it is about the run as a whole
			e.Process, e.Thread, e.Scope = coordinatorProcess, decisionsThread, "g"
		}
		t.events = append(t.events, e)
	}
}

// counters writes the number of members, the number of arrivals, and each
// worker's mean sending rate in a reduction.
func (t *tracer) counters(run runs.Run, process map[string]int) {
	members, arrived := 0, 0
	for _, e := range run.Events {
		switch {
		case e.Type == record.Join:
			members++
			t.count(coordinatorProcess, "members", e.T, float64(members))
		case e.Type == record.Evict:
			members--
			t.count(coordinatorProcess, "members", e.T, float64(members))
		case e.Type == record.Arrive && !e.Late:
			arrived++
			t.count(coordinatorProcess, "arrived", e.T, float64(arrived))
		case e.Type == record.RoundClose:
			arrived = 0
			t.count(coordinatorProcess, "arrived", e.T, 0)
		case e.Type == record.Reduced && e.Duration > 0 && process[e.Node] != 0:
			seconds := float64(e.Duration) * t.scale / 1e6
			t.count(process[e.Node], "sending, Mbit/s", e.T-e.Duration, 8*float64(e.BytesSent)/1e6/seconds)
			t.count(process[e.Node], "sending, Mbit/s", e.T, 0)
		}
	}
}

// queues writes the queue at each node's links.
func (t *tracer) queues(run runs.Run, process map[string]int) {
	for _, q := range run.Queues {
		of := process[q.Node]
		if q.Node == policy.CoordinatorNode {
			of = coordinatorProcess
		}
		if of == 0 { // it has never joined
			continue
		}
		t.count(of, "waiting for rate_up, kB", q.T, float64(q.Up)/1e3)
		t.count(of, "waiting for rate_down, kB", q.T, float64(q.Down)/1e3)
	}
}
