package report

import (
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
		{"resumed a round ago", [][]runlog.Event{begin, {{T: 5, Type: runlog.Pause, Node: "w1"}, {T: 6, Type: runlog.Resume, Node: "w1"}}, round(1, 100, 1), round(2, 200, 1)},
			Sidelining{Left: 2, Excused: 1}},
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
