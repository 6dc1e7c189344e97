package experiment

import (
	"errors"
	"fmt"
	"os"

	"testbed/runlog"
	"testbed/scenarios"
	"testbed/train/lesson"
)

// Trained returns a simulator that also plays what the run learns, so that its
// events and its result have the outer states' hashes, and losses where
// something real is trained. The model is written to the file, if one is named.
func (play Simulator) Trained(model string) Simulator {
	return func(s *scenarios.Scenario, policyName string, record func(runlog.Event)) (runlog.Summary, error) {
		l, err := lesson.New(s)
		if err != nil {
			return runlog.Summary{}, err
		}
		learnt := runlog.NewLearnt(s)
		var failed error
		sum, err := play(s, policyName, func(e runlog.Event) {
			if failed != nil {
				return
			}
			var more []runlog.Event
			more, failed = l.Add(&e)
			for _, e := range append([]runlog.Event{e}, more...) {
				learnt.Add(&e)
				if record != nil {
					record(e)
				}
			}
		})
		if err == nil {
			err = failed
		}
		learnt.Into(&sum)
		if err == nil && model != "" {
			err = keep(s, l, model)
		}
		return sum, err
	}
}

// keep writes what was learnt to a file.
func keep(s *scenarios.Scenario, l *lesson.Lesson, file string) error {
	if !s.Train.Real() {
		return &scenarios.Error{Field: "model", Problem: "the scenario trains none; give it the section train with a task, charlm for example"}
	}
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("writing the model: %w", err)
	}
	return errors.Join(s.Train.NewTrained(l.State()).Write(f), f.Close())
}
