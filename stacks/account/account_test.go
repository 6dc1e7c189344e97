package account_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

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

// one is a story of one mark of w1.
func one(kind, fields string) func(*story) {
	return func(s *story) { s.mark(1001, "w1", kind, fields) }
}

// TestDisputes: what workers say is compared with the averages.
func TestDisputes(t *testing.T) {
	for name, c := range map[string]struct {
		tell func(*story)
		want string // among the disputes; empty: there are none
	}{
		"sound":         {func(s *story) { s.round(1000, 1, lanes(half(1), half(1), nobody)) }, ""},
		"left out":      {func(s *story) { s.round(1000, 1, lanes([3]float64{1, 2, 1}, nobody, nobody)) }, "w1 reports that it took part with 2 inner steps, but its own average lacks its work"},
		"never came":    {func(s *story) { s.round(1000, 1, lanes(half(1), nobody, half(1))) }, "contains work of w2, but w2 has not reported its arrival"},
		"another round": {func(s *story) { s.round(1000, 1, lanes(half(1), half(7), nobody)) }, "contains work of w1 from round 7"},
		"counted twice": {func(s *story) { s.round(1000, 1, lanes([3]float64{2. / 3, 2, 1}, [3]float64{1. / 3, 2, 1}, nobody)) }, "has unequal shares, from 0.333 to 0.667"},
		"other steps":   {func(s *story) { s.round(1000, 1, lanes(half(1), [3]float64{0.5, 1, 1}, nobody)) }, "w1 reports 2 inner steps, but its work in the average of w0 has 1"},
		"a part alone": {func(s *story) {
			s.round(1000, 1, lanes(half(1), half(1), nobody)+","+lanes([3]float64{1, 2, 1}, nobody, nobody))
		}, "parts of the average of w0 contain the work of different workers: one part that of w0 w1, another part that of w0"},
		"a part of fewer": {func(s *story) {
			s.mark(1020, "w0", "arrive", `"round": 1, "steps": 2`)
			s.mark(1020, "w1", "arrive", `"round": 1, "steps": 2`)
			s.mark(1030, "w0", "commit", `"round": 1, "worlds": [2, 1], "lanes": [`+lanes(half(1), half(1), nobody)+`]`)
		}, "the average of w0 has the work of 2 workers, but its parts are averages of 2, 1 workers"},
		"parts of all": {func(s *story) {
			s.mark(1020, "w0", "arrive", `"round": 1, "steps": 2`)
			s.mark(1020, "w1", "arrive", `"round": 1, "steps": 2`)
			for _, node := range []string{"w0", "w1"} {
				s.mark(1030, node, "commit", `"round": 1, "hash": "h", "worlds": [2, 2], "lanes": [`+lanes(half(1), half(1), nobody)+`]`)
			}
		}, ""},
		"no worlds": {func(s *story) {
			s.mark(1020, "w0", "arrive", `"round": 1, "steps": 2`)
			s.mark(1020, "w1", "arrive", `"round": 1, "steps": 2`)
			s.mark(1030, "w0", "commit", `"round": 1, "worlds": [2, 1e300], "lanes": [`+lanes(half(1), half(1), nobody)+`]`)
		}, "w0: the worlds of the mark commit are [2,1e+300], which are not the numbers of workers in at most 16 parts"},
		"slices of 16 parts": {func(s *story) {
			s.round(1000, 1, strings.Repeat(lanes(half(1), half(1), nobody)+",", 17)+lanes(half(1), half(1), nobody))
		}, ""},
		"many slices": {func(s *story) {
			s.round(1000, 1, strings.Repeat(lanes(half(1), half(1), nobody)+",", 18)+lanes(half(1), half(1), nobody))
		}, "round 1: w0 reports the lanes of 19 slices, but the vector has at most 18"},
		"no lanes":      {func(s *story) { s.round(1000, 1, "") }, "w0 does not report its average"},
		"too few lanes": {func(s *story) { s.round(1000, 1, "[1, 2]") }, "w0 reports a vector of 2 lanes, but the vector has 12"},
		"a gap":         {func(s *story) { s.round(1000, 2, lanes(half(2), half(2), nobody)) }, "w0 reports that round 2 is complete, but the last complete round is 0"},
		"no such round": {func(s *story) {
			s.round(1000, 1, lanes(half(1), half(1), nobody))
			s.round(1050, 2, lanes(half(2), half(2), nobody))
			s.round(1100, 3, lanes(half(3), half(3), nobody))
		}, "w0 reports that round 3 is complete, but the last complete round is 2 of 2"},
		"different ends": {func(s *story) {
			s.round(1000, 1, lanes(half(1), half(1), nobody))
			s.mark(1032, "w1", "commit", `"round": 1, "hash": "other", "lanes": [`+lanes(half(1), half(1), nobody)+`]`)
		}, "took the outer step twice"},
		"garbage": {func(s *story) {
			s.add(1001, record.ProgramEvent{Type: record.ProgramInvalidMark, Node: "w1", Cause: "invalid mark"})
		}, "w1: invalid mark"},
		"marks of its own": {func(s *story) { s.mark(1001, "w1", "heartbeat", `"round": "x", "node": 7`) }, ""},
		"another's mark":   {one("commit", `"node": "w0", "round": 1`), `w1: the mark commit is ignored: its field node is "w0", but only the node itself may be named`},
		"a round in words": {one("commit", `"round": "x"`), `w1: the mark commit is ignored: its field round is "x", but a whole number from 1 to 3 is needed`},
		"no round":         {one("commit", `"lanes": [[1]]`), "its field round is null"},
		"a round below 1":  {one("commit", `"round": -1`), "its field round is -1"},
		"half a round":     {one("arrive", `"round": 1.5, "steps": 1`), "its field round is 1.5"},
		"a huge round":     {one("step", `"round": 1e300, "step": 1`), "its field round is 1e+300"},
		"huge steps":       {one("arrive", `"round": 1, "steps": 1e300`), "its field steps is 1e+300"},
		"negative bytes":   {one("commit", `"round": 1, "tx": -1`), "w1: the tx of the mark commit is -1, which is no number of bytes"},
		"long nonsense":    {one("commit", `"round": "`+strings.Repeat("x", 1000)+`"`), `its field round is "` + strings.Repeat("x", 39) + " …, but"},
		"repeated marks": {func(s *story) {
			for range 3 {
				s.mark(1001, "w1", "step", `"round": 1, "step": 1, "duration_us": 1`)
			}
		}, "marks that repeat others in every field, at the same time: 2"},
		"no epoch":        {one("agreed", `"round": 1, "members": ["w0"]`), "w1: the mark agreed is ignored: its field epoch is null"},
		"no members":      {one("agreed", `"round": 1, "epoch": 9, "members": []`), "its field members is [], but a list of nodes is needed"},
		"a ghost":         {one("agreed", `"round": 1, "epoch": 9, "members": ["w0", "w7"]`), `its field members is ["w0","w7"], but all members must be workers of the scenario`},
		"in the future":   {one("step", `"round": 1, "step": 1, "duration_us": 1e18`), "w1: the duration_us of the mark step is 1000000000000000000, which is no time within the life of the program"},
		"back in time":    {one("fetch_end", `"round": 1, "duration_us": -5`), "w1: the duration_us of the mark fetch_end is -5"},
		"a time in words": {one("fetch_end", `"round": 1, "duration_us": "long"`), "the duration_us of the mark fetch_end is \"long\""},
		"more than a whole": {func(s *story) {
			s.round(1000, 1, lanes([3]float64{1, 2, 1}, [3]float64{1, 2, 1}, nobody))
		}, "round 1: the shares in the average of w0 add up to 2, not to 1"},
		"less than a whole": {func(s *story) { // torchft after its lighthouse has restarted
			s.round(1000, 1, lanes([3]float64{0.25, 2, 1}, [3]float64{0.25, 2, 1}, nobody))
		}, "round 1: the shares in the average of w0 add up to 0.5, not to 1"},
		"a negative share": {func(s *story) {
			s.round(1000, 1, lanes([3]float64{2, 2, 1}, [3]float64{-1, 2, 1}, nobody))
		}, "round 1: the average of w0 has 2 times the work of w0, which is no possible share"},
		"huge lanes": {func(s *story) {
			s.round(1000, 1, lanes([3]float64{1e100, 2, 1}, [3]float64{1e100, 1e90, 1e90}, nobody))
		}, "has 1e+100 times the work of w0"},
		"no hash": {func(s *story) {
			s.round(1000, 1, lanes(half(1), half(1), nobody))
			delete((*s)[len(*s)-1].Fields, "hash")
		}, "round 1: w1 reports no hash of its outer state"},
		"equal states of different averages": {func(s *story) {
			s.round(1000, 1, lanes(half(1), half(1), nobody))
			(*s)[len(*s)-1].Fields["lanes"] = []any{[]any{0.25, 0.5, 0.25, 0.25, 0.75, 1.5, 0.75, 0.75, 0., 0., 0., 0.}}
		}, "round 1: w0 and w1 report the same state, but different averages"},
		"a silent participant": {func(s *story) {
			s.round(1000, 1, lanes(half(1), half(1), nobody))
			*s = (*s)[:len(*s)-1]
		}, "round 1: the average has work of w1, but w1 has not reported its outer step"},
		"a participant that dies": {func(s *story) {
			s.round(1000, 1, lanes(half(1), half(1), nobody))
			*s = (*s)[:len(*s)-1]
			s.add(1040, record.ProgramEvent{Type: record.ProgramInject, Node: "w1", Op: "Crash", Processes: new(1)})
		}, ""},
		"a participant that fails": {func(s *story) {
			s.round(1000, 1, lanes(half(1), half(1), nobody))
			*s = (*s)[:len(*s)-1]
			s.mark(1040, "w1", "reduce_end", `"round": 1, "ok": false`)
		}, ""},
		"a participant that heals": {func(s *story) {
			s.round(1000, 1, lanes(half(1), half(1), nobody))
			*s = (*s)[:len(*s)-1]
			s.mark(1040, "w1", "fetch_end", `"round": 2, "from": "w0"`)
		}, ""},
	} {
		s := begin()
		c.tell(s)
		of := scenario(2)
		r := account.Of(of, false, *s)
		summarise(of, r)
		if all := strings.Join(r.Disputes, "\n"); c.want == "" && all != "" || !strings.Contains(all, c.want) {
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
	committed := record.ProgramEvent{Type: record.ProgramMark, Node: "w0", Mark: "commit", Fields: map[string]any{"round": 1.}}
	crash := record.ProgramEvent{Type: record.ProgramInject, Node: "w1", Op: "Restart", Processes: new(1)}
	for name, c := range map[string]struct {
		events []record.ProgramEvent
		want   string
	}{
		"well":        {[]record.ProgramEvent{committed, exit(0, "")}, ""},
		"too soon":    {[]record.ProgramEvent{exit(0, ""), committed}, "w1 exited with code 0 after round 0 of 1"},
		"told to end": {[]record.ProgramEvent{{Type: record.ProgramExit, Node: "w1", Code: new(5), Told: true}}, ""},
		"by force":    {[]record.ProgramEvent{{Type: record.ProgramExit, Node: "w1", Code: new(-1), Signal: "SIGKILL", Told: true}}, ""},
		"preempted": {[]record.ProgramEvent{
			{Type: record.ProgramInject, Node: "w1", Op: "Preempt"}, exit(0, ""), committed,
		}, ""},
		"the central one first": {[]record.ProgramEvent{
			committed, {Type: record.ProgramExit, Node: "coordinator", Code: new(0)}, exit(0, ""),
		}, "coordinator exited with code 0 before the workers"},
		"the central one last": {[]record.ProgramEvent{
			committed, exit(0, ""), {Type: record.ProgramExit, Node: "coordinator", Code: new(0)},
		}, ""},
		"not found":   {[]record.ProgramEvent{{Type: record.ProgramExit, Node: "w1", Code: new(127), Cause: "no such file"}}, "w1 could not be started: no such file"},
		"a code":      {[]record.ProgramEvent{exit(3, "")}, "w1 exited with code 3"},
		"killed":      {[]record.ProgramEvent{exit(-1, "SIGKILL"), crash}, ""},
		"out of room": {[]record.ProgramEvent{exit(-1, "SIGKILL")}, "w1 was ended by SIGKILL"},
		"at the end":  {[]record.ProgramEvent{exit(-1, "SIGTERM")}, ""},
		"a fault":     {[]record.ProgramEvent{exit(-1, "SIGSEGV")}, "w1 was ended by SIGSEGV"},
	} {
		s := begin()
		for k, e := range c.events {
			s.add(1500+k, e)
		}
		if r := account.Of(scenario(1), false, *s); strings.Join(r.Failures, "; ") != c.want {
			t.Errorf("%s: %q, want %q", name, r.Failures, c.want)
		}
	}
}

// TestNonsense: whatever programs mark, there is a record that can be read, in order of
// time, and a summary.
func TestNonsense(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(all ...any) any { return all[random.IntN(len(all))] }
	value := func() any {
		return pick(nil, true, "w1", "x", "\x00\xff", 0., 1., 2., 3., 4., -1., 0.5, 1e18, -1e300, 1e300, []any{}, []any{"w0", "w1"}, []any{"w7", 3.}, map[string]any{},
			[]any{[]any{0.5, 1., 0.5, 0.5, 0.5, 1., 0.5, 0.5, 0., 0., 0., 0.}}, []any{[]any{1e300, "x", nil}}, []any{[]any{-0.5, 0., 1e-300, 1., 1., 1., 1., 1., 0., 0., 0., 0.}})
	}
	nodes := []string{"w0", "w1", "w2", "w9", "coordinator", "the hub", ""}
	for n := range 500 {
		s := begin()
		for range 30 {
			e := record.ProgramEvent{Node: nodes[random.IntN(len(nodes))]}
			switch random.IntN(8) {
			case 0:
				e.Type, e.Code = record.ProgramExit, new(random.IntN(3)-1)
				e.Signal, _ = pick("", "SIGKILL", "SIGTERM").(string)
			case 1:
				e.Type, e.Incarnation = record.ProgramStart, random.IntN(3)
			case 2:
				e.Type = record.ProgramInject
				e.Op, _ = pick("Crash", "Pause", "Resume", "Slow", "Preempt", "Restart").(string)
			default:
				e.Type = record.ProgramMark
				e.Mark, _ = pick("joined", "agreed", "step", "arrive", "reduce_end", "fetch_end", "commit", "commit", "start", "other").(string)
				e.Fields = map[string]any{"round": pick(1., 2.)}
				for _, name := range []string{"round", "epoch", "members", "step", "steps", "duration_us", "lanes", "hash", "tx", "ok", "from", "error", "version", "node"} {
					if random.IntN(3) == 0 {
						e.Fields[name] = value()
					}
				}
			}
			at := random.IntN(100) + 1000
			for range 1 + random.IntN(2) {
				s.add(at, e)
			}
		}
		slices.SortStableFunc(*s, func(a, b record.ProgramEvent) int { return int(a.T - b.T) })
		of := scenario(2)
		r := account.Of(of, n%2 == 0, *s)
		summarise(of, r)
		var text bytes.Buffer
		w := record.NewWriter(&text)
		for _, e := range r.Events {
			w.Write(e)
		}
		if err := w.Flush(); err != nil {
			t.Errorf("story %d: %v", n, err)
		}
		if back, err := record.Read(&text); err != nil || len(back) != len(r.Events) || !slices.IsSortedFunc(r.Events, func(a, b record.Event) int { return int(a.T - b.T) }) {
			t.Errorf("story %d: %d events of %d, %v", n, len(back), len(r.Events), err)
		}
		for _, line := range append(r.Disputes, r.Failures...) {
			if strings.ContainsAny(line, "\n\x00") || !utf8.ValidString(line) {
				t.Errorf("story %d: %q", n, line)
			}
		}
	}
}
