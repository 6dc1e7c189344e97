package report

import (
	"slices"
	"testing"

	"testbed/policy"
	"testbed/runlog"
	"testbed/scenarios"
)

func TestSidelining(t *testing.T) {
	s := &scenarios.Scenario{InnerSteps: 2}
	deadline := &policy.Reason{Rule: policy.RuleDeadline, Deadline: &policy.Deadline{}}
	join := func(node string, at policy.Time) runlog.Event {
		return runlog.Event{T: at, Type: runlog.Join, Node: node}
	}
	begin := []runlog.Event{join("w0", 0), join("w1", 0), join("w2", 0)}
	// round closes with one missing, or nobody, at a deadline.
	round := func(n int, at policy.Time, missing ...policy.ID) []runlog.Event {
		var there []policy.ID
		for id := range policy.ID(3) {
			if len(missing) == 0 || missing[0] != id {
				there = append(there, id)
			}
		}
		return []runlog.Event{
			{T: at, Type: runlog.RoundClose, Round: n, Participants: there, Missing: missing, Reason: deadline},
			{T: at + 10, Type: runlog.OuterStep, Round: n, Participants: there},
		}
	}
	slow := runlog.Event{T: 1, Type: runlog.Slow, Node: "w1", Factor: 3}
	step := func(at policy.Time, n int) runlog.Event {
		return runlog.Event{T: at, Type: runlog.Step, Node: "w1", Step: n}
	}
	for _, c := range []struct {
		name   string
		events [][]runlog.Event
		want   Sidelining
	}{
		{"nothing happens", [][]runlog.Event{begin, round(1, 100)}, Sidelining{}},
		{"the slow one is left out", [][]runlog.Event{begin, {slow, step(20, 1)}, round(1, 100, 1)},
			Sidelining{Left: 1, Right: 1, Slow: 1, Caught: 1}},
		{"the slow one is waited for", [][]runlog.Event{begin, {slow, step(20, 1)}, round(1, 100)}, Sidelining{Slow: 1}},
		{"another one is left out", [][]runlog.Event{begin, {slow, step(20, 1)}, round(1, 100, 2)}, Sidelining{Left: 1, Slow: 1}},
		{"slowed in its last step", [][]runlog.Event{begin, {step(0, 1), slow, step(20, 2)}, round(1, 100, 1)}, Sidelining{Left: 1}},
		{"slow in the next round only", [][]runlog.Event{begin, {step(0, 1), slow, step(20, 2)}, round(1, 100), round(2, 200, 1)},
			Sidelining{Left: 1, Right: 1, Slow: 1, Caught: 1}},
		{"restored before the round", [][]runlog.Event{begin, {slow, {T: 2, Type: runlog.Restore, Node: "w1"}, step(20, 1)}, round(1, 100, 1)},
			Sidelining{Left: 1}},
		{"made faster", [][]runlog.Event{begin, {{T: 1, Type: runlog.Slow, Node: "w1", Factor: 0.5}, step(20, 1)}, round(1, 100, 1)}, Sidelining{Left: 1}},
		{"cut off", [][]runlog.Event{begin, {{T: 5, Type: runlog.Partition, IDs: []policy.ID{1}}}, round(1, 100, 1), round(2, 200, 1)},
			Sidelining{Left: 2, Excused: 2}},
		{"healed a round ago", [][]runlog.Event{begin, {{T: 5, Type: runlog.Partition, IDs: []policy.ID{1}}, {T: 6, Type: runlog.Heal}}, round(1, 100, 1), round(2, 200, 1)},
			Sidelining{Left: 2, Excused: 1}},
		{"a link of its own changed", [][]runlog.Event{begin, {{T: 5, Type: runlog.LinkFault, Node: "w1"}}, round(1, 100, 1)}, Sidelining{Left: 1, Excused: 1}},
		{"crashed", [][]runlog.Event{begin, {{T: 5, Type: runlog.Crash, Node: "w1"}}, round(1, 100, 1)}, Sidelining{Left: 1, Excused: 1}},
		{"joining", [][]runlog.Event{begin[:2], {join("w2", 50)}, round(1, 100, 2)}, Sidelining{Left: 1, Excused: 1}},
	} {
		var events []runlog.Event
		for _, part := range c.events {
			events = append(events, part...)
		}
		if got := sidelining(s, events); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestPrecisionAndRecall(t *testing.T) {
	s := Sidelining{Left: 5, Right: 3, Excused: 1, Slow: 6, Caught: 3}
	precision, left := s.Precision()
	recall, slow := s.Recall()
	if precision != 0.75 || !left || recall != 0.5 || !slow {
		t.Errorf("precision %v %v, recall %v %v", precision, left, recall, slow)
	}
	s = Sidelining{Left: 1, Excused: 1}
	if _, left = s.Precision(); left {
		t.Error("there is a precision of nobody")
	}
	if _, slow = s.Recall(); slow {
		t.Error("there is a recall of nobody")
	}
}

// TestLinks: w0 sends twice to w1 in a ring of two, whose own link is slower.
func TestLinks(t *testing.T) {
	s, err := scenarios.Parse("test.yaml", []byte(`
{seed: 1, inner_steps: 1, target_outer_steps: 1, horizon: 100, heartbeat_period: 10, heartbeat_miss_threshold: 5,
base_latency: 1, bandwidth_bpus: 1, state_bytes: 1, workers: [{id: 0, inner_step_mean: 10}, {id: 1, inner_step_mean: 10}],
real: {time_scale: 1000, links: {default: {rate_up: 8mbit}, nodes: {w1: {rate_down: 4mbit}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	both := []policy.ID{0, 1}
	events := []runlog.Event{
		{Type: runlog.ReduceStart, Epoch: 1, Participants: both},
		{Type: runlog.Reduced, Epoch: 1, Node: "w0", BytesSent: 1000, Duration: 2},
		{Type: runlog.ReduceStart, Epoch: 2, Participants: both},
		{Type: runlog.Reduced, Epoch: 2, Node: "w0", BytesSent: 500, Duration: 1},
		{Type: runlog.Reduced, Epoch: 2, Node: "w1", BytesSent: 500, Duration: 4},
		{Type: runlog.ReduceStart, Epoch: 3, Participants: both[:1]},
		{Type: runlog.Reduced, Epoch: 3, Node: "w0"}, // alone it sends nothing
	}
	want := []Link{
		{From: "w0", To: "w1", Reductions: 2, Bytes: 1500, Seconds: 0.003, Goodput: 4e6, Rate: 4e6},
		{From: "w1", To: "w0", Reductions: 1, Bytes: 500, Seconds: 0.004, Goodput: 1e6, Rate: 8e6},
	}
	for _, algorithm := range []string{"ring", "direct"} {
		if s.Real.AllReduce.Algorithm = algorithm; algorithm == "direct" {
			want[0].To, want[0].Rate, want[1].To = everybody, 8e6, everybody
		}
		if got, err := links(s, events); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %+v, %v\nwant %+v", algorithm, got, err, want)
		}
	}
}

func TestQuote(t *testing.T) {
	for word, want := range map[string]string{
		"runs/a-1.yaml": "runs/a-1.yaml", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'",
	} {
		if got := quote(word); got != want {
			t.Errorf("quote(%q) = %s, want %s", word, got, want)
		}
	}
}
