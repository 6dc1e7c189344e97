package record_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/policy"
	"testbed/record"
	"testbed/shaping/fidelity"
)

func reason(r policy.Rule) *policy.Reason { return &policy.Reason{Rule: r} }

// everything is an event with every field set.
func everything() record.Event {
	lost := policy.ID(2)
	return record.Event{
		T: 7, Type: record.RoundClose, Node: "w3", Round: 4, Epoch: 5, Step: 6, Duration: 8, Offset: new(policy.Time(0)), Late: true,
		At: 9, Participants: []policy.ID{0, 1}, Missing: []policy.ID{3}, Zero: []policy.ID{1}, IDs: []policy.ID{5}, From: "w1", Factor: 2.5, BytesSent: 10,
		Hash: "ab", Identical: new(false), Complete: new(false), ClockError: 11, Loss: new(0.0),
		Run: &record.Run{Schema: record.Schema, Scenario: "s", Policy: "baseline", World: record.Sim, Links: "none", Seed: 1<<64 - 1, TimeScale: 0.5},
		Reason: &policy.Reason{Rule: policy.RuleDeadline, Members: 4, Arrived: 3, Needed: 3, Misses: 1, Limit: 2, Silent: 12, Lost: &lost,
			Deadline: &policy.Deadline{Spread: &policy.Spread{Median: 1, MAD: 2, K: 3, MinSlack: 4, Samples: 5}, Numbers: map[string]float64{"n": 6}, Offset: 7, At: 8}},
	}
}

func write(t *testing.T, events ...record.Event) string {
	t.Helper()
	var b bytes.Buffer
	w := record.NewWriter(&b)
	for _, e := range events {
		w.Write(e)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestEventsReadBackAsWritten(t *testing.T) {
	events := []record.Event{everything(), {T: 1, Type: record.Join, Node: "w0"}, {Type: record.RunEnd}}
	text := write(t, events...)
	if n := strings.Count(text, "\n"); n != 3 {
		t.Errorf("three events take %d lines", n)
	}
	back, err := record.Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(events, back); diff != "" {
		t.Errorf("read back differently (-written +read):\n%s", diff)
	}
}

// TestZeroAndFalseAreWritten where they say something else than absence does.
func TestZeroAndFalseAreWritten(t *testing.T) {
	text := write(t, everything())
	for _, want := range []string{`"offset_us":0`, `"identical":false`, `"complete":false`, `"loss":0`} {
		if !strings.Contains(text, want) {
			t.Errorf("the line lacks %s:\n%s", want, text)
		}
	}
	if got := write(t, record.Event{Type: record.Join}); got != `{"t_us":0,"type":"join"}`+"\n" {
		t.Errorf("an event without fields is written as %s", got)
	}
}

// TestOldNamesOfRules: what gave_up was called in older records, in an event and
// in a summary.
func TestOldNamesOfRules(t *testing.T) {
	events, err := record.Read(strings.NewReader(`{"t_us":7,"type":"evict","node":"w2","round":3,"reason":{"rule":"rattle","silent_us":5}}` + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := events[0].Reason.Rule; got != policy.RuleGaveUp {
		t.Errorf("the event's rule is read as %q", got)
	}
	var sum record.Summary
	if err := json.Unmarshal([]byte(`{"evicted":[{"id":2,"reason":"rattle"}],"detected":[{"id":2,"cause":"rattle"}]}`), &sum); err != nil {
		t.Fatal(err)
	}
	if e, d := sum.Evicted[0].Reason, sum.Detected[0].Cause; e != policy.RuleGaveUp || d != policy.RuleGaveUp {
		t.Errorf("the summary's rules are read as %q and %q", e, d)
	}
	if text := write(t, events...); !strings.Contains(text, `"rule":"gave_up"`) {
		t.Errorf("written as %s", text)
	}
}

func TestALastLineCutOffIsDropped(t *testing.T) {
	text := write(t, record.Event{T: 1, Type: record.Join}, record.Event{T: 2, Type: record.Step})
	for cut := len(text) - 1; cut > strings.Index(text, "\n"); cut-- {
		events, err := record.Read(strings.NewReader(text[:cut]))
		if err != nil || len(events) != 1 || events[0].Type != record.Join {
			t.Fatalf("cut off after %d bytes: %d events, error %v", cut, len(events), err)
		}
	}
}

func TestABadLineIsNamed(t *testing.T) {
	good := `{"t_us":1,"type":"join"}` + "\n"
	for bad, want := range map[string]string{
		"nonsense":               "event in line 2: invalid character 'o' in literal null (expecting 'u')",
		"":                       "event in line 2: unexpected end of JSON input",
		`{"t_us":"x"}`:           "event in line 2: json: cannot unmarshal string into Go struct field Event.t_us of type policy.Time",
		`{"t_us":3}`:             "event in line 2: the event has no type",
		`null`:                   "event in line 2: the event has no type",
		`{"t_us":1,"type":"jo`:   "event in line 2: invalid character '\\n' in string literal",
		good[:len(good)-1] + "}": "event in line 2: invalid character '}' after top-level value",
	} {
		events, err := record.Read(strings.NewReader(good + bad + "\n" + good))
		if err == nil || err.Error() != want {
			t.Errorf("line %q: error %v, want %s", bad, err, want)
		}
		if len(events) != 1 {
			t.Errorf("line %q: %d events from before it, want 1", bad, len(events))
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }
func (broken) Read([]byte) (int, error)  { return 0, errors.New("the disk is gone") }

func TestTheFirstErrorSticks(t *testing.T) {
	w := record.NewWriter(broken{})
	for range 10_000 {
		w.Write(everything())
	}
	if err := w.Flush(); err == nil || err.Error() != "the disk is full" {
		t.Errorf("Flush after a failed write: %v", err)
	}
	if _, err := record.Read(broken{}); err == nil || err.Error() != "reading event in line 1: the disk is gone" {
		t.Errorf("Read of a broken file: %v", err)
	}
}

// byHand is a run of three workers that fits on a page. Worker 2 joins late
// and fetches for 10 µs; worker 1 is sidelined in round 2 and then leaves.
func byHand() []record.Event {
	return []record.Event{
		{T: 0, Type: record.RunStart, Run: &record.Run{Scenario: "by_hand", Policy: "straggler", World: record.Sim, Links: "none", Seed: 3, TimeScale: 1}},
		{T: 0, Type: record.Join, Node: "w0", Round: 1},
		{T: 0, Type: record.Join, Node: "w1", Round: 1},
		{T: 40, Type: record.Step, Node: "w0", Round: 1, Duration: 40},
		{T: 50, Type: record.Arrive, Node: "w0", Round: 1},
		{T: 60, Type: record.Step, Node: "w1", Round: 1, Duration: 60},
		{T: 70, Type: record.Arrive, Node: "w1", Round: 1},
		{T: 70, Type: record.RoundClose, Round: 1, Participants: []policy.ID{0, 1}},
		{T: 90, Type: record.ReduceDone, Round: 1, Duration: 20, BytesSent: 800, Hash: "aa", Identical: new(true)},
		{T: 90, Type: record.OuterStep, Round: 1, Participants: []policy.ID{0, 1}},
		{T: 100, Type: record.Join, Node: "w2", Round: 2},
		{T: 100, Type: record.FetchStart, Node: "w2", Round: 2, From: "w0", Reason: reason(policy.RuleJoin)},
		{T: 105, Type: record.FetchStart, Node: "w2", Round: 2, From: "w1", Reason: reason(policy.RuleFetchFailed)},
		{T: 110, Type: record.FetchDone, Node: "w2", Round: 2},
		{T: 130, Type: record.Step, Node: "w0", Round: 2, Duration: 40},
		{T: 140, Type: record.Arrive, Node: "w0", Round: 2},
		{T: 150, Type: record.Step, Node: "w2", Round: 2, Duration: 40},
		{T: 160, Type: record.Arrive, Node: "w2", Round: 2},
		{T: 160, Type: record.RoundClose, Round: 2, Participants: []policy.ID{0, 2}, Missing: []policy.ID{1}},
		{T: 160, Type: record.Sideline, Node: "w1", Round: 2, Reason: reason(policy.RuleLate)},
		{T: 165, Type: record.Arrive, Node: "w1", Round: 2, Late: true},
		{T: 170, Type: record.Leave, Node: "w1"},
		{T: 170, Type: record.Evict, Node: "w1", Round: 2, Reason: reason(policy.RuleLeave)},
		{T: 180, Type: record.ReduceDone, Round: 2, Duration: 20, BytesSent: 900, Hash: "bb", Identical: new(true)},
		{T: 180, Type: record.OuterStep, Round: 2, Participants: []policy.ID{0, 2}},
		{T: 180, Type: record.RunEnd, Complete: new(true)},
		{T: 500, Type: record.Step, Node: "w0", Duration: 0}, // after the end: lengthens nothing
	}
}

func summarise(events []record.Event) record.Summary {
	s := record.NewSummarizer(record.Setup{})
	for _, e := range events {
		s.Add(&e)
	}
	sum := s.Summary()
	sum.Work = nil // TestBooksByHand has records for it
	return sum
}

func TestSummaryByHand(t *testing.T) {
	// Members: w0 for 180, w1 for 170, w2 for 80 µs.
	const member = 180 + 170 + 80
	want := record.Summary{
		Scenario: "by_hand", Policy: "straggler", World: record.Sim, WorldName: record.Sim, Links: "none", Seed: 3, TimeScale: 1,
		Complete: true, WallClock: 180, OuterSteps: 2,
		ComputeFraction:     (40.0 + 60 + 40 + 40) / member,
		BarrierWaitFraction: (20.0 + 0 + 20 + 0) / member,
		Split:               record.Split{Compute: 60 + 40, Transfer: 20 + 20, Control: 10 + 20, StateFetch: 10},
		JoinerStall:         10,
		JoinersHeld:         20, // w2 arrives at 160, w0 at 140
		Sidelined:           []record.Membership{{Round: 2, ID: 1, Why: reason(policy.RuleLate)}},
		Evicted:             []record.Membership{{Round: 2, ID: 1, Reason: policy.RuleLeave, Why: reason(policy.RuleLeave)}},
		Rejoined:            []record.Membership{}, Detected: []record.Detection{},
		Rounds: []record.Round{
			{Round: 1, Start: 0, Close: 70, End: 90, Participants: []policy.ID{0, 1}, Late: []policy.ID{}, Reduce: 20, BytesSent: 800, Hash: "aa"},
			{Round: 2, Start: 90, Close: 160, End: 180, Participants: []policy.ID{0, 2}, Late: []policy.ID{1}, Reduce: 20, BytesSent: 900, Hash: "bb"},
		},
		BitIdentical: new(true),
		Fidelity:     fidelity.Verdict{Reasons: []string{}},
	}
	if diff := cmp.Diff(want, summarise(byHand())); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
}

func TestOneDifferenceIsEnough(t *testing.T) {
	events := byHand()
	for i := range events {
		if events[i].Type == record.ReduceDone && events[i].Round == 1 {
			events[i].Identical = new(false)
		}
	}
	if got := summarise(events).BitIdentical; got == nil || *got {
		t.Errorf("bit_identical = %v after a round that was not", got)
	}
}

// TestARoundThatOpenedAgain has the participants of the first closing lost;
// worker 1, late for it, is the only one of the second. It waited 40 µs.
func TestARoundThatOpenedAgain(t *testing.T) {
	sum := summarise([]record.Event{
		{T: 0, Type: record.Join, Node: "w0", Round: 1},
		{T: 0, Type: record.Join, Node: "w1", Round: 1},
		{T: 100, Type: record.Arrive, Node: "w0", Round: 1},
		{T: 110, Type: record.RoundClose, Round: 1, Participants: []policy.ID{0}, Missing: []policy.ID{1}},
		{T: 160, Type: record.Arrive, Node: "w1", Round: 1, Late: true},
		{T: 200, Type: record.Evict, Node: "w0", Round: 1, Reason: reason(policy.RuleHeartbeat)},
		{T: 200, Type: record.RoundClose, Round: 1, Participants: []policy.ID{1}},
		{T: 250, Type: record.OuterStep, Round: 1, Participants: []policy.ID{1}},
		{T: 250, Type: record.RunEnd, Complete: new(true)},
	})
	if want := (10.0 + 40) / (200 + 250); sum.BarrierWaitFraction != want {
		t.Errorf("barrier_wait_fraction = %v, want %v", sum.BarrierWaitFraction, want)
	}
	if r := sum.Rounds[0]; r.Close != 200 || len(r.Late) != 0 {
		t.Errorf("the round is summed up as %+v", r)
	}
}

// TestWhoComesBackHasNotArrived: worker 1 arrives, dies, and takes part in the same
// round with zeros in its next life. It waited for nothing, and nobody for it.
func TestWhoComesBackHasNotArrived(t *testing.T) {
	sum := summarise([]record.Event{
		{T: 0, Type: record.Join, Node: "w0", Round: 1},
		{T: 0, Type: record.Join, Node: "w1", Round: 1},
		{T: 10, Type: record.Arrive, Node: "w1", Round: 1},
		{T: 50, Type: record.Evict, Node: "w1", Round: 1, Reason: reason(policy.RuleHeartbeat)},
		{T: 60, Type: record.Join, Node: "w1", Round: 1, Incarnation: 1},
		{T: 100, Type: record.Arrive, Node: "w0", Round: 1},
		{T: 120, Type: record.RoundClose, Round: 1, Participants: []policy.ID{0, 1}},
		{T: 150, Type: record.OuterStep, Round: 1, Participants: []policy.ID{0, 1}},
		{T: 150, Type: record.RunEnd, Complete: new(true)},
	})
	if want := 20.0 / (150 + 50 + 90); sum.BarrierWaitFraction != want {
		t.Errorf("barrier_wait_fraction = %v, want %v", sum.BarrierWaitFraction, want)
	}
}

func TestAnUnfinishedRunIsSummedUpToItsLastEvent(t *testing.T) {
	sum := summarise([]record.Event{
		{T: 0, Type: record.Join, Node: "w0", Round: 1},
		{T: 60, Type: record.Step, Node: "w0", Round: 1, Duration: 60},
		{T: 240, Type: record.Horizon},
		{T: 240, Type: record.RunEnd, Complete: new(false)},
	})
	if sum.Complete || sum.WallClock != 0 || sum.ComputeFraction != 0.25 {
		t.Errorf("summary %+v, want incomplete, no outer step, a quarter computed", sum)
	}
}

func TestRecordsWithoutReasonsAreSummedUp(t *testing.T) {
	sum := summarise([]record.Event{
		{Type: record.RunStart},
		{T: 3, Type: record.Evict, Node: "w9"},
		{T: 4, Type: record.FetchStart, Node: "w9"},
		{T: 5, Type: record.FetchDone, Node: "w8"},
	})
	if len(sum.Evicted) != 1 || sum.ComputeFraction != 0 {
		t.Errorf("summary %+v", sum)
	}
}

// TestAnEmptySummaryHasListsNotNulls, which readers in other languages trip
// over.
func TestAnEmptySummaryHasListsNotNulls(t *testing.T) {
	text, err := json.Marshal(summarise(nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"sidelined", "evicted", "rejoined", "rounds", "reasons"} {
		if !strings.Contains(string(text), `"`+field+`":[]`) {
			t.Errorf("%s is no empty list in %s", field, text)
		}
	}
}

func TestEveryActionButTwoIsRecorded(t *testing.T) {
	why := policy.Reason{Rule: policy.RuleTimer}
	for _, a := range []policy.Action{
		&policy.Admit{ID: 3, Round: 2, Reason: why}, &policy.Reject{ID: 3, Reason: why}, &policy.Arrived{ID: 3, Reason: why},
		&policy.ArmDeadline{At: 4, Reason: why}, &policy.Close{Reason: why}, &policy.Reduce{Reason: why}, &policy.Abort{Reason: why},
		&policy.OuterStep{Reason: why}, &policy.HeartbeatMiss{ID: 3, Reason: why}, &policy.Sideline{ID: 3, Reason: why},
		&policy.Rejoin{ID: 3, Reason: why}, &policy.Evict{ID: 3, Reason: why}, &policy.Fetch{ID: 3, From: 1, Reason: why},
		&policy.Fetched{ID: 3, Reason: why}, &policy.Finish{Reason: why},
	} {
		e, ok := record.FromAction(9, a)
		if !ok || e.Type == "" || e.T != 9 || e.Reason == nil || e.Reason.Rule != policy.RuleTimer {
			t.Errorf("%T is recorded as %+v, %v", a, e, ok)
		}
	}
	for _, a := range []policy.Action{&policy.StartRound{}, &policy.WakeAt{}} {
		if e, ok := record.FromAction(9, a); ok {
			t.Errorf("%T is recorded as %+v", a, e)
		}
	}
}

func TestARunDirectoryIsNotOverwritten(t *testing.T) {
	t.Chdir(t.TempDir())
	d, err := record.CreateDir("run")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.WriteJSON(record.SummaryFile, map[string]int{"a": 1}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("run/summary.json")
	if err != nil || string(text) != "{\n  \"a\": 1\n}\n" {
		t.Errorf("summary.json is %q, %v", text, err)
	}
	if !strings.HasSuffix(d.Log("w0"), "/run/logs/w0.log") {
		t.Errorf("the logs lie at %s", d.Log("w0"))
	}
	if _, err := record.CreateDir("run"); err == nil || err.Error() != "the run directory run is not empty; choose another with --out" {
		t.Errorf("making it again: %v", err)
	}
	if _, err := record.CreateDir("run/summary.json/x"); err == nil {
		t.Error("a directory inside a file was made")
	}
	if err := d.WriteJSON("bad.json", func() {}); err == nil {
		t.Error("a function was written as JSON")
	}
}

// TestAResumedRunIsSummedUp: it has died in round 3, goes on from outer step 1,
// and takes two steps again. The worker that left meanwhile stays away.
func TestAResumedRunIsSummedUp(t *testing.T) {
	outer := func(t policy.Time, round int) record.Event {
		return record.Event{T: t, Type: record.OuterStep, Round: round, Participants: []policy.ID{0}}
	}
	events := []record.Event{
		{T: 0, Type: record.Join, Node: "w0"}, {T: 0, Type: record.Join, Node: "w1"},
		outer(10, 1),
		{T: 15, Type: record.Sideline, Node: "w1", Round: 2}, outer(20, 2),
		{T: 21, Type: record.Evict, Node: "w1", Round: 3, Reason: reason(policy.RuleLeave)},
		{T: 30, Type: record.RunResume, Round: 1, Hash: "h"},
		{T: 35, Type: record.CoordinatorCrash}, {T: 39, Type: record.CoordinatorBack},
		outer(40, 2), outer(50, 3),
		{T: 50, Type: record.RunEnd, Complete: new(true)},
	}
	sum := summarise(events)
	if len(sum.Rounds) != 3 || sum.Rounds[1].Start != 30 || sum.Rounds[1].End != 40 || sum.OuterSteps != 3 || sum.WallClock != 50 || !sum.Complete {
		t.Errorf("rounds %+v, %d outer steps in %d µs, complete %v", sum.Rounds, sum.OuterSteps, sum.WallClock, sum.Complete)
	}
	if len(sum.Sidelined) != 0 || len(sum.Evicted) != 1 || len(sum.ResumedFrom) != 1 || sum.ResumedFrom[0] != 1 {
		t.Errorf("sidelined %v, evicted %v, resumed from %v", sum.Sidelined, sum.Evicted, sum.ResumedFrom)
	}
	if len(sum.Outages) != 1 || sum.Outages[0].At != 35 || *sum.Outages[0].Length != 4 {
		t.Errorf("outages %+v", sum.Outages)
	}
	var kept []record.Type
	for _, e := range record.Lineage(events) {
		kept = append(kept, e.Type)
	}
	if got, want := fmt.Sprint(kept), "[join join outer_step evict run_resume coordinator_crash coordinator_back outer_step outer_step run_end]"; got != want {
		t.Errorf("kept %s, want %s", got, want)
	}
}
