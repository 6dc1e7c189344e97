package record_test

import (
	"slices"
	"testing"

	"testbed/policy"
	"testbed/record"
)

// TestTracker follows two workers through a round in which one of them suffers
// everything.
func TestTracker(t *testing.T) {
	var run record.Tracker
	add := func(want []record.Change, e record.Event) {
		t.Helper()
		if got := run.Add(&e); !slices.Equal(got, want) {
			t.Errorf("%s at %d changes %+v, want %+v", e.Type, e.T, got, want)
		}
	}
	begins := func(c record.Condition) []record.Change { return []record.Change{{ID: 1, Condition: c, Begins: true}} }
	ends := func(c record.Condition) []record.Change { return []record.Change{{ID: 1, Condition: c}} }
	add(nil, record.Event{T: 5, Type: record.Join, Node: "w0", Round: 1})
	add(nil, record.Event{T: 7, Type: record.Join, Node: "w1", Round: 1})
	add(begins(record.Slowed), record.Event{T: 8, Type: record.Slow, Node: "w1", Factor: 2})
	add([]record.Change{{ID: 1, Condition: record.Slowed}, {ID: 1, Condition: record.Slowed, Begins: true}}, record.Event{T: 9, Type: record.Slow, Node: "w1", Factor: 3})
	add(begins(record.CutOff), record.Event{T: 10, Type: record.Partition, IDs: []policy.ID{1}})
	add(nil, record.Event{T: 11, Type: record.Partition, IDs: []policy.ID{1}})
	add(nil, record.Event{T: 12, Type: record.Heal, IDs: []policy.ID{0}})
	add(ends(record.CutOff), record.Event{T: 13, Type: record.Heal})
	add(begins(record.Paused), record.Event{T: 14, Type: record.Pause, Node: "w1"})
	add(ends(record.Paused), record.Event{T: 15, Type: record.Resume, Node: "w1"})
	add(nil, record.Event{T: 16, Type: record.FetchStart, Node: "w1", Round: 1, From: "w0"})
	add(nil, record.Event{T: 17, Type: record.FetchStart, Node: "w1", Round: 1, From: "w0"})
	if w := run.Worker(1); len(w.Fetch) != 2 || w.Fetch[0].T != 16 {
		t.Errorf("the fetch under way is %+v", w.Fetch)
	}
	add(nil, record.Event{T: 20, Type: record.FetchDone, Node: "w1", Round: 1})
	add(nil, record.Event{T: 30, Type: record.Step, Node: "w1", Round: 1, Duration: 6})
	add(nil, record.Event{T: 31, Type: record.Step, Node: "w1", Round: 2, Duration: 6}) // of another round
	add(nil, record.Event{T: 32, Type: record.Arrive, Node: "w1", Round: 1})
	if w := run.Worker(1); w.Fetch != nil || w.Fetched != 4 || w.Busy != 6 || w.Stepped != 31 || !w.Arrived || w.Arrival != 32 || !w.Member || w.Joined != 7 {
		t.Errorf("before the outer step: %+v", w)
	}
	add(begins(record.Dead), record.Event{T: 33, Type: record.Crash, Node: "w1"})
	add(nil, record.Event{T: 34, Type: record.ReduceStart, Round: 1, Epoch: 4, Participants: []policy.ID{0}})
	add(nil, record.Event{T: 35, Type: record.Evict, Node: "w1", Round: 1})
	add(nil, record.Event{T: 40, Type: record.OuterStep, Round: 1, Participants: []policy.ID{0}})
	w := run.Worker(1)
	if w.Busy != 0 || w.Fetched != 0 || w.Arrived || w.Member || !w.Evicted || w.Left != 35 || !w.Holds(record.Dead) || !w.Holds(record.Slowed) {
		t.Errorf("after the outer step: %+v", w)
	}
	if run.Round != 2 || run.Start != 40 || run.First != 5 || run.Reduction.Epoch != 4 {
		t.Errorf("round %d since %d, first join %d, epoch %d", run.Round, run.Start, run.First, run.Reduction.Epoch)
	}
	add(ends(record.Dead), record.Event{T: 41, Type: record.Restart, Node: "w1", Incarnation: 1})
	add(nil, record.Event{T: 42, Type: record.Join, Node: "w1", Round: 2, Incarnation: 1})
	if w := run.Worker(1); !w.Member || w.Joined != 42 || run.Start != 40 {
		t.Errorf("back again: %+v", w)
	}
	if far := run.Worker(-1); far.Member || run.Worker(-1) == far {
		t.Error("there is a worker of no ID")
	}
}
