// Package learner takes a worker's inner steps: it drives a trainer from the
// outer state of the worker, and computes without standing in the way of the
// node it is in.
package learner

import (
	"context"
	"fmt"
	"slices"
	"time"

	"testbed/node/state"
	"testbed/train"
)

// Learner is the inner optimiser of a worker. It has one user at a time.
type Learner struct {
	outer   *state.Outer
	task    train.Task
	trainer train.Trainer
	long    bool
	compute func(do func())
	judge   func(do func()) // apart from inner steps
	close   []func()
}

// New returns the learner of a worker. What computes for long, as a real model
// does, gets threads of the lowest priority, so that heartbeats and the
// all-reduce never wait for it.
func New(task train.Task, trainer train.Trainer, outer *state.Outer, long bool) *Learner {
	l := &Learner{outer: outer, task: task, trainer: trainer, long: long, compute: at}
	if long {
		steps, judging := newThread(), newThread()
		l.compute, l.judge = steps.do, judging.do
		l.close = append(l.close, steps.end, judging.end)
	}
	return l
}

func at(do func()) { do() }

// Step takes an inner step of a round, the first one, 1, from the outer state. It
// returns the training loss before it and how long it computed.
func (l *Learner) Step(ctx context.Context, round, step int) (loss float64, took time.Duration, err error) {
	l.compute(func() {
		begin := time.Now()
		if step == 1 {
			l.outer.Read(func(parameters []float32) { err = l.trainer.Begin(ctx, round, parameters) })
		}
		if err == nil {
			loss, err = l.trainer.Step(ctx, step)
		}
		took = time.Since(begin)
	})
	if err != nil {
		return 0, 0, fmt.Errorf("inner step %d of round %d: %w", step, round, err)
	}
	return loss, took, nil
}

// Finish ends the inner steps of a round and writes the pseudo-gradient to out,
// the outer parameters − the local ones.
func (l *Learner) Finish(out []float32) (err error) {
	if err := l.trainer.Finish(out); err != nil {
		return fmt.Errorf("the end of a round's inner steps: %w", err)
	}
	l.outer.Read(func(parameters []float32) {
		for i, o := range parameters {
			out[i] = o - out[i]
		}
	})
	return nil
}

// Keep says that the round counts whose pseudo-gradient was written last.
func (l *Learner) Keep() { l.trainer.Keep() }

// State returns the inner optimiser's state after the last round that was kept,
// nil if it has none, and Restore goes on from one.
func (l *Learner) State() ([]byte, error) { return l.trainer.State() }

func (l *Learner) Restore(state []byte) error { return l.trainer.Restore(state) }

// Loss returns what computes the validation loss of the outer state as it is
// now, from any goroutine, while steps are taken. What takes no time has been
// computed by then.
func (l *Learner) Loss() func() float64 {
	var now []float32
	var loss float64
	l.outer.Read(func(parameters []float32) {
		if l.long {
			now = slices.Clone(parameters)
		} else {
			loss = l.task.Validate(parameters)
		}
	})
	return func() float64 {
		if l.long {
			l.judge(func() { loss = l.task.Validate(now) })
		}
		return loss
	}
}

// Close ends the trainer. Nothing may be under way.
func (l *Learner) Close() error {
	for _, end := range l.close {
		end()
	}
	return l.trainer.Close()
}

// thread is a thread of the operating system for computing, one thing at a time.
type thread struct{ work chan func() }

func newThread() *thread {
	t := &thread{work: make(chan func())}
	go func() {
		yield() // never undone: the thread ends with the goroutine
		for do := range t.work {
			do()
		}
	}()
	return t
}

func (t *thread) do(do func()) {
	done := make(chan struct{})
	t.work <- func() {
		defer close(done)
		do()
	}
	<-done
}

func (t *thread) end() { close(t.work) }
