package replay

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"testbed/allreduce"
	"testbed/allreduce/reduction"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios/resolved"
	"testbed/train/task"
)

// Matters reports whether the training of a run may depend on an event.
func Matters(e *record.Event) bool {
	switch e.Type {
	case record.Join, record.Evict, record.Step, record.ReduceStart, record.OuterStep, record.Merge, record.FetchDone, record.RunResume, record.Diverged:
		return true
	}
	return false
}

// Key identifies the training of a run: runs with equal keys have the same
// outer states, bit by bit, and the same losses in their rounds, regardless of
// times and of the policy. events are those that matter.
func Key(s *resolved.Scenario, events []record.Event) ([sha256.Size]byte, error) {
	// Times, and the policy, do not matter.
	what := struct {
		Seed            uint64
		Workers         []resolved.Worker // their ids and initial steps
		InnerSteps      int
		Parameters      int
		Train           *task.Spec
		Grouping        *policy.Grouping
		Reduction       reduction.Spec
		LinkGroups      []int // of the hierarchical algorithm
		StalenessWeight float64
		Measured        bool
		CheckpointEvery int
	}{s.Seed, slices.Clone(s.Workers), s.InnerSteps, s.Parameters, s.Train, s.Grouping, s.Reduction, nil, s.StalenessWeight, s.Measured, s.CheckpointEvery}
	for i, w := range s.Workers {
		what.Workers[i] = resolved.Worker{ID: w.ID, InitialStep: w.InitialStep}
	}
	if s.Reduction.Algorithm == allreduce.Hierarchical.String() {
		what.LinkGroups = s.LinkGroups
	}
	hash := sha256.New()
	enc := json.NewEncoder(hash)
	if err := enc.Encode(what); err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("computing the key of a run's training: %w", err)
	}
	var ended []record.Event // inner steps of whole rounds: their order does not matter
	tell := func() error {
		slices.SortStableFunc(ended, func(a, b record.Event) int { return cmp.Compare(a.Node, b.Node) })
		for i := range ended {
			if err := enc.Encode(&ended[i]); err != nil {
				return err
			}
		}
		ended = ended[:0]
		return nil
	}
	for _, e := range events {
		plain := e
		plain.T, plain.Seq, plain.Duration, plain.ClockError, plain.Loss, plain.Reason, plain.Epoch = 0, 0, 0, 0, nil, nil, 0
		if e.Ring != nil {
			plain.Ring = &record.Ring{Order: slices.Clone(e.Ring.Order)}
		}
		if e.Type == record.Step && s.Exchange.Plain() {
			if e.Step == s.InnerSteps { // others leave no trace
				ended = append(ended, plain)
			}
			continue
		}
		if err := tell(); err != nil {
			return [sha256.Size]byte{}, fmt.Errorf("computing the key of a run's training: %w", err)
		}
		if err := enc.Encode(&plain); err != nil {
			return [sha256.Size]byte{}, fmt.Errorf("computing the key of a run's training: %w", err)
		}
	}
	return [sha256.Size]byte(hash.Sum(nil)), nil
}
