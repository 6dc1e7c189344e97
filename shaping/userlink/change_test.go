package userlink_test

import (
	"math"
	"slices"
	"testing"

	"testbed/shaping"
	"testbed/shaping/userlink"
)

func TestAChangeKeepsWhatIsUnderWay(t *testing.T) {
	base := plan(1, shaping.PathPlan{OneWayDelay: shaping.Duration(10 * ms)}, "a", "b", "c")
	q := userlink.NewQueue[string](base, 2)
	q.Push(0, 0, 1, 100, "a→b")
	q.Push(0, 1, 0, 100, "b→a")
	slow, err := shaping.Compose(base, []shaping.Fault{
		shaping.PathChange{From: "a", To: "b", Path: shaping.Path{OneWayDelay: new(shaping.Duration(50 * ms))}},
		shaping.Cut{Paths: []shaping.Direction{{From: "b", To: "a"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if lost := q.Change(slow, 3); !slices.Equal(lost, []string{"b→a"}) {
		t.Errorf("a cut from b to a lost %v", lost)
	}
	if fate := q.Push(2*ms, 1, 0, 100, "b→a again"); fate != userlink.Lost {
		t.Errorf("a cut path gives the fate %d", fate)
	}
	q.Push(1*ms, 0, 1, 100, "a→b again")
	q.Push(2*ms, 0, 2, 100, "a→c")
	if fate := q.Push(2*ms, 0, 2, 100, "a→c again"); fate != userlink.Overflow {
		t.Errorf("a fourth packet in a queue for three: fate %d", fate)
	}
	want := []struct {
		item string
		due  int
	}{{"a→b", 10}, {"a→c", 12}, {"a→b again", 51}}
	for _, w := range want {
		if item, _, due, ok := q.Pop(math.MaxInt64); !ok || item != w.item || int(due/ms) != w.due {
			t.Errorf("%q came out at %v, %v; want %q at %d ms", item, due, ok, w.item, w.due)
		}
	}
}

// TestACutDoesNotShiftThePattern: packets that a cut loses are counted, so
// that those after it meet the fate that their number has.
func TestACutDoesNotShiftThePattern(t *testing.T) {
	const n = 300
	base := plan(1, rough, "a", "b")
	want := pattern(base, 0, 1, n)
	cut, err := shaping.Compose(base, []shaping.Fault{shaping.Partition{Nodes: []string{"a"}}})
	if err != nil {
		t.Fatal(err)
	}
	q := userlink.NewQueue[int](base, n)
	for i := range n {
		switch i {
		case 100:
			q.Change(cut, n)
		case 200:
			q.Change(base, n)
		}
		fate := q.Push(0, 0, 1, 100, i)
		if lost := want[i] < 0 || i >= 100 && i < 200; lost != (fate == userlink.Lost) {
			t.Fatalf("packet %d has the fate %d", i, fate)
		}
	}
}
