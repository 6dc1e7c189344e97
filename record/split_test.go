package record

import (
	"testing"

	"testbed/policy"
)

// TestSplit by hand: in round 1 the second worker is the last; round 2 waits for
// a worker that does not come, and one that takes part has fetched before.
func TestSplit(t *testing.T) {
	s := NewSummarizer(Setup{})
	both := []policy.ID{0, 1}
	for _, e := range []Event{
		{T: 0, Type: Join, Node: "w0"}, {T: 0, Type: Join, Node: "w1"}, {T: 0, Type: Join, Node: "w2"},
		{T: 1010, Type: Step, Node: "w0", Round: 1, Duration: 1000},
		{T: 1020, Type: Arrive, Node: "w0", Round: 1},
		{T: 1510, Type: Step, Node: "w1", Round: 1, Duration: 1500},
		{T: 1520, Type: Arrive, Node: "w1", Round: 1},
		{T: 1520, Type: RoundClose, Round: 1, Participants: both}, {T: 1520, Type: ReduceStart, Round: 1},
		{T: 1700, Type: ReduceDone, Round: 1, Duration: 160}, {T: 1700, Type: OuterStep, Round: 1, Participants: both},
		{T: 1700, Type: FetchStart, Node: "w1", Round: 2}, {T: 1800, Type: FetchDone, Node: "w1", Round: 2},
		{T: 2700, Type: Step, Node: "w0", Round: 2, Duration: 990}, {T: 2710, Type: Arrive, Node: "w0", Round: 2},
		{T: 2810, Type: Step, Node: "w1", Round: 2, Duration: 1000}, {T: 2820, Type: Arrive, Node: "w1", Round: 2},
		{T: 3000, Type: RoundClose, Round: 2, Participants: both}, {T: 3000, Type: ReduceStart, Round: 2},
		{T: 3010, Type: ReduceAbort, Round: 2}, {T: 3030, Type: ReduceStart, Round: 2},
		{T: 3200, Type: ReduceDone, Round: 2, Duration: 150}, {T: 3200, Type: OuterStep, Round: 2, Participants: both},
	} {
		s.Add(&e)
	}
	sum := s.Summary()
	want := Split{Compute: 1500 + 1000, Transfer: 160 + 150, Control: 20 + 20 + 20 + 20, StateFetch: 100, Deadline: 210}
	if sum.Split != want {
		t.Errorf("split %+v, want %+v", sum.Split, want)
	}
	d := sum.Split
	if total := d.Compute + d.Transfer + d.Control + d.StateFetch + d.Deadline; total != sum.WallClock {
		t.Errorf("the parts make %d µs of %d", total, sum.WallClock)
	}
	if (d.Minus(d) != Split{}) {
		t.Error("no difference is one")
	}
}

// TestStepsThatWereUndoneAreNoCompute: the round is played again after a
// restart, within 1,200 µs.
func TestStepsThatWereUndoneAreNoCompute(t *testing.T) {
	s := NewSummarizer(Setup{})
	for _, e := range []Event{
		{T: 0, Type: Join, Node: "w0"},
		{T: 1000, Type: Step, Node: "w0", Round: 1, Duration: 1000},
		{T: 5000, Type: RunResume, Round: 0},
		{T: 6100, Type: Step, Node: "w0", Round: 1, Duration: 1000}, {T: 6200, Type: Arrive, Node: "w0", Round: 1},
		{T: 6200, Type: RoundClose, Round: 1, Participants: []policy.ID{0}}, {T: 6200, Type: ReduceStart, Round: 1},
		{T: 6200, Type: OuterStep, Round: 1, Participants: []policy.ID{0}},
	} {
		s.Add(&e)
	}
	if want := (Split{Compute: 1000, Control: 200}); s.Summary().Split != want {
		t.Errorf("split %+v, want %+v", s.Summary().Split, want)
	}
}
