package lesson

import (
	"errors"
	"fmt"

	"testbed/runlog"
	"testbed/scenarios"
)

// Check holds the outer states and the losses in a record against those that it
// leads to, which have to be the same, bit by bit. It names every one that is
// not.
func Check(s *scenarios.Scenario, events []runlog.Event) error {
	l, err := New(s)
	if err != nil {
		return err
	}
	var problems []error
	hashes, losses := map[int]string{}, map[int]float64{}
	for _, e := range events {
		told := e.Loss
		learnt, err := l.Add(&e)
		if err != nil {
			return err
		}
		for _, k := range learnt {
			if k.Type == runlog.State {
				hashes[k.Round] = k.Hash
			} else {
				losses[k.Round] = *k.Loss
			}
		}
		switch {
		case e.Type == runlog.State && e.Hash != hashes[e.Round]:
			problems = append(problems, fmt.Errorf("the state after outer step %d has the hash %s; the record leads to %s", e.Round, e.Hash, hashes[e.Round]))
		case e.Type == runlog.Validated && (told == nil || *told != losses[e.Round]):
			problems = append(problems, fmt.Errorf("the state after outer step %d has another validation loss; the record leads to %v", e.Round, losses[e.Round]))
		case e.Type == runlog.Step && (told == nil) != (e.Loss == nil) || e.Type == runlog.Step && told != nil && *told != *e.Loss:
			problems = append(problems, fmt.Errorf("step %d of %s in round %d has another loss than the record leads to", e.Step, e.Node, e.Round))
		}
	}
	return errors.Join(problems...)
}
