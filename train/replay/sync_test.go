package replay_test

import (
	"math"
	"testing"

	"testbed/internal/testscenario"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/train/replay"
	"testbed/train/task"
)

// TestRepeated computes a mean by hand: a donor counts once more for each worker that
// has healed from it, and all count in the denominator.
func TestRepeated(t *testing.T) {
	s, err := scenarios.Load("homogeneous")
	if err != nil {
		t.Fatal(err)
	}
	s.InnerSteps, s.Real.Parameters, s.Real.AllReduce.Bits = 1, 100, 32
	s.Train = &task.Spec{Outer: task.Outer{Rate: new(1.0), Momentum: new(0.0)}} // the outer step is the mean
	after := func(in, zero []policy.ID, repeated ...policy.Repeat) []float32 {
		t.Helper()
		l, err := replay.New(testscenario.Resolve(t, s, ""))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		var events []record.Event
		for _, w := range s.Workers {
			events = append(events, record.Event{Type: record.Join, Node: w.ID.Node(), Round: 1})
		}
		for _, w := range s.Workers {
			events = append(events, record.Event{Type: record.Step, Node: w.ID.Node(), Round: 1, Step: 1})
		}
		events = append(events, record.Event{Type: record.ReduceStart, Round: 1, Epoch: 1, Participants: in, Zero: zero, Repeated: repeated},
			record.Event{Type: record.OuterStep, Round: 1, Epoch: 1, Participants: in})
		for _, e := range events {
			if _, err := l.Add(&e); err != nil {
				t.Fatal(err)
			}
		}
		_, parameters := l.State()
		return parameters
	}
	own := [][]float32{after([]policy.ID{0}, nil), after([]policy.ID{1}, nil)}
	start := make([]float32, len(own[0]))
	if l, err := replay.New(testscenario.Resolve(t, s, "")); err != nil {
		t.Fatal(err)
	} else {
		_, p := l.State()
		copy(start, p)
		l.Close()
	}
	for _, c := range []struct {
		what        string
		in, zero    []policy.ID
		repeated    []policy.Repeat
		times       [2]float64
		denominator float64
	}{
		{"zeros", []policy.ID{0, 1, 2}, []policy.ID{2}, nil, [2]float64{1, 1}, 3},
		{"w2 as w0", []policy.ID{0, 1, 2}, []policy.ID{2}, []policy.Repeat{{ID: 2, Donor: 0}}, [2]float64{2, 1}, 3},
		{"w2 as w1", []policy.ID{0, 1, 2}, []policy.ID{2}, []policy.Repeat{{ID: 2, Donor: 1}}, [2]float64{1, 2}, 3},
		{"w2 and w3 as w0", []policy.ID{0, 1, 2, 3}, []policy.ID{2, 3}, []policy.Repeat{{ID: 2, Donor: 0}, {ID: 3, Donor: 0}}, [2]float64{3, 1}, 4},
		{"w1, w2 and w3 as w0", []policy.ID{0, 1, 2, 3}, []policy.ID{1, 2, 3}, []policy.Repeat{{ID: 1, Donor: 0}, {ID: 2, Donor: 0}, {ID: 3, Donor: 0}}, [2]float64{4, 0}, 4},
	} {
		moved, far := after(c.in, c.zero, c.repeated...), 0.0
		for i, x := range moved {
			want := float64(start[i])
			for k, n := range c.times {
				want += n * float64(own[k][i]-start[i]) / c.denominator
			}
			far = max(far, math.Abs(want-float64(start[i])))
			if math.Abs(float64(x)-want) > 1e-5 {
				t.Fatalf("%s: parameter %d is %v, want %v", c.what, i, x, want)
			}
		}
		if far < 1e-3 {
			t.Errorf("%s: no parameter moves by more than %v, so nothing is tested", c.what, far)
		}
	}
}
