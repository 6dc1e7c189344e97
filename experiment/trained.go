package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"testbed/internal/nice"
	"testbed/record"
	"testbed/scenarios"
	"testbed/train/program/launch"
	"testbed/train/replay"
)

// Trained returns a simulator that also plays what the run learns, so that its
// events and its result have the outer states' hashes, and losses where
// something real is trained. The model is written to the file, if one is named. It
// ends early with ctx.
func (play Simulator) Trained(ctx context.Context, model string) Simulator {
	return func(s *scenarios.Scenario, policyName string, note func(record.Event)) (sum record.Summary, err error) {
		err = launch.With(ctx, s, func(s *scenarios.Scenario) error {
			sum, err = play.train(ctx, s, policyName, note, model)
			return err
		})
		return sum, err
	}
}

func (play Simulator) train(ctx context.Context, s *scenarios.Scenario, policyName string, note func(record.Event), model string) (record.Summary, error) {
	l, err := newPupil(s)
	if err != nil {
		return record.Summary{}, err
	}
	defer l.lesson.Close()
	var failed error
	sum, err := play(s, policyName, func(e record.Event) {
		if failed == nil {
			failed = ctx.Err()
		}
		if failed == nil {
			failed = l.add(e, note)
		}
	})
	if err == nil {
		err = failed
	}
	l.learnt.Complete(&sum)
	if err == nil && model != "" {
		err = keep(s, l.lesson, model)
	}
	return sum, err
}

// pupil gathers what a simulated run learns.
type pupil struct {
	lesson *replay.Lesson
	learnt *record.Training
}

func newPupil(s *scenarios.Scenario) (*pupil, error) {
	l, err := replay.New(s)
	return &pupil{l, record.NewTraining(s.Train.TokensPerStep())}, err
}

// add takes the next event, and tells record of it and of what comes of it.
func (p *pupil) add(e record.Event, note func(record.Event)) error {
	more, err := p.lesson.Add(&e)
	for _, e := range append([]record.Event{e}, more...) {
		p.learnt.Add(&e)
		if note != nil {
			note(e)
		}
	}
	return err
}

// TrainedOnce returns a simulator whose results have what the runs learn, as that
// of Trained has. What several runs learn alike is computed once, on a thread of
// the lowest priority. It is safe for concurrent use, and ends early with ctx.
func (play Simulator) TrainedOnce(ctx context.Context) Simulator {
	var mutex sync.Mutex
	known := map[any]func() (*record.Training, error){}
	return func(s *scenarios.Scenario, policyName string, note func(record.Event)) (record.Summary, error) {
		if s.Train.Foreign() { // who knows what it hangs on
			return play.Trained(ctx, "")(s, policyName, note)
		}
		var events []record.Event
		sum, err := play(s, policyName, func(e record.Event) {
			if replay.Matters(&e) {
				events = append(events, e)
			}
			if note != nil {
				note(e)
			}
		})
		if err != nil {
			return sum, err
		}
		key, err := replay.Key(s, events)
		if err != nil {
			return sum, err
		}
		mutex.Lock()
		taught, ok := known[key]
		if !ok {
			taught = sync.OnceValues(func() (*record.Training, error) { return teach(ctx, s, events) })
			known[key] = taught
		}
		mutex.Unlock()
		learnt, err := taught()
		if err == nil {
			learnt.Complete(&sum)
		}
		return sum, err
	}
}

// teach plays what is learnt from events, on a thread of its own.
func teach(ctx context.Context, s *scenarios.Scenario, events []record.Event) (learnt *record.Training, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		nice.Thread()
		var p *pupil
		if p, err = newPupil(s); err != nil {
			return
		}
		defer p.lesson.Close()
		learnt = p.learnt
		for _, e := range events {
			if err = ctx.Err(); err == nil {
				err = p.add(e, nil)
			}
			if err != nil {
				return
			}
		}
	}()
	<-done
	return learnt, err
}

// keep writes what was learnt to a file.
func keep(s *scenarios.Scenario, l *replay.Lesson, file string) error {
	if !s.Train.Real() {
		return &scenarios.Error{Field: "model", Problem: "the scenario trains none; give it the section train with a task, charlm for example"}
	}
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("writing the model: %w", err)
	}
	return errors.Join(s.Train.NewTrained(l.State()).Write(f), f.Close())
}
