package timeline_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/experiment"
	"testbed/internal/stories"
	"testbed/policy"
	"testbed/record"
	"testbed/report/runs"
	"testbed/report/timeline"
	"testbed/report/words"
	"testbed/scenarios"
)

// recorded is a comparison of persistent_straggler as a machine with two
// processors measured it.
const recorded = "../testdata/compare"

func read(t *testing.T, dirs ...string) *runs.Record {
	t.Helper()
	rec, err := runs.Read(dirs...)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func simulatedRun(t *testing.T, s *scenarios.Scenario, name string) runs.Run {
	t.Helper()
	var run runs.Run
	var err error
	run.Summary, err = experiment.OnChurn(s, name, func(e record.Event) { run.Events = append(run.Events, e) })
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// everyRun calls f with runs of the whole library, simulated, and with
// measured ones.
func everyRun(t *testing.T, f func(t *testing.T, s *scenarios.Scenario, run runs.Run)) {
	t.Helper()
	all, err := scenarios.Library()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		for _, name := range stories.Policies(s) {
			t.Run("sim-"+s.Name+"-"+name, func(t *testing.T) { f(t, s, simulatedRun(t, s, name)) })
		}
	}
	for _, name := range []string{"real-baseline", "real-straggler"} {
		rec := read(t, recorded+"/"+name)
		t.Run(name, func(t *testing.T) { f(t, rec.Scenario, rec.Runs[0]) })
	}
}

// life is from when a worker is there until it is not.
type life struct{ from, until policy.Time }

// TestTimelineLeavesNoGap: from its join to its end a worker does one thing at
// a time, and always something; and no completed inner step is lost.
func TestTimelineLeavesNoGap(t *testing.T) {
	everyRun(t, func(t *testing.T, s *scenarios.Scenario, run runs.Run) {
		line := timeline.New(s, run.Events)
		lives, stepped := map[string][]life{}, map[string]policy.Time{}
		end := func(node string, at policy.Time) {
			if n := len(lives[node]); n > 0 {
				lives[node][n-1].until = min(lives[node][n-1].until, at)
			}
		}
		last := run.Events[len(run.Events)-1].T
		for _, e := range run.Events {
			switch e.Type {
			case record.Join, record.Restart:
				if n := len(lives[e.Node]); n == 0 || lives[e.Node][n-1].until < last {
					lives[e.Node] = append(lives[e.Node], life{e.T, last})
				}
			case record.Crash, record.Fail, record.Evict:
				end(e.Node, e.T)
			case record.RunEnd:
				for node := range lives {
					end(node, e.T)
				}
			case record.Step:
				stepped[e.Node] += e.Duration
			}
		}
		byNode := map[string][]timeline.Span{}
		for _, span := range line.Doing {
			byNode[span.Node] = append(byNode[span.Node], span)
		}
		for node, spans := range byNode {
			slices.SortFunc(spans, func(a, b timeline.Span) int { return int(a.Start - b.Start) })
			at, left := lives[node][0].from, lives[node]
			var steps policy.Time
			for _, span := range spans {
				for at == left[0].until && len(left) > 1 { // the next life
					left = left[1:]
					at = left[0].from
				}
				if span.Start != at || span.End <= span.Start {
					t.Errorf("%s: %s from %d to %d follows what ended at %d", node, span.Kind, span.Start, span.End, at)
				}
				at = span.End
				if span.Kind == timeline.InnerStep {
					steps += span.End - span.Start
				}
			}
			if ended := left[len(left)-1].until; at != ended {
				t.Errorf("%s: what it does ends at %d, and it does at %d", node, at, ended)
			}
			// Clocks of two processes cut a measured step short by their error.
			if off := stepped[node] - steps; off < 0 || off > stepped[node]/50 || run.World == record.Sim && off != 0 {
				t.Errorf("%s: steps of %d µs are shown as %d", node, stepped[node], steps)
			}
		}
		if got, want := slices.Sorted(maps.Keys(byNode)), slices.Sorted(maps.Keys(lives)); !slices.Equal(got, want) {
			t.Errorf("the timeline has %v, the run %v", got, want)
		}
	})
}

// TestTimelineOfJoiners: whoever may not work on the running round yet waits
// for the next one, and drops nothing.
func TestTimelineOfJoiners(t *testing.T) {
	s, err := scenarios.Load("late_join")
	if err != nil {
		t.Fatal(err)
	}
	want := map[policy.JoinMode][]timeline.Kind{
		policy.JoinRunning: {timeline.Fetch, timeline.InnerStep}, policy.JoinNext: {timeline.Fetch, timeline.Waiting},
		policy.JoinZeros: {timeline.Fetch, timeline.Waiting}, policy.JoinBlocking: {timeline.Waiting, timeline.Fetch, timeline.AllReduce},
	}
	for _, join := range policy.JoinModes {
		s.Policy.Join = join
		var did []timeline.Kind
		for _, span := range timeline.New(s, simulatedRun(t, s, scenarios.Baseline).Events).Doing {
			if span.Node == "w3" && len(did) < 3 {
				did = append(did, span.Kind)
			}
		}
		if want := want[join]; !slices.Equal(did[:len(want)], want) || slices.Contains(did, timeline.Dropped) {
			t.Errorf("join %q: w3 did %q, want %q first", join, did, want)
		}
	}
}

// TestTimelineByHand plays a round in which w1 is slowed, left out, fetches
// and is evicted, and w2 dies in the reduction.
func TestTimelineByHand(t *testing.T) {
	s := &scenarios.Scenario{InnerSteps: 1, Workers: []scenarios.Worker{{ID: 0}, {ID: 1}, {ID: 2}}}
	why := &policy.Reason{Rule: policy.RuleLate}
	all, two := []policy.ID{0, 2}, []policy.ID{0}
	line := timeline.New(s, []record.Event{
		{T: 0, Type: record.Join, Node: "w0", Round: 1},
		{T: 0, Type: record.Join, Node: "w1", Round: 1},
		{T: 0, Type: record.Join, Node: "w2", Round: 1},
		{T: 5, Type: record.Slow, Node: "w1", Factor: 3},
		{T: 40, Type: record.Step, Node: "w0", Round: 1, Step: 1, Duration: 38},
		{T: 42, Type: record.Step, Node: "w2", Round: 1, Step: 1, Duration: 40},
		{T: 50, Type: record.RoundClose, Round: 1, Participants: all, Missing: []policy.ID{1}, Reason: why},
		{T: 50, Type: record.Sideline, Node: "w1", Round: 1, Reason: why},
		{T: 50, Type: record.ReduceStart, Round: 1, Epoch: 1, Participants: all},
		{T: 60, Type: record.Crash, Node: "w2"},
		{T: 70, Type: record.Evict, Node: "w2", Round: 1, Reason: &policy.Reason{Rule: policy.RuleHeartbeat}},
		{T: 70, Type: record.ReduceAbort, Round: 1, Epoch: 1, Participants: all, Reason: why},
		{T: 71, Type: record.ReduceStart, Round: 1, Epoch: 2, Participants: two},
		{T: 90, Type: record.OuterStep, Round: 1, Epoch: 2, Participants: two},
		// The coordinator has this from the worker, and later than what follows from it.
		{T: 88, Type: record.Reduced, Node: "w0", Round: 1, Epoch: 2, Duration: 15, ReduceScatter: 9},
		{T: 90, Type: record.FetchStart, Node: "w1", Round: 2, From: "w0"},
		{T: 95, Type: record.FetchDone, Node: "w1", Round: 2},
		{T: 99, Type: record.Partition, IDs: []policy.ID{1}},
		{T: 110, Type: record.RunEnd},
		{T: 200, Type: record.State, Round: 1},
	})
	type spans = []timeline.Span
	want := timeline.Timeline{
		Nodes: []string{"w0", "w1", "w2"}, End: 110,
		Doing: spans{
			{Node: "w0", Kind: timeline.Waiting, Start: 0, End: 2, Round: 1},
			{Node: "w0", Kind: timeline.InnerStep, Start: 2, End: 40, Round: 1, Note: "step 1 of 1"},
			{Node: "w2", Kind: timeline.Waiting, Start: 0, End: 2, Round: 1},
			{Node: "w2", Kind: timeline.InnerStep, Start: 2, End: 42, Round: 1, Note: "step 1 of 1"},
			{Node: "w0", Kind: timeline.Waiting, Start: 40, End: 50, Round: 1},
			{Node: "w2", Kind: timeline.Waiting, Start: 42, End: 50, Round: 1},
			{Node: "w2", Kind: timeline.AllReduce, Start: 50, End: 60, Round: 1},
			{Node: "w0", Kind: timeline.AllReduce, Start: 50, End: 70, Round: 1, Note: "aborted"},
			{Node: "w0", Kind: timeline.Waiting, Start: 70, End: 73, Round: 1},
			{Node: "w0", Kind: timeline.ReduceScatter, Start: 73, End: 82, Round: 1, Note: "to w0"},
			{Node: "w0", Kind: timeline.AllGather, Start: 82, End: 88, Round: 1, Note: "to w0"},
			{Node: "w0", Kind: timeline.Waiting, Start: 88, End: 90, Round: 1},
			{Node: "w1", Kind: timeline.Dropped, Start: 0, End: 90, Round: 1},
			{Node: "w1", Kind: timeline.Fetch, Start: 90, End: 95, Round: 2, Note: "from w0"},
			{Node: "w0", Kind: timeline.Dropped, Start: 90, End: 110, Round: 2},
			{Node: "w1", Kind: timeline.Dropped, Start: 95, End: 110, Round: 2},
		},
		Standing: spans{
			{Node: "w1", Kind: timeline.Slowed, Start: 5, End: 110, Note: "w1’s inner steps take 3 times as long"},
			{Node: "w1", Kind: timeline.Sidelined, Start: 50, End: 95, Round: 1, Note: words.Because(why)},
			{Node: "w2", Kind: timeline.Dead, Start: 60, End: 70, Note: "crashed"},
			{Node: "w2", Kind: timeline.Removed, Start: 70, End: 110, Round: 1, Note: words.Because(&policy.Reason{Rule: policy.RuleHeartbeat})},
			{Node: "w1", Kind: timeline.CutOff, Start: 99, End: 110},
		},
	}
	marks := line.Marks
	line.Marks = nil
	if diff := cmp.Diff(want, line); diff != "" {
		t.Errorf("timeline (-want +got):\n%s", diff)
	}
	var types []string
	for _, m := range marks {
		types = append(types, string(m.Type))
	}
	if got, want := strings.Join(types, " "), "slow sideline crash evict reduce_abort partition"; got != want {
		t.Errorf("marks %q, want %q", got, want)
	}
}

// TestTraceFormat holds traces to what their readers rely on: JSON of the Trace
// Event Format; metadata first and then in order of time; a name for every
// process and thread; on one thread no spans that overlap; counters that end.
func TestTraceFormat(t *testing.T) {
	everyRun(t, func(t *testing.T, s *scenarios.Scenario, run runs.Run) {
		var b bytes.Buffer
		if err := timeline.WriteTrace(&b, &runs.Record{Scenario: s, Runs: []runs.Run{run}}); err != nil {
			t.Fatal(err)
		}
		var trace struct {
			TraceEvents []struct {
				Name, Ph, S string
				Ts          *float64
				Dur         *float64
				Pid, Tid    *int
				Args        map[string]any
			}
			OtherData map[string]any
		}
		if err := json.Unmarshal(b.Bytes(), &trace); err != nil {
			t.Fatal(err)
		}
		strictTrace(t, b.Bytes())
		type thread struct{ pid, tid int }
		processes, threads := map[int]string{}, map[thread]string{}
		free := map[thread]int64{} // from when on, in ns
		counters := map[string]float64{}
		kinds := map[string]int{}
		var now int64
		meta := true
		for k, e := range trace.TraceEvents {
			if e.Ts == nil || e.Pid == nil || e.Tid == nil || e.Name == "" {
				t.Fatalf("event %d lacks name, ts, pid or tid: %+v", k, e)
			}
			kinds[e.Ph]++
			at, on := int64(math.Round(*e.Ts*1e3)), thread{*e.Pid, *e.Tid}
			if e.Ph == "M" {
				name, _ := e.Args["name"].(string)
				if !meta || name == "" {
					t.Errorf("event %d: metadata without a name, or after what it describes", k)
				}
				if e.Name == "process_name" {
					processes[on.pid] = name
				} else {
					threads[on] = name
				}
				continue
			}
			meta = false
			if at < now {
				t.Errorf("event %d at %d ns comes after one at %d", k, at, now)
			}
			now = at
			if processes[on.pid] == "" || e.Ph != "C" && threads[on] == "" {
				t.Errorf("event %d, %s: process %d or thread %d has no name", k, e.Name, on.pid, on.tid)
			}
			switch e.Ph {
			case "X":
				if e.Dur == nil || *e.Dur < 0 {
					t.Fatalf("event %d: a span without a duration", k)
				}
				if at < free[on] {
					t.Errorf("event %d: %s of %s begins at %d ns, before what ends at %d", k, e.Name, processes[on.pid], at, free[on])
				}
				free[on] = at + int64(math.Round(*e.Dur*1e3))
			case "i":
				if e.S != "p" && e.S != "g" {
					t.Errorf("event %d: an instant of scope %q", k, e.S)
				}
			case "C":
				value, ok := e.Args["value"].(float64)
				if !ok {
					t.Errorf("event %d: a counter without a value", k)
				}
				counters[processes[on.pid]+" "+e.Name] = value
			default:
				t.Errorf("event %d is of the unknown kind %q", k, e.Ph)
			}
		}
		if kinds["X"] == 0 || kinds["C"] == 0 || len(s.Injects) > 0 && kinds["i"] == 0 {
			t.Errorf("events by kind: %v", kinds)
		}
		sending := 0
		for name, value := range counters {
			if strings.Contains(name, "sending") {
				sending++
				if value != 0 {
					t.Errorf("%s ends at %v", name, value)
				}
			}
		}
		if (sending > 0) != (run.World == record.Real) {
			t.Errorf("%d counters of what is sent in a %s run", sending, run.World)
		}
		last := now // or the end of a span
		for _, end := range free {
			last = max(last, end)
		}
		if end := float64(run.WallClock) * run.TimeScale; float64(last)/1e3 < end*0.99 {
			t.Errorf("the trace ends at %d ns, the run at %.0f µs of real time", last, end)
		}
	})
}

// strictTrace holds a trace to the letter of the format: no event has a field that
// its phase does not know, or lacks one that it needs, or has one of another
// type; numbers are finite and whole where they count things; nothing is named
// twice, and every thread that has a name is used.
func strictTrace(t *testing.T, text []byte) {
	t.Helper()
	strict := func(text []byte, into any) {
		t.Helper()
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(into); err != nil {
			t.Fatalf("%.200s: %v", text, err)
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			t.Fatalf("there is something behind it: %v", err)
		}
	}
	var trace struct {
		DisplayTimeUnit string            `json:"displayTimeUnit"`
		OtherData       map[string]any    `json:"otherData"`
		TraceEvents     []json.RawMessage `json:"traceEvents"`
	}
	strict(text, &trace)
	if trace.DisplayTimeUnit != "ms" || trace.TraceEvents == nil {
		t.Errorf("unit %q, %d events", trace.DisplayTimeUnit, len(trace.TraceEvents))
	}
	fields := map[string]string{ // needed; those in brackets may be missing
		"M": "args name ph pid tid ts", "X": "dur name ph pid tid ts [args]",
		"i": "args cat name ph pid s tid ts", "C": "args name ph pid tid ts",
	}
	type thread struct{ pid, tid int }
	named, used := map[thread]string{}, map[thread]bool{}
	for k, raw := range trace.TraceEvents {
		var keys map[string]json.RawMessage
		if err := json.Unmarshal(raw, &keys); err != nil {
			t.Fatalf("event %d: %v", k, err)
		}
		var e struct {
			Name, Ph, Cat, S string
			Ts, Dur          float64 // NaN and infinity are no JSON
			Pid, Tid         int     // a fraction is an error
			Args             map[string]any
		}
		strict(raw, &e)
		need, may, _ := strings.Cut(fields[e.Ph], " [")
		have := slices.DeleteFunc(slices.Sorted(maps.Keys(keys)), func(key string) bool { return key+"]" == may })
		if got := strings.Join(have, " "); got != need {
			t.Fatalf("event %d of phase %q has the fields %s, want %s", k, e.Ph, got, need)
		}
		on := thread{e.Pid, e.Tid}
		if e.Ts < 0 || e.Pid <= 0 || e.Tid < 0 {
			t.Errorf("event %d: ts %v, pid %d, tid %d", k, e.Ts, e.Pid, e.Tid)
		}
		switch e.Ph {
		case "M":
			if e.Name != "process_name" && e.Name != "thread_name" || (e.Name == "process_name") != (e.Tid == 0) || named[on] != "" {
				t.Errorf("event %d: %s of %+v, which is named %q", k, e.Name, on, named[on])
			}
			named[on], _ = e.Args["name"].(string)
		case "C":
			for name, value := range e.Args {
				if v, ok := value.(float64); !ok || v < 0 {
					t.Errorf("event %d: counter %s, %s is %v", k, e.Name, name, value)
				}
			}
			if len(e.Args) != 1 {
				t.Errorf("event %d: counter %s has %d values", k, e.Name, len(e.Args))
			}
		default:
			used[on] = true
		}
	}
	for on, name := range named {
		if on.tid != 0 && !used[on] && name != "doing" && name != "faults and decisions" && name != "rounds" {
			t.Errorf("thread %q of process %d is empty", name, on.pid)
		}
	}
}

// TestTraceOfQueues: what waits at links is there for each node, in kB.
func TestTraceOfQueues(t *testing.T) {
	rec := read(t, filepath.Join(recorded, "real-straggler"))
	rec.Runs[0].Queues = []record.Queue{{T: 10, Node: "w0", Up: 3000}, {T: 20, Node: "coordinator", Down: 42}, {T: 30, Node: "w0"}, {T: 40, Node: "w77", Up: 1}}
	var b bytes.Buffer
	if err := timeline.WriteTrace(&b, rec); err != nil {
		t.Fatal(err)
	}
	strictTrace(t, b.Bytes())
	scale := rec.Runs[0].TimeScale
	for _, want := range []string{
		fmt.Sprintf(`{"name":"waiting for rate_up, kB","ph":"C","ts":%v,"pid":2,"tid":0,"args":{"value":3}}`, 10*scale),
		fmt.Sprintf(`{"name":"waiting for rate_up, kB","ph":"C","ts":%v,"pid":2,"tid":0,"args":{"value":0}}`, 30*scale),
		fmt.Sprintf(`{"name":"waiting for rate_down, kB","ph":"C","ts":%v,"pid":1,"tid":0,"args":{"value":0.042}}`, 20*scale),
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the trace lacks %s", want)
		}
	}
	if n := strings.Count(b.String(), "waiting for rate_up"); n != 3 {
		t.Errorf("%d counts, want 3: none of who never joined", n)
	}
}

// TestHostsStandTogether: nodes of a host are next to each other, and bear its name.
func TestHostsStandTogether(t *testing.T) {
	rec := read(t, filepath.Join(recorded, "real-straggler"))
	rec.Runs[0].Hosts = []record.Host{{Name: "a", Nodes: []string{"coordinator", "w3"}}, {Name: "b", Nodes: []string{"w0", "w2"}}, {Name: "c", Nodes: []string{"w1"}}}
	line := timeline.New(rec.Scenario, rec.Runs[0].Events)
	line.Group(rec.Runs[0].Hosts)
	if got := strings.Join(line.Nodes, " "); got != "w3 w0 w2 w1" {
		t.Errorf("the rows are %s", got)
	}
	var b bytes.Buffer
	if err := timeline.WriteTrace(&b, rec); err != nil {
		t.Fatal(err)
	}
	strictTrace(t, b.Bytes())
	for k, name := range []string{"a: coordinator", "a: w3", "b: w0", "b: w2", "c: w1"} {
		if want := fmt.Sprintf(`{"name":"process_name","ph":"M","ts":0,"pid":%d,"tid":0,"args":{"name":%q}}`, k+1, name); !strings.Contains(b.String(), want) {
			t.Errorf("the trace lacks %s", want)
		}
	}
}

func TestATraceIsOfOneRun(t *testing.T) {
	err := timeline.WriteTrace(new(bytes.Buffer), read(t, recorded))
	if err == nil || !strings.Contains(err.Error(), "a trace covers a single run, but there are 4; name one of ../testdata/compare/real-baseline,") {
		t.Errorf("a trace of a comparison: %v", err)
	}
}
