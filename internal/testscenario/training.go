package testscenario

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"testbed/record"
	"testbed/scenarios/resolved"
	"testbed/train/replay"
)

// CheckTraining compares the outer states and the losses in a record with those
// computed from it, which must be the same, bit by bit. It names every
// difference.
func CheckTraining(s *resolved.Scenario, events []record.Event) error {
	t, err := replay.New(s)
	if err != nil {
		return err
	}
	defer t.Close()
	var problems []error
	states, losses := map[int]record.Event{}, map[int]float64{}
	contributions := map[string]*record.Contribution{} // by round and worker
	about := func(e *record.Event) string {
		return fmt.Sprintf("the contribution of %s to outer step %d", e.Node, e.Round)
	}
	// Workers' reports may come before the outer step that they are about: workers
	// and the coordinator do not wait for each other.
	var early []record.Event
	settle := func(e record.Event) (known bool) {
		if e.Type == record.Validated {
			loss, known := losses[e.Round]
			if known && (e.Loss == nil || *e.Loss != loss) {
				problems = append(problems, fmt.Errorf("outer step %d: the recorded validation loss differs from %v, the loss in a replay of the record", e.Round, loss))
			}
			return known
		}
		c, known := contributions[about(&e)]
		if known && !reflect.DeepEqual(e.Contribution, c) {
			problems = append(problems, fmt.Errorf("%s is recorded as %+v, but a replay of the record gives %+v", about(&e), e.Contribution, c))
		}
		return known
	}
	for _, e := range events {
		told := e.Loss
		computed, err := t.Add(&e)
		if err != nil {
			return err
		}
		for _, k := range computed {
			switch k.Type {
			case record.State:
				states[k.Round] = k
			case record.Contributed:
				contributions[about(&k)] = k.Contribution
			default:
				losses[k.Round] = *k.Loss
			}
		}
		switch {
		case e.Type == record.State && e.Hash != states[e.Round].Hash:
			problems = append(problems, fmt.Errorf("outer step %d: the recorded state has the hash %s, but a replay of the record gives %s", e.Round, e.Hash, states[e.Round].Hash))
		case e.Type == record.State:
			for _, r := range e.Regions { // no worker may be left to report some
				if hash := hashOf(states[e.Round].Regions, r.Region); r.Hash != hash {
					problems = append(problems, fmt.Errorf("region %s, outer step %d: the recorded state has the hash %s, but a replay of the record gives %s", r.Region, e.Round, r.Hash, hash))
				}
			}
		case e.Type == record.Validated || e.Type == record.Contributed:
			e.Loss = told
			early = append(early, e)
		case e.Type == record.RunResume: // later events are undone
			early = slices.DeleteFunc(early, func(w record.Event) bool { return w.Round > e.Round })
		case e.Type == record.Step && (told == nil) != (e.Loss == nil) || e.Type == record.Step && told != nil && *told != *e.Loss:
			problems = append(problems, fmt.Errorf("step %d of %s in round %d: the recorded loss differs from the loss in a replay of the record", e.Step, e.Node, e.Round))
		}
		early = slices.DeleteFunc(early, settle)
	}
	for _, e := range early {
		problems = append(problems, fmt.Errorf("%s of %s in round %d: a replay of the record does not give this event", e.Type, e.Node, e.Round))
	}
	return errors.Join(problems...)
}

// hashOf is the hash of a region, or empty.
func hashOf(of []record.RegionHash, region string) string {
	for _, r := range of {
		if r.Region == region {
			return r.Hash
		}
	}
	return ""
}
