package replay

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"testbed/allreduce"
	"testbed/record"
	"testbed/scenarios"
	"testbed/shaping"
)

// Matters reports whether the training of a run may depend on an event.
func Matters(e *record.Event) bool {
	switch e.Type {
	case record.Join, record.Evict, record.Step, record.ReduceStart, record.OuterStep, record.Merge, record.FetchDone, record.RunResume, record.Diverged:
		return true
	}
	return false
}

// Key names what a run trains: runs of equal keys lead to the same outer states,
// bit by bit, and the same losses in their rounds, whenever all that happened and
// whoever decided it. events are those that matter.
func Key(s *scenarios.Scenario, events []record.Event) ([sha256.Size]byte, error) {
	// What is timed, and who decides, does not matter. All else may.
	what := *s.Plain()
	what.Name, what.Description, what.Work = "", "", nil
	what.TargetOuterSteps, what.Horizon, what.Injects = 0, 0, nil
	what.HeartbeatPeriod, what.HeartbeatMissThreshold = 0, 0
	what.BaseLatency, what.BandwidthBpus, what.StateBytes = 0, 0, 0
	what.Policy.Parameters, what.Real.Injects, what.Real.Dilation = nil, nil, 0
	if s.Real.AllReduce.Algorithm != allreduce.Hierarchical.String() && s.Grouping() == nil { // whose groups are in it
		what.Real.Links = shaping.Spec{}
	}
	what.Workers = slices.Clone(s.Workers)
	for i, w := range s.Workers {
		what.Workers[i] = scenarios.Worker{ID: w.ID, InitialStep: w.InitialStep}
	}
	exchange := s.Exchange()
	hash := sha256.New()
	enc := json.NewEncoder(hash)
	if err := enc.Encode(what); err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("naming what a run trains: %w", err)
	}
	if s.Train != nil {
		hash.Write(s.Train.Corpus) // Plain leaves it to the file
	}
	var ended []record.Event // inner steps of whole rounds: who was first does not matter
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
		if e.Type == record.Step && exchange.Plain() {
			if e.Step == s.InnerSteps { // others leave no trace
				ended = append(ended, plain)
			}
			continue
		}
		if err := tell(); err != nil {
			return [sha256.Size]byte{}, fmt.Errorf("naming what a run trains: %w", err)
		}
		if err := enc.Encode(&plain); err != nil {
			return [sha256.Size]byte{}, fmt.Errorf("naming what a run trains: %w", err)
		}
	}
	return [sha256.Size]byte(hash.Sum(nil)), nil
}
