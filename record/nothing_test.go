package record_test

import (
	"slices"
	"testing"

	"testbed/policy"
	"testbed/record"
)

// TestContributedNothing: a worker that hands no parameters over contributes zeros, and the
// summary says so; a joiner that has done no steps in its first round does not count.
func TestContributedNothing(t *testing.T) {
	s := record.NewSummarizer(record.Setup{Workers: []policy.ID{0, 1, 2, 3}, InnerSteps: 1})
	gives := func(round int, node string, norm float64) record.Event {
		return record.Event{Type: record.Contributed, Round: round, Node: node, Contribution: &record.Contribution{Norm: norm}}
	}
	for _, e := range []record.Event{
		{Type: record.RunStart, Run: &record.Run{}}, {Type: record.Join, Node: "w0", Round: 1},
		{Type: record.ReduceStart, Round: 1, Participants: []policy.ID{0, 1, 2, 3}, Zero: []policy.ID{2}},
		gives(1, "w0", 2), gives(1, "w1", 0), gives(1, "w2", 0), gives(1, "w3", 0), gives(2, "w1", 0), gives(2, "w3", 1),
	} {
		s.Add(&e)
	}
	if sum := s.Summary(); !slices.Equal(sum.ContributedNothing, []policy.ID{1}) {
		t.Errorf("contributed nothing: %v, want w1", sum.ContributedNothing)
	}
}
