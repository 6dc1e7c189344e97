package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"testbed/internal/nice"
	"testbed/record"
	"testbed/report/runs"
	"testbed/scenarios"
	"testbed/train/replay"
)

// Trained returns a simulator that also computes the training of the run. Its
// events and its result have the outer states' hashes, and losses if something
// real is trained. The model is written to the file, if a name is given. The
// simulator ends early with ctx.
func (play Simulator) Trained(ctx context.Context, model string) Simulator {
	return func(s *scenarios.Scenario, policyName string, note func(record.Event)) (sum record.Summary, err error) {
		err = WithTrainer(ctx, s, func(s *scenarios.Scenario) error {
			sum, err = play.train(ctx, s, policyName, note, model)
			return err
		})
		return sum, err
	}
}

// trainedWarm returns a simulator like Trained's whose training programs serve
// one run after another if they can, and a function that ends the programs.
func (play Simulator) trainedWarm(ctx context.Context) (trained Simulator, end func() error) {
	var mutex sync.Mutex
	var programs *trainers // nil before the first run
	trained = func(s *scenarios.Scenario, policyName string, note func(record.Event)) (sum record.Summary, err error) {
		if _, err := s.FindProgram(); err != nil {
			return sum, err
		}
		mutex.Lock()
		if programs == nil {
			programs, err = newTrainers()
		}
		mutex.Unlock()
		if err != nil {
			return sum, err
		}
		err = programs.with(ctx, s, func(s *scenarios.Scenario) error {
			sum, err = play.train(ctx, s, policyName, note, "")
			return err
		})
		return sum, err
	}
	return trained, func() error {
		mutex.Lock()
		defer mutex.Unlock()
		if programs == nil {
			return nil
		}
		return programs.close()
	}
}

func (play Simulator) train(ctx context.Context, s *scenarios.Scenario, policyName string, note func(record.Event), model string) (record.Summary, error) {
	t, err := newTrained(s)
	if err != nil {
		return record.Summary{}, err
	}
	defer t.replay.Close()
	var failed error
	sum, err := play(s, policyName, func(e record.Event) {
		if failed == nil {
			failed = ctx.Err()
		}
		if failed == nil {
			failed = t.add(e, note)
		}
	})
	if err == nil {
		err = failed
	}
	t.training.Complete(&sum)
	if world := record.Sim; sum.Ignored != nil {
		if sum.Links == runs.Planned {
			world = record.SimLinks
		}
		sum.Ignored = s.Ignored(world, true)
	}
	if err == nil && model != "" {
		err = keep(s, t.replay, model)
	}
	return sum, err
}

// trained computes the training of a simulated run, and collects the results
// for the summary.
type trained struct {
	replay   *replay.Training
	training *record.Training
}

func newTrained(s *scenarios.Scenario) (*trained, error) {
	r, err := s.Resolve("")
	if err != nil {
		return nil, err
	}
	t, err := replay.New(r)
	return &trained{t, record.NewTraining(s.Train.TokensPerStep())}, err
}

// add takes the next event. It calls note with the event and with those that
// follow from it.
func (t *trained) add(e record.Event, note func(record.Event)) error {
	more, err := t.replay.Add(&e)
	for _, e := range append([]record.Event{e}, more...) {
		t.training.Add(&e)
		if note != nil {
			note(e)
		}
	}
	return err
}

// TrainedOnce returns a simulator whose results include the training, like
// Trained's. Training that several runs share is computed once, on a thread of
// the lowest priority. Users' own programs train for one run after another if
// they can; end ends them. The simulator is safe for concurrent use, and ends
// early with ctx.
func (play Simulator) TrainedOnce(ctx context.Context) (trained Simulator, end func() error) {
	var mutex sync.Mutex
	known := map[any]func() (*record.Training, error){}
	foreign, end := play.trainedWarm(ctx)
	return func(s *scenarios.Scenario, policyName string, note func(record.Event)) (record.Summary, error) {
		if s.Train.Foreign() { // its dependencies are unknown
			return foreign(s, policyName, note)
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
		r, err := s.Resolve("")
		if err != nil {
			return sum, err
		}
		key, err := replay.Key(r, events)
		if err != nil {
			return sum, err
		}
		mutex.Lock()
		once, ok := known[key]
		if !ok {
			once = sync.OnceValues(func() (*record.Training, error) { return training(ctx, s, events) })
			known[key] = once
		}
		mutex.Unlock()
		computed, err := once()
		if err == nil {
			computed.Complete(&sum)
		}
		return sum, err
	}, end
}

// training computes the training of a run from its events, on a thread of its
// own.
func training(ctx context.Context, s *scenarios.Scenario, events []record.Event) (computed *record.Training, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		nice.Thread()
		var t *trained
		if t, err = newTrained(s); err != nil {
			return
		}
		defer t.replay.Close()
		computed = t.training
		for _, e := range events {
			if err = ctx.Err(); err == nil {
				err = t.add(e, nil)
			}
			if err != nil {
				return
			}
		}
	}()
	<-done
	return computed, err
}

// keep writes the trained model to a file.
func keep(s *scenarios.Scenario, t *replay.Training, file string) error {
	if !s.Train.Real() {
		return &scenarios.Error{Field: "--model", Problem: "the scenario trains no model; give it the section train with a task, charlm for example"}
	}
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("writing the model: %w", err)
	}
	return errors.Join(s.Train.NewTrained(t.State()).Write(f), f.Close())
}
