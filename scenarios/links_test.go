package scenarios_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/policy"
	"testbed/scenarios"
	"testbed/shaping"
)

const tiny = `seed: 1
workers: [{id: 0, inner_step_mean: 1000}, {id: 1, inner_step_mean: 1000}]
inner_steps: 1
target_outer_steps: 1
horizon: 1000000
heartbeat_period: 1000
heartbeat_miss_threshold: 5
base_latency: 100
bandwidth_bpus: 10
state_bytes: 100
`

func TestLinksAreReadStrictly(t *testing.T) {
	const good = tiny + `real:
  links:
    default: {access_preset: dsl, queue: 256kb, jitter: 1ms, jitter_distribution: normal}
    groups:
      all: {nodes: [w0-w1], rate_up: 10mbit}
    paths:
      - {between: [all, all], path_preset: dallas-tokyo, loss_burst: {enter: 1%, leave: 10%, loss_inside: 100%}}
    pairs: [{from: w0, to: w1, duplicate: 1%, reorder: 1%, corrupt: 1%}]
`
	if _, err := scenarios.Parse("x.yaml", []byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, want string }{
		{"dsl", "isdn", `x.yaml:13: real.links.default.access_preset: there is no access preset "isdn"`},
		{"[w0-w1]", "[w0-w7]", `x.yaml:15: real.links.groups.all.nodes[0]: the range needs the node "w7", which does not exist`},
		{"leave: 10%, ", "", `x.yaml:17: real.links.paths[0].loss_burst.leave is missing: add it`},
		{"reorder: 1%", "reordr: 1%", `x.yaml:18: real.links.pairs[0].reordr: unknown field; did you mean reorder?`},
		{"corrupt: 1%", "corrupt: 101%", `x.yaml:18: real.links.pairs[0].corrupt: probability "101%" is above 100%`},
	} {
		text := strings.Replace(good, c.from, c.to, 1)
		_, err := scenarios.Parse("x.yaml", []byte(text))
		var bad *scenarios.Error
		if !errors.As(err, &bad) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s instead of %s gives\n%v, want\n%s", c.to, c.from, err, c.want)
		}
	}
}

const changing = tiny + `injects:
  - {op: Partition, at: 100, ids: [0, 1]}
  - {op: ClearPartition, at: 200, ids: [1]}
  - {op: ClearPartition, at: 300}
real:
  links: {default: {one_way_delay: 10ms}}
  injects:
    - {op: Link, at: 150, id: 1, rate_up: 1mbit, queue: 100ms}
    - {op: Link, at: 50, until: 160, from: w0, to: coordinator, loss: 5%, jitter: 8ms}
    - {op: Cut, at: 250, until: 260, from: w1, to: w0}
`

func TestLinkFaultsAreWhatIsActive(t *testing.T) {
	s, err := scenarios.Parse("x.yaml", []byte(changing))
	if err != nil {
		t.Fatal(err)
	}
	// A µs of scenario time takes 100 of real time.
	real := func(t policy.Time) time.Duration { return time.Duration(t) * 100 * time.Microsecond }
	var times []policy.Time
	for t, ok := s.Faults().Next(-1); ok; t, ok = s.Faults().Next(t) {
		times = append(times, policy.Time(t/real(1)))
	}
	if want := []policy.Time{50, 100, 150, 160, 200, 250, 260, 300}; !slices.Equal(times, want) {
		t.Errorf("times %v, want %v", times, want)
	}
	slow := s.Real.Injects[0].Access
	lossy := s.Real.Injects[1].Path
	both, one := shaping.Partition{Nodes: []string{"w0", "w1"}}, shaping.Partition{Nodes: []string{"w0"}}
	link := shaping.AccessChange{Node: "w1", Access: slow}
	path := shaping.PathChange{From: "w0", To: "coordinator", Path: lossy}
	cut := shaping.Cut{Paths: []shaping.Direction{{From: "w1", To: "w0"}}}
	for at, want := range map[policy.Time][]shaping.Fault{
		0: nil, 50: {path}, 100: {both, path}, 150: {both, path, link}, 160: {both, link},
		200: {one, link}, 250: {one, link, cut}, 260: {one, link}, 300: {link},
	} {
		if got := s.Faults().At(real(at)); !reflect.DeepEqual(got, want) {
			t.Errorf("at %d: %+v, want %+v", at, got, want)
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back scenarios.Scenario
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back.Real, s.Real) {
		t.Errorf("through JSON: %v\n%+v\n%+v", err, back.Real, s.Real)
	}
}

func TestLinkInjectsNameTheFieldAndTheMend(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"{op: Link, at: 150", "{op: Slow, at: 150", `x.yaml:18: real.injects[0].op: "Slow" is not an inject of a link; choose one of Link, LinkTrace, Cut, Refuse, Flap`},
		{"id: 1, rate_up", "id: 9, rate_up", `x.yaml:18: real.injects[0].id: there is no worker 9; the workers are 0, 1`},
		{"id: 1, rate_up: 1mbit, queue: 100ms", "id: 1", `x.yaml:18: real.injects[0] has no property of a link; give at least one, for example rate_up`},
		{"id: 1, rate_up", "id: 1, loss: 1%, rate_up", `x.yaml:18: real.injects[0] has properties of a path, but names an access link; give from and to instead of id`},
		{"id: 1, rate_up", "from: w0, to: w1, rate_up", `x.yaml:18: real.injects[0] has properties of an access link, but names a path; give id instead of from and to, or between`},
		{"id: 1, rate_up", "rate_up", `x.yaml:18: real.injects[0] names no link: Link needs id, because it has properties of an access link`},
		{"id: 1, rate_up", "id: 1, from: w0, rate_up", `x.yaml:18: real.injects[0].id cannot be combined with from or to: give id for an access link, or from and to for a path`},
		{"until: 160", "until: 50", `x.yaml:19: real.injects[1].until is 50, but the inject begins at 50: make it end later, or remove until`},
		{"to: coordinator", "to: w7", `x.yaml:19: real.injects[1].to: there is no node "w7"; the nodes are coordinator, w0, w1`},
		{"jitter: 8ms", "jitter: 18ms", `x.yaml:19: real.injects[1].jitter: from w0 to coordinator: 18ms exceeds the one-way delay of 10ms`},
		{"from: w1, to: w0}", "from: w1, to: w9}", `x.yaml:20: real.injects[2].to: there is no node "w9"; the nodes are coordinator, w0, w1`},
		{"from: w1, to: w0}", "id: 1}", `x.yaml:20: real.injects[2].id: Cut takes a path: give from and to, or use Partition to cut off a worker`},
		{"from: w1, to: w0}", "from: w1, to: w0, loss: 1%}", `x.yaml:20: real.injects[2]: Cut takes no properties of links; remove them, or use Link`},
		{"{op: Cut, at: 250, until: 260, from: w1, to: w0}", "{op: Link, at: 60, from: w0, to: coordinator, one_way_delay: 1ms}", `x.yaml:20: real.injects[2].jitter: from w0 to coordinator: 8ms exceeds the one-way delay of 1ms`},
	} {
		text := strings.Replace(changing, c.from, c.to, 1)
		_, err := scenarios.Parse("x.yaml", []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s instead of %s gives\n%v, want\n%s", c.to, c.from, err, c.want)
		}
	}
}

// repeating has what changes over and over. A µs takes 100 of real time.
const repeating = tiny + `real:
  links: {default: {one_way_delay: 10ms, rate_up: 5mbit}}
  injects:
    - {op: LinkTrace, at: 1000, until: 7000, id: 1, direction: up, file: traces/four.trace}
    - {op: Flap, at: 2000, until: 8000, id: 0, period: 3000, down: 500}
    - {op: Flap, at: 100, between: [w0, w1], period: 1000000, down: 300}
    - {op: Refuse, at: 4500, until: 5200, between: [w1, coordinator]}
    - {op: Link, at: 6000, between: [w0, coordinator], one_way_delay: 20ms}
`

// write puts a scenario and its trace into a folder.
func write(t *testing.T, text, trace string) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "x.yaml")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "traces"), 0o755),
		os.WriteFile(filepath.Join(dir, "traces", "four.trace"), []byte(trace), 0o644),
		os.WriteFile(file, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
	return file
}

// four has 5 opportunities in each of two windows of 100 ms, then 1, then 2.
const four = "20\n40\n60\n80\n100\n120\n140\n160\n180\n200\n250\n310\n400\n"

func TestLinkFaultsRepeat(t *testing.T) {
	s, err := scenarios.Load(write(t, repeating, four))
	if err != nil {
		t.Fatal(err)
	}
	if string(s.Traces["traces/four.trace"]) != four {
		t.Errorf("the trace is not kept: %q", s.Traces)
	}
	const frame = shaping.Rate(shaping.FrameSize * 8 * 10) // each 100 ms
	pace := func(frames int) shaping.Fault {
		return shaping.Paced{Node: "w1", Now: shaping.Rate(frames) * frame, Peak: 5 * frame}
	}
	flap, pair := shaping.Partition{Nodes: []string{"w0"}}, shaping.Cut{Paths: []shaping.Direction{{From: "w0", To: "w1"}, {From: "w1", To: "w0"}}}
	refusal := shaping.Refusal{Pairs: [][2]string{{"w1", "coordinator"}}}
	delay := s.Real.Injects[4].Path
	slow := []shaping.Fault{shaping.PathChange{From: "w0", To: "coordinator", Path: delay}, shaping.PathChange{From: "coordinator", To: "w0", Path: delay}}
	type change struct {
		at     time.Duration
		faults []shaping.Fault
	}
	ms := func(at int, faults ...shaping.Fault) change {
		return change{time.Duration(at) * time.Millisecond, faults}
	}
	want := []change{
		ms(10, pair), ms(40), ms(100, pace(5)), ms(200, flap, pace(5)), ms(250, pace(5)),
		ms(300, pace(1)), ms(400, pace(2)), ms(450, refusal, pace(2)), ms(500, pace(5), flap, refusal), ms(520, pace(5), flap), ms(550, pace(5)),
		ms(600, append([]shaping.Fault{pace(5)}, slow...)...), ms(700, slow...), ms(800, slow...),
	}
	at := time.Duration(-1)
	for _, w := range want {
		var ok bool
		if at, ok = s.Faults().Next(at); !ok || at != w.at {
			t.Fatalf("the next change is at %v, %v, want %v", at, ok, w.at)
		}
		got := s.Faults().At(at)
		if len(got) != len(w.faults) {
			t.Fatalf("at %v: %+v, want %+v", at, got, w.faults)
		}
		for _, f := range w.faults {
			if !slices.ContainsFunc(got, func(g shaping.Fault) bool { return reflect.DeepEqual(f, g) }) {
				t.Errorf("at %v: %+v, want %+v", at, got, w.faults)
			}
		}
	}
	// What is passed to a process as JSON has all that the file had.
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back scenarios.Scenario
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back.Real, s.Real) {
		t.Errorf("through JSON: %v\n%+v\n%+v", err, back.Real, s.Real)
	}
	if err := s.Rescale(1); err == nil || !strings.HasPrefix(err.Error(), "x: real.injects[1].period: with a time_scale × dilation of 1 the link is down for 500µs") {
		t.Errorf("a flap of half a millisecond gives %v", err)
	}
	if s.Real.TimeScale != 100 {
		t.Error("a refused time scale was taken")
	}
}

func TestRepeatingInjectsNameTheFieldAndTheMend(t *testing.T) {
	const trace, flap = "LinkTrace, at: 1000, until: 7000, id: 1, direction: up, file: traces/four.trace", "id: 0, period: 3000, down: 500"
	for _, c := range []struct{ from, to, want string }{
		{"direction: up, ", "", "x.yaml:14: real.injects[0].direction is missing: LinkTrace needs it"},
		{"direction: up", "direction: sideways", `x.yaml:14: real.injects[0].direction: "sideways" is not a direction; write "up" for the worker's sending direction, or "down" for receiving`},
		{", file: traces/four.trace", "", "x.yaml:14: real.injects[0].file is missing: LinkTrace needs it"},
		{"traces/four.trace", "../four.trace", `x.yaml:14: real.injects[0].file: "../four.trace" is not in the scenario's folder or below; move the trace there, and write its path from that folder, with slashes`},
		{"traces/four.trace", "/etc/passwd", `x.yaml:14: real.injects[0].file: "/etc/passwd" is not in the scenario's folder`},
		{"traces/four.trace", "traces", "x.yaml:14: real.injects[0].file: traces must be a regular file of at most 256 MiB"},
		{"traces/four.trace", "traces/five.trace", "x.yaml:14: real.injects[0].file: there is no file traces/five.trace in the scenario's folder; correct the path, or add the file"},
		{"traces/four.trace", "plan.json", "x.yaml:14: real.injects[0].file: the name of a trace must not end in .json, because other files of a run's record end so; rename it, for example to end in .trace"},
		{"id: 1, direction", "direction", "x.yaml:14: real.injects[0].id is missing: LinkTrace needs the id of the worker whose access link changes"},
		{"id: 1, direction", "id: 7, direction", "x.yaml:14: real.injects[0].id: there is no worker 7; the workers are 0, 1"},
		{trace, "Link, at: 1, id: 1, rate_up: 1mbit, file: traces/four.trace", "x.yaml:14: real.injects[0].file: Link takes no file (only LinkTrace does); remove it"},
		{trace, "LinkTrace, at: 1, id: 1, direction: up, rate_up: 1mbit, file: traces/four.trace", "x.yaml:14: real.injects[0]: LinkTrace takes no properties of links; remove them, or use Link"},
		{flap, "id: 0, period: 3000", "x.yaml:15: real.injects[1].down is missing: Flap needs it"},
		{flap, "id: 0, period: 300, down: 300", "x.yaml:15: real.injects[1].down is 300: it must lie between 1 and 299, one less than the period"},
		{flap, "id: 0, period: 1, down: 1", "x.yaml:15: real.injects[1].period is 1: it must lie between 2 and 1000000000000"},
		{flap, "id: 0, period: 700, down: 600", "x.yaml:15: real.injects[1].period: with a time_scale × dilation of 100 the link is down for 60ms and up for 10ms, but each phase must last at least 20ms; lengthen down and period, or raise real.time_scale"},
		{flap, "period: 3000, down: 500", "x.yaml:15: real.injects[1] names no link: Flap needs id, or from and to, or between"},
		{flap, "id: 0, between: [w0, w1], period: 3000, down: 500", "x.yaml:15: real.injects[1].between cannot be combined with id, from or to: give between alone for both ways of a pair"},
		{"between: [w0, w1]", "between: [w0, w1, w2]", "x.yaml:16: real.injects[2].between must name two nodes, not 3"},
		{"between: [w0, w1]", "between: [w0, w9]", `x.yaml:16: real.injects[2].between[1]: there is no node "w9"; the nodes are coordinator, w0, w1`},
		{"between: [w0, w1]", "between: [w0, w0]", `x.yaml:16: real.injects[2].between[1]: "w0" is also the path's "from"`},
		{"between: [w1, coordinator]", "from: w1, to: w0", "x.yaml:17: real.injects[3]: Refuse applies to both directions: give between instead of from and to, or id for all paths of a worker"},
		{"between: [w1, coordinator]", "between: [w7, coordinator]", `x.yaml:17: real.injects[3].between[0]: there is no node "w7"`},
		{"between: [w1, coordinator]", "down: 5", "x.yaml:17: real.injects[3].down: Refuse takes no down (only Flap does); remove it"},
		{", between: [w1, coordinator]", "", "x.yaml:17: real.injects[3] names no link: Refuse needs id or between"},
	} {
		_, err := scenarios.Load(write(t, strings.Replace(repeating, c.from, c.to, 1), four))
		if err == nil || !strings.Contains(err.Error(), "/"+c.want) {
			t.Errorf("%s instead of %s gives\n%v, want\n%s", c.to, c.from, err, c.want)
		}
	}
	_, err := scenarios.Load(write(t, repeating, "20\n40\nforty\n"))
	if want := `traces/four.trace:3: "forty" is not a whole number of milliseconds from 0; write for example 25`; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("a bad trace gives\n%v, want\n%s", err, want)
	}
	_, err = scenarios.Parse("x.yaml", []byte(repeating))
	if want := "x.yaml:14: real.injects[0].file: a trace can be read only if the scenario itself is read from a file"; err == nil || err.Error() != want {
		t.Errorf("text alone gives\n%v, want\n%s", err, want)
	}
}
