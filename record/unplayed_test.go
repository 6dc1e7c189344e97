package record_test

import (
	"slices"
	"testing"

	"testbed/experiment"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/scenarios/faults"
)

// TestNeverHappened: what a scenario has happen after the end of the run is in the
// summary, and so is a worker that was to join and never did.
func TestNeverHappened(t *testing.T) {
	s, err := scenarios.Load("homogeneous")
	if err != nil {
		t.Fatal(err)
	}
	plain, err := experiment.OnChurn(s, "baseline", nil)
	if err != nil || len(plain.NeverHappened)+len(plain.NeverJoined) > 0 {
		t.Fatalf("%v, %q, %v", err, plain.NeverHappened, plain.NeverJoined)
	}
	one, late := policy.ID(1), plain.WallClock+1
	s.Injects = append(s.Injects, faults.Inject{Op: faults.Crash, ID: &one, At: late},
		faults.Inject{Op: faults.Partition, IDs: []policy.ID{0, 1}, At: late + 1})
	s.Workers[3].JoinAt = late + 2
	sum, err := experiment.OnChurn(s, "baseline", nil)
	if err != nil || !sum.Complete {
		t.Fatal(err, sum.Complete)
	}
	want := []string{"Crash w1 at", "Partition w0 w1 at", "join of w3 at"}
	if !slices.EqualFunc(sum.NeverHappened, want, func(got, want string) bool { return len(got) > len(want) && got[:len(want)] == want }) {
		t.Errorf("never happened: %q, want %q", sum.NeverHappened, want)
	}
}

// TestOnlyTheLivingDie: what is to happen to a worker that does not live then never
// happens, and the summary says so.
func TestOnlyTheLivingDie(t *testing.T) {
	s, err := scenarios.Load("late_join")
	if err != nil {
		t.Fatal(err)
	}
	last := &s.Workers[len(s.Workers)-1]
	first := s.Workers[0].ID
	s.Injects = append(s.Injects, faults.Inject{Op: faults.Crash, ID: &last.ID, At: 0}, faults.Inject{Op: faults.Crash, ID: &first, At: 1},
		faults.Inject{Op: faults.Leave, ID: &first, At: 2})
	sum, err := experiment.OnChurn(s, "baseline", nil)
	want := []string{last.ID.Node() + " at 0 µs (the node was not alive then)", "Leave w0 at 2 µs (the node was not alive then)"}
	if err != nil || len(sum.NeverHappened) != 2 || sum.NeverHappened[0] != "Crash "+want[0] || sum.NeverHappened[1] != want[1] {
		t.Errorf("%v: never happened: %q, want %q", err, sum.NeverHappened, want)
	}
}

// TestNeverJoined: a worker whose join nobody records though its time came, as when its
// program dies at its start, is in the summary.
func TestNeverJoined(t *testing.T) {
	ids, complete := []policy.ID{0, 1}, true
	setup := record.Setup{Workers: ids, InnerSteps: 1}
	for k := range ids {
		setup.Planned = append(setup.Planned, record.Planned{What: "join of " + ids[k].Node(), Joins: &ids[k]})
	}
	s := record.NewSummarizer(setup)
	for _, e := range []record.Event{{Type: record.RunStart, Run: &record.Run{}}, {Type: record.Absent, Node: "w1"}, {Type: record.Join, Node: "w0", Round: 1}} {
		s.Add(&e)
	}
	if sum := s.Summary(); len(sum.NeverJoined) > 0 {
		t.Errorf("while the run goes on: %v", sum.NeverJoined)
	}
	s.Add(&record.Event{T: 10, Type: record.RunEnd, Complete: &complete})
	if sum := s.Summary(); !slices.Equal(sum.NeverJoined, ids[1:]) || len(sum.NeverHappened) > 0 {
		t.Errorf("never joined: %v, never happened: %q", sum.NeverJoined, sum.NeverHappened)
	}
}
