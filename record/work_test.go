package record_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/experiment"
	"testbed/internal/randscenario"
	"testbed/internal/rapidtest"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/scenarios/faults"
	"testbed/train/work"
)

// three is a scenario of three workers and two inner steps a round.
func three(injects ...faults.Inject) *scenarios.Scenario {
	s := &scenarios.Scenario{InnerSteps: 2, Injects: injects}
	for id := range policy.ID(3) {
		s.Workers = append(s.Workers, scenarios.Worker{ID: id, InnerStepMean: 10})
	}
	return s
}

func workOf(s *scenarios.Scenario, parts ...[]record.Event) *record.Work {
	sum := record.NewSummarizer(s.Setup())
	for _, part := range parts {
		for _, e := range part {
			sum.Add(&e)
		}
	}
	return sum.Summary().Work
}

func joined(node string, at policy.Time) record.Event {
	return record.Event{T: at, Type: record.Join, Node: node}
}

var begin = []record.Event{joined("w0", 0), joined("w1", 0), joined("w2", 0)}

func without(missing []policy.ID) (there []policy.ID) {
	for id := range policy.ID(3) {
		if !slices.Contains(missing, id) {
			there = append(there, id)
		}
	}
	return there
}

func closes(n int, at policy.Time, missing ...policy.ID) record.Event {
	return record.Event{T: at, Type: record.RoundClose, Round: n, Participants: without(missing), Missing: missing,
		Reason: &policy.Reason{Rule: policy.RuleDeadline, Deadline: &policy.Deadline{}}}
}

// round closes at a deadline and ends.
func round(n int, at policy.Time, missing ...policy.ID) []record.Event {
	return []record.Event{closes(n, at, missing...), {T: at + 10, Type: record.OuterStep, Round: n, Participants: without(missing)}}
}

func step(node string, at policy.Time, round, n int) record.Event {
	return record.Event{T: at, Type: record.Step, Node: node, Round: round, Step: n, Duration: 10}
}

// both are the inner steps of a round.
func both(node string, at policy.Time, round int) []record.Event {
	return []record.Event{step(node, at, round, 1), step(node, at+10, round, 2)}
}

func evicted(node string, at policy.Time, why policy.Rule) []record.Event {
	return []record.Event{{T: at, Type: record.Evict, Node: node, Reason: reason(why)}}
}

// TestWhoIsJudged: left out, wrongly, excused; slow, and missed.
func TestWhoIsJudged(t *testing.T) {
	type counts struct{ left, wrong, excused, slow, missed int }
	on := func(op faults.Op, id policy.ID, at policy.Time, factor float64) faults.Inject {
		in := faults.Inject{Op: op, ID: &id, At: at}
		if factor > 0 {
			in.Factor = &factor
		}
		return in
	}
	slow, none := three(on(faults.Slow, 1, 1, 3)), three()
	first := []record.Event{step("w1", 20, 1, 1)}
	event := func(t policy.Time, what record.Type) record.Event { return record.Event{T: t, Type: what, Node: "w1"} }
	for _, c := range []struct {
		name     string
		scenario *scenarios.Scenario
		events   [][]record.Event
		want     counts
	}{
		{"nothing happens", none, [][]record.Event{begin, round(1, 100)}, counts{}},
		{"the slow one is left out", slow, [][]record.Event{begin, first, round(1, 100, 1)}, counts{left: 1, slow: 1}},
		{"the slow one is waited for", slow, [][]record.Event{begin, first, round(1, 100)}, counts{slow: 1, missed: 1}},
		{"the slow one is waited for, and there was no deadline", slow, [][]record.Event{begin, first, {{T: 100, Type: record.RoundClose, Round: 1, Participants: without(nil)}}}, counts{}},
		{"another one is left out", slow, [][]record.Event{begin, first, round(1, 100, 2)}, counts{left: 1, wrong: 1, slow: 1, missed: 1}},
		{"slowed in its last step", three(on(faults.Slow, 1, 15, 3)), [][]record.Event{begin, both("w1", 10, 1), round(1, 100, 1)}, counts{left: 1, wrong: 1}},
		{"slow in the next round only", three(on(faults.Slow, 1, 15, 3)), [][]record.Event{begin, both("w1", 10, 1), round(1, 100), round(2, 200, 1)}, counts{left: 1, slow: 1}},
		{"slow since it joined, but not in its first step", three(on(faults.Slow, 1, 0, 3)), [][]record.Event{begin, round(1, 100, 1)}, counts{left: 1, wrong: 1}},
		{"still at the step that it began slowly", slow, [][]record.Event{begin, first, round(1, 100, 1), round(2, 200, 1)}, counts{left: 2, slow: 2}},
		{"restored before the step", three(on(faults.Slow, 1, 1, 3), on(faults.Restore, 1, 2, 0)), [][]record.Event{begin, first, round(1, 100, 1)}, counts{left: 1, wrong: 1}},
		{"made faster", three(on(faults.Slow, 1, 1, 0.5)), [][]record.Event{begin, first, round(1, 100, 1)}, counts{left: 1, wrong: 1}},
		{"a little slower", three(on(faults.Slow, 1, 1, 1.5)), [][]record.Event{begin, first, round(1, 100, 1)}, counts{left: 1, wrong: 1}},
		{"a round that closes again is judged once", slow, [][]record.Event{begin, first, {closes(1, 90, 2)}, round(1, 100, 1)}, counts{left: 1, slow: 1}},
		{"paused", three(on(faults.Pause, 1, 5, 0)), [][]record.Event{begin, {event(5, record.Pause)}, round(1, 100, 1), round(2, 200, 1)}, counts{left: 2, slow: 2}},
		{"resumed a round ago", three(on(faults.Pause, 1, 5, 0), on(faults.Resume, 1, 6, 0)),
			[][]record.Event{begin, {event(5, record.Pause), event(6, record.Resume)}, round(1, 100, 1), round(2, 200, 1)}, counts{left: 2, wrong: 1, slow: 1}},
		{"resumed in the second round", three(on(faults.Pause, 1, 5, 0), on(faults.Resume, 1, 150, 0)),
			[][]record.Event{begin, {event(5, record.Pause)}, round(1, 100, 1), {event(150, record.Resume)}, round(2, 200, 1)}, counts{left: 2, slow: 2}},
		{"cut off", none, [][]record.Event{begin, {{T: 5, Type: record.Partition, IDs: []policy.ID{1}}}, round(1, 100, 1), round(2, 200, 1)}, counts{left: 2, excused: 2}},
		{"healed a round ago", none, [][]record.Event{begin, {{T: 5, Type: record.Partition, IDs: []policy.ID{1}}, {T: 6, Type: record.Heal}}, round(1, 100, 1), round(2, 200, 1)},
			counts{left: 2, wrong: 1, excused: 1}},
		{"a link of its own changed", none, [][]record.Event{begin, {event(5, record.LinkFault)}, round(1, 100, 1)}, counts{left: 1, excused: 1}},
		{"crashed", none, [][]record.Event{begin, {event(5, record.Crash)}, round(1, 100, 1)}, counts{left: 1, excused: 1}},
		{"joining", none, [][]record.Event{begin[:2], {joined("w2", 50)}, round(1, 100, 2)}, counts{left: 1, excused: 1}},
	} {
		w := workOf(c.scenario, c.events...)
		if got := (counts{w.LeftOut, w.FalseSidelined, w.Excused, w.Slow, w.Missed}); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	w := record.Work{LeftOut: 5, FalseSidelined: 1, Excused: 1, Slow: 6, Missed: 3}
	if w.Judge(); *w.Precision != 0.75 || *w.Recall != 0.5 {
		t.Errorf("precision %v, recall %v", *w.Precision, *w.Recall)
	}
	w = record.Work{LeftOut: 1, Excused: 1}
	if w.Judge(); w.Precision != nil || w.Recall != nil {
		t.Error("there is a precision or a recall of nobody")
	}
}

// TestBooksByHand counts inner steps of records made by hand.
func TestBooksByHand(t *testing.T) {
	type books struct {
		done, lost, open int
		contributions    [3]int
		evicted          int
	}
	all := func(at policy.Time, n int) []record.Event {
		return slices.Concat(both("w0", at, n), both("w1", at, n), both("w2", at, n))
	}
	weighted := three()
	weighted.Policy.StalenessWeight = 0.5
	for _, c := range []struct {
		name     string
		scenario *scenarios.Scenario
		events   [][]record.Event
		want     books
	}{
		{"all contribute", three(), [][]record.Event{begin, all(10, 1), round(1, 100), all(120, 2), round(2, 200)}, books{12, 0, 0, [3]int{2, 2, 2}, 0}},
		{"under way at the end", three(), [][]record.Event{begin, all(10, 1), round(1, 100), {step("w0", 120, 2, 1)}}, books{7, 0, 1, [3]int{1, 1, 1}, 0}},
		{"left out", three(), [][]record.Event{begin, both("w0", 10, 1), both("w1", 10, 1), {step("w2", 50, 1, 1)}, round(1, 100, 2)}, books{5, 1, 0, [3]int{1, 1, 0}, 0}},
		{"left out, and then not", three(), [][]record.Event{begin, both("w0", 10, 1), both("w1", 10, 1), {step("w2", 50, 1, 1)}, round(1, 100, 2), all(120, 2), round(2, 200)},
			books{11, 1, 0, [3]int{2, 2, 1}, 0}},
		{"ready too late", three(), [][]record.Event{begin, both("w0", 10, 1), both("w1", 10, 1), round(1, 100, 2), both("w2", 105, 1)}, books{6, 2, 0, [3]int{1, 1, 0}, 0}},
		{"ready too late, and added later", weighted, [][]record.Event{begin, both("w0", 10, 1), both("w1", 10, 1), round(1, 100, 2), both("w2", 105, 1), all(120, 2), round(2, 200)},
			books{12, 0, 0, [3]int{2, 2, 1}, 0}},
		{"ready too late, and never added", weighted, [][]record.Event{begin, both("w0", 10, 1), both("w1", 10, 1), round(1, 100, 2), both("w2", 105, 1), evicted("w2", 130, policy.RuleHeartbeat)},
			books{6, 2, 0, [3]int{1, 1, 0}, 1}},
		{"reported after the outer step", three(), [][]record.Event{begin, both("w0", 10, 1), both("w1", 10, 1), {step("w2", 50, 1, 1)}, round(1, 100), {step("w2", 60, 1, 2)}, all(120, 2)},
			books{12, 0, 6, [3]int{1, 1, 1}, 0}},
		{"evicted in the middle", three(), [][]record.Event{begin, all(10, 1), evicted("w2", 50, policy.RuleStraggler), round(1, 100, 2), {step("w2", 55, 1, 2)}}, books{7, 3, 0, [3]int{1, 1, 0}, 1}},
		{"evicted for good reason", three(), [][]record.Event{begin, {{T: 5, Type: record.Crash, Node: "w2"}}, round(1, 100, 2), round(2, 200, 2), evicted("w2", 250, policy.RuleHeartbeat)},
			books{0, 0, 0, [3]int{2, 2, 0}, 0}},
		{"left of its own will", three(), [][]record.Event{begin, evicted("w2", 50, policy.RuleLeave)}, books{0, 0, 0, [3]int{}, 0}},
		{"contributes zeros", three(), [][]record.Event{begin, both("w0", 10, 1), both("w1", 10, 1), {{T: 60, Type: record.ReduceStart, Round: 1, Zero: []policy.ID{2}}}, round(1, 100)},
			books{4, 0, 0, [3]int{1, 1, 0}, 0}},
		{"begins anew where all did", three(), [][]record.Event{begin, all(10, 1), round(1, 100), evicted("w2", 110, policy.RuleReplaced), {{T: 110, Type: record.Join, Node: "w2", Round: 2, Incarnation: 1}}, both("w2", 120, 1)},
			books{8, 2, 0, [3]int{1, 1, 1}, 1}},
		{"resumed from a checkpoint", three(), [][]record.Event{begin, all(10, 1), round(1, 100), all(120, 2), round(2, 200), all(220, 3), round(3, 300), {step("w0", 320, 4, 1)},
			{{T: 400, Type: record.RunResume, Round: 1, IDs: []policy.ID{0, 1, 2}}}, all(410, 2), round(2, 500)},
			books{25, 13, 0, [3]int{2, 2, 2}, 0}},
	} {
		w := workOf(c.scenario, c.events...)
		got := books{w.StepsDone, w.StepsLost, w.StepsOpen, [3]int{w.Contributions[0], w.Contributions[1], w.Contributions[2]}, w.FalseEvicted}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestClassesAreHeardOrNot: rounds of an evicted worker count, those of one that
// has left do not.
func TestClassesAreHeardOrNot(t *testing.T) {
	s := three()
	s.Work = &work.Spec{Classes: []work.Class{{Name: "fast", IDs: []policy.ID{0}, Factor: 1}, {Name: "slow", IDs: []policy.ID{1, 2}, Factor: 2}}}
	w := workOf(s, begin, round(1, 100), round(2, 200, 2), evicted("w2", 210, policy.RuleStraggler), round(3, 300, 2),
		[]record.Event{{T: 310, Type: record.Leave, Node: "w1"}}, round(4, 400, 1, 2))
	want := []record.ClassWork{{Name: "fast", Rounds: 4, Heard: 4, Share: 1}, {Name: "slow", Rounds: 7, Heard: 4, Share: 4.0 / 7}}
	if diff := cmp.Diff(want, w.Classes); diff != "" {
		t.Error(diff)
	}
}

// TestTheBooksBalance: over random runs, what was done was contributed, lost, or
// is open; and it is what a recount of the whole record comes to.
func TestTheBooksBalance(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		s := randscenario.Draw(t)
		name := rapid.SampledFrom(policy.Names()).Draw(t, "policy")
		var events []record.Event
		sum, err := experiment.OnChurn(s, name, func(e record.Event) { events = append(events, e) })
		if err != nil {
			t.Fatal(err)
		}
		w := sum.Work
		type turn struct {
			node  string
			round int
		}
		done, steps, gone := 0, map[turn]int{}, map[string]bool{}
		contributed, contributions := 0, map[policy.ID]int{}
		var zero []policy.ID
		for _, e := range events {
			switch e.Type {
			case record.Step:
				if done++; !gone[e.Node] {
					steps[turn{e.Node, e.Round}]++
				}
			case record.Join:
				gone[e.Node] = false
			case record.Evict: // another incarnation may come back in the same round
				gone[e.Node] = true
				maps.DeleteFunc(steps, func(k turn, _ int) bool { return k.node == e.Node })
			case record.ReduceStart:
				zero = e.Zero
			case record.OuterStep:
				for _, id := range e.Participants {
					if !slices.Contains(zero, id) {
						contributed += steps[turn{id.Node(), e.Round}]
						contributions[id]++
					}
				}
			}
		}
		maps.DeleteFunc(w.Contributions, func(_ policy.ID, n int) bool { return n == 0 })
		if len(sum.Diverged) > 0 { // only one lineage's contributions count
			contributed, contributions = w.StepsDone-w.StepsLost-w.StepsOpen, w.Contributions
		}
		if w.StepsDone != done || w.StepsDone != contributed+w.StepsLost+w.StepsOpen || !maps.Equal(w.Contributions, contributions) {
			t.Fatalf("%+v\nrecounted: %d done, %d contributed, %v", w, done, contributed, contributions)
		}
		if w.StepsOpen < 0 || w.StepsLost < 0 || w.Missed > w.Slow || w.FalseSidelined+w.Excused > w.LeftOut || w.FalseEvicted > len(sum.Evicted) {
			t.Fatalf("%+v", w)
		}
	})
}
