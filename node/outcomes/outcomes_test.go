package outcomes

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"testbed/policy"
	"testbed/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestTwoAtOnce: two reductions for the same outer step, of different workers, are
// each compared among themselves.
func TestTwoAtOnce(t *testing.T) {
	b := New(nil, true)
	b.Begin(1)
	b.Begin(2)
	for id := range policy.ID(4) {
		epoch := policy.Epoch(1 + id/2)
		if !b.Reduced(epoch, id, Reduced{Hash: []string{"", "a", "b"}[epoch], Bytes: 10, Took: time.Duration(id)}) {
			t.Fatalf("what w%d has is not taken", id)
		}
	}
	if b.Reduced(3, 0, Reduced{}) {
		t.Error("a reduction that nobody began is taken")
	}
	first := b.Step(5, &policy.OuterStep{Round: 7, Epoch: 1, Participants: []policy.ID{0, 1}}, func(d time.Duration) policy.Time { return policy.Time(d) })
	second := b.Step(6, &policy.OuterStep{Round: 7, Epoch: 2, Participants: []policy.ID{2, 3}}, func(d time.Duration) policy.Time { return policy.Time(d) })
	same := true
	want := []record.Event{
		{T: 5, Type: record.ReduceDone, Round: 7, Epoch: 1, Participants: []policy.ID{0, 1}, Duration: 1, BytesSent: 20, Hash: "a", Identical: &same},
		{T: 6, Type: record.ReduceDone, Round: 7, Epoch: 2, Participants: []policy.ID{2, 3}, Duration: 3, BytesSent: 20, Hash: "b", Identical: &same},
	}
	if diff := cmp.Diff(want, []record.Event{first, second}); diff != "" {
		t.Error(diff)
	}
	nobody := func(policy.ID) bool { return false }
	for id := range policy.ID(3) {
		b.Stepped(id, Stepped{OuterSteps: 7, Hash: "s" + string(rune('0'+id/2)), Loss: 1})
	}
	if b.Stepped(3, Stepped{OuterSteps: 8}) {
		t.Error("a state of no outer step is taken")
	}
	told := b.Compare(nobody)
	if len(told) != 1 || told[0].Hash != "s0" || !*told[0].Identical || !b.Waits() {
		t.Errorf("%+v; it waits: %t", told, b.Waits())
	}
	b.Forget(3)
	if told = b.Compare(nobody); len(told) != 1 || told[0].Hash != "s1" || b.Waits() {
		t.Errorf("%+v; it waits: %t", told, b.Waits())
	}
}

// TestWhatIsOver is not taken any more, and states that do not come are not waited
// for.
func TestWhatIsOver(t *testing.T) {
	b := New(nil, false)
	b.Begin(1)
	b.Abort(1)
	if b.Reduced(1, 0, Reduced{}) {
		t.Error("the outcome of an aborted reduction is taken")
	}
	b.Begin(2)
	b.Step(0, &policy.OuterStep{Round: 1, Epoch: 2, Participants: []policy.ID{0, 1}}, func(time.Duration) policy.Time { return 0 })
	b.Stepped(0, Stepped{OuterSteps: 1, Hash: "x"})
	told := b.Compare(func(id policy.ID) bool { return id == 1 })
	if len(told) != 1 || told[0].Loss != nil || len(told[0].Participants) != 1 {
		t.Errorf("%+v", told)
	}
	b.Begin(3)
	b.Step(0, &policy.OuterStep{Round: 2, Epoch: 3, Participants: []policy.ID{0, 1}}, func(time.Duration) policy.Time { return 0 })
	if b.Clear(); b.Waits() {
		t.Error("it waits for what is undone")
	}
}
