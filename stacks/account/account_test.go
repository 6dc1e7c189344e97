package account_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"testbed/policy"
	"testbed/policy/timescale"
	"testbed/record"
	"testbed/scenarios/faults"
	"testbed/scenarios/resolved"
	"testbed/stacks/account"
	"testbed/train"
)

// scenario has three workers, the last of which joins later, and rounds of two steps.
// Its time is a tenth of the clock's.
func scenario(rounds int) *resolved.Scenario {
	return &resolved.Scenario{
		Exchange: &train.Exchange{}, Faults: &faults.Schedule{},
		Scale: timescale.Scale{TimeScale: 10}, InnerSteps: 2, TargetOuterSteps: rounds, Horizon: 1e9,
		Workers: []resolved.Worker{{ID: 0, Mean: 1000}, {ID: 1, Mean: 1000}, {ID: 2, Mean: 1000, JoinAt: 5000}},
	}
}

// story is a record of programs that is written line by line: time in ms, node, type,
// then a mark's fields as JSON.
type story []record.ProgramEvent

func (s *story) add(at int, e record.ProgramEvent) {
	e.T = policy.Time(at) * 1000
	*s = append(*s, e)
}

func (s *story) mark(at int, node, kind, fields string) {
	f := map[string]any{}
	if err := json.Unmarshal([]byte("{"+fields+"}"), &f); err != nil {
		panic(fields)
	}
	s.add(at, record.ProgramEvent{Type: record.ProgramMark, Node: node, Mark: kind, Fields: f})
}

// lanes are averaged lanes: each worker's share, its steps and its round.
func lanes(values ...[3]float64) string {
	var all []string
	for _, v := range values {
		share, steps, round := v[0], v[1], v[2]
		all = append(all, fmt.Sprintf("%g,%g,%g,%g", share, share*steps, share*round, share*round*round))
	}
	return "[" + strings.Join(all, ",") + "]"
}

var (
	nobody = [3]float64{}
	half   = func(round float64) [3]float64 { return [3]float64{0.5, 2, round} }
)

// round is a round of w0 and w1, that begins at a time.
func (s *story) round(at, round int, lanes string) {
	for _, node := range []string{"w0", "w1"} {
		for step := 1; step <= 2; step++ {
			s.mark(at+10*step, node, "step", fmt.Sprintf(`"round": %d, "step": %d, "duration_us": 10000`, round, step))
		}
		s.mark(at+20, node, "arrive", fmt.Sprintf(`"round": %d, "steps": 2`, round))
	}
	for k, node := range []string{"w0", "w1"} {
		s.mark(at+30+k, node, "commit", fmt.Sprintf(`"round": %d, "duration_us": 10000, "tx": 500, "hash": "h%d", "lanes": [%s]`, round, round, lanes))
	}
}

func begin() *story {
	s := &story{}
	for _, node := range []string{"w0", "w1"} {
		s.add(0, record.ProgramEvent{Type: record.ProgramStart, Node: node})
	}
	s.mark(1000, "w0", "start", `"version": "1.2"`)
	s.add(1000, record.ProgramEvent{Type: record.ProgramClock})
	s.mark(1000, "w1", "agreed", `"round": 1, "epoch": 1, "members": ["w0", "w1"]`)
	return s
}

func summarise(s *resolved.Scenario, r account.Result) record.Summary {
	sum := record.NewSummarizer(s.Setup())
	for _, e := range r.Events {
		sum.Add(&e)
	}
	return sum.Summary()
}

// TestRounds: marks become rounds with their participants, times in scenario time, and
// hashes; a crash and a late joiner become changes of members.
func TestRounds(t *testing.T) {
	s := begin()
	s.round(1000, 1, lanes(half(1), half(1), nobody))
	s.add(1035, record.ProgramEvent{Type: record.ProgramInject, Node: "w1", Op: "Crash", Processes: new(1)})
	s.add(1036, record.ProgramEvent{Type: record.ProgramExit, Node: "w1", Signal: "SIGKILL"})
	s.add(1050, record.ProgramEvent{Type: record.ProgramStart, Node: "w2"})
	for _, node := range []string{"w0", "w2"} { // both report the group
		s.mark(1060, node, "agreed", `"round": 2, "epoch": 2, "members": ["w0", "w2"]`)
	}
	s.mark(1065, "w2", "fetch_end", `"round": 2, "from": "w0", "duration_us": 5000`)
	s.mark(1070, "w0", "reduce_end", `"round": 2, "ok": false, "error": "reset"`)
	for _, node := range []string{"w0", "w2"} {
		s.mark(1090, node, "arrive", `"round": 2, "steps": 2`)
		s.mark(1100, node, "commit", `"round": 2, "hash": "x", "lanes": [`+lanes(half(2), nobody, half(2))+`]`)
	}
	of := scenario(2)
	r := account.Of(of, false, *s)
	if r.Version != "1.2" || r.Rounds != 2 || r.Attempts != 1 || len(r.Failures) != 0 || len(r.Disputes) != 0 {
		t.Errorf("version %q, %d rounds, %d failed attempts, failures %q, disputes %q", r.Version, r.Rounds, r.Attempts, r.Failures, r.Disputes)
	}
	if !slices.IsSortedFunc(r.Events, func(a, b record.Event) int { return int(a.T - b.T) }) {
		t.Error("the events are not in order")
	}
	if inexact := summarise(of, account.Of(of, true, *s)); inexact.BitIdentical != nil || inexact.Rounds[0].ModelHash != "" {
		t.Errorf("inexact states are compared: %+v", inexact.Rounds[0])
	}
	sum := summarise(of, r)
	if len(sum.Rounds) != 2 || sum.WallClock != 10_000 || sum.BitIdentical == nil || !*sum.BitIdentical {
		t.Fatalf("%+v", sum)
	}
	first, second := sum.Rounds[0], sum.Rounds[1]
	if !slices.Equal(first.Participants, []policy.ID{0, 1}) || first.Close != 2000 || first.End != 3100 || first.Reduce != 1000 || first.BytesSent != 1000 || first.ModelHash != "h1" {
		t.Errorf("the first round: %+v", first)
	}
	if !slices.Equal(second.Participants, []policy.ID{0, 2}) || second.ModelHash != "x" {
		t.Errorf("the second round: %+v", second)
	}
	if len(sum.Evicted) != 1 || sum.Evicted[0].ID != 1 || sum.Evicted[0].Reason != policy.RuleMembership {
		t.Errorf("evicted: %+v", sum.Evicted)
	}
	if len(sum.Detected) != 1 || sum.Detected[0].After == nil || *sum.Detected[0].After != 2500 {
		t.Errorf("detected: %+v", sum.Detected)
	}
	if sum.JoinerStall != 500 {
		t.Errorf("the joiner stalled %d µs", sum.JoinerStall)
	}
}

// TestDisputes: what workers say is compared with the averages.
func TestDisputes(t *testing.T) {
	for name, c := range map[string]struct {
		tell func(*story)
		want string // the only dispute, or the first
	}{
		"sound":         {func(s *story) { s.round(1000, 1, lanes(half(1), half(1), nobody)) }, ""},
		"left out":      {func(s *story) { s.round(1000, 1, lanes([3]float64{1, 2, 1}, nobody, nobody)) }, "w1 reports that it took part (inner steps: 2), but its own average lacks its work"},
		"never came":    {func(s *story) { s.round(1000, 1, lanes(half(1), nobody, half(1))) }, "has work of w2, but w2 has not reported its arrival"},
		"another round": {func(s *story) { s.round(1000, 1, lanes(half(1), half(7), nobody)) }, "has work of w1 from round 7"},
		"counted twice": {func(s *story) { s.round(1000, 1, lanes([3]float64{2. / 3, 2, 1}, [3]float64{1. / 3, 2, 1}, nobody)) }, "has unequal shares, from 0.333 to 0.667"},
		"other steps":   {func(s *story) { s.round(1000, 1, lanes(half(1), [3]float64{0.5, 1, 1}, nobody)) }, "w1 reports that it took its inner steps (2), but its work in the average of w0 has 1"},
		"a part alone": {func(s *story) {
			s.round(1000, 1, lanes(half(1), half(1), nobody)+","+lanes([3]float64{1, 2, 1}, nobody, nobody))
		}, "parts of the average of w0 have the work of different workers: one part of w0 w1, another part of w0"},
		"a part of fewer": {func(s *story) {
			s.mark(1020, "w0", "arrive", `"round": 1, "steps": 2`)
			s.mark(1020, "w1", "arrive", `"round": 1, "steps": 2`)
			s.mark(1030, "w0", "commit", `"round": 1, "worlds": [2, 1], "lanes": [`+lanes(half(1), half(1), nobody)+`]`)
		}, "the average of w0 has the work of 2 workers, but its parts are averages of [2 1] workers"},
		"parts of all": {func(s *story) {
			s.mark(1020, "w0", "arrive", `"round": 1, "steps": 2`)
			s.mark(1020, "w1", "arrive", `"round": 1, "steps": 2`)
			s.mark(1030, "w0", "commit", `"round": 1, "worlds": [2, 2], "lanes": [`+lanes(half(1), half(1), nobody)+`]`)
		}, ""},
		"no lanes":      {func(s *story) { s.round(1000, 1, "") }, "w0 does not report its average"},
		"too few lanes": {func(s *story) { s.round(1000, 1, "[1, 2]") }, "w0 reports a vector of 2 lanes, but the vector has 12"},
		"a gap":         {func(s *story) { s.round(1000, 2, lanes(half(2), half(2), nobody)) }, "a worker reports that round 2 is complete, but the last complete round is 0"},
		"no such round": {func(s *story) {
			s.round(1000, 1, lanes(half(1), half(1), nobody))
			s.round(1050, 2, lanes(half(2), half(2), nobody))
			s.round(1100, 3, lanes(half(3), half(3), nobody))
		}, "a worker reports that round 3 is complete, but the last complete round is 2, of 2"},
		"different ends": {func(s *story) {
			s.round(1000, 1, lanes(half(1), half(1), nobody))
			s.mark(1032, "w1", "commit", `"round": 1, "hash": "other", "lanes": [`+lanes(half(1), half(1), nobody)+`]`)
		}, "took the outer step twice"},
		"garbage": {func(s *story) {
			s.add(1001, record.ProgramEvent{Type: record.ProgramInvalidMark, Node: "w1", Cause: "invalid mark"})
		}, "w1: invalid mark"},
		"nonsense": {func(s *story) {
			s.mark(1001, "w1", "commit", `"round": "x", "lanes": 7`)
			s.mark(1001, "w9", "commit", `"round": -1`)
			s.mark(1001, "w1", "agreed", `"epoch": 9, "members": [1, "z"]`)
		}, ""},
	} {
		s := begin()
		c.tell(s)
		of := scenario(2)
		r := account.Of(of, false, *s)
		summarise(of, r)
		first := ""
		if len(r.Disputes) > 0 {
			first = r.Disputes[0]
		}
		if c.want == "" && first != "" || !strings.Contains(first, c.want) {
			t.Errorf("%s: %q, want %q", name, r.Disputes, c.want)
		}
	}
}

// TestFailures: a program that ends by itself with an error has failed; one that an
// inject ends has not.
func TestFailures(t *testing.T) {
	exit := func(code int, signal string) record.ProgramEvent {
		return record.ProgramEvent{Type: record.ProgramExit, Node: "w1", Code: &code, Signal: signal}
	}
	crash := record.ProgramEvent{Type: record.ProgramInject, Node: "w1", Op: "Restart", Processes: new(1)}
	for name, c := range map[string]struct {
		events []record.ProgramEvent
		want   string
	}{
		"well":        {[]record.ProgramEvent{exit(0, "")}, ""},
		"a code":      {[]record.ProgramEvent{exit(3, "")}, "w1 exited with code 3"},
		"killed":      {[]record.ProgramEvent{exit(-1, "SIGKILL"), crash}, ""},
		"out of room": {[]record.ProgramEvent{exit(-1, "SIGKILL")}, "w1 was ended by SIGKILL"},
		"at the end":  {[]record.ProgramEvent{exit(-1, "SIGTERM")}, ""},
		"a fault":     {[]record.ProgramEvent{exit(-1, "SIGSEGV")}, "w1 was ended by SIGSEGV"},
	} {
		s := begin()
		for _, e := range c.events {
			s.add(1500, e)
		}
		if r := account.Of(scenario(1), false, *s); strings.Join(r.Failures, "; ") != c.want {
			t.Errorf("%s: %q, want %q", name, r.Failures, c.want)
		}
	}
}
