// Package learner takes a worker's inner steps. It drives a trainer from the
// outer state of the worker, without disturbing the node that it runs in.
package learner

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"testbed/allreduce"
	"testbed/allreduce/codec"
	"testbed/internal/cpuwait"
	"testbed/internal/nice"
	"testbed/node/state"
	"testbed/record"
	"testbed/train"
)

// Config is the configuration of a Learner.
type Config struct {
	Task    train.Task
	Trainer train.Trainer
	Outer   *state.Outer
	// Optimiser is the outer optimiser.
	Optimiser train.Outer
	// Exchange determines how outer and local parameters are combined.
	Exchange *train.Exchange
	// Long reports that steps compute for long, like a real model's. They get
	// threads of the lowest priority, so that heartbeats and the all-reduce never
	// wait for them.
	Long bool
	// Feedback enables error feedback.
	Feedback bool
	// Staleness, if it is not 0, is the weight with which a contribution that no
	// reduction has used is added to the next one.
	Staleness float32
	// Waits reads how long threads and processes have waited for a processor. Nil:
	// time is virtual, and nothing waits.
	Waits func(threads, processes []int) cpuwait.Times
	// CheckpointEvery is the number of outer steps between checkpoints; 0: there
	// are none.
	CheckpointEvery int
}

// Learner is the inner optimiser of a worker, with the worker's own state
// besides the outer state. It has one user at a time.
type Learner struct {
	Config
	compute func(do func())
	judge   func(do func()) // runs apart from inner steps
	threads []int           // threads for inner steps
	close   []func()

	// local are the parameters after the inner steps of the round ended, with
	// everything that has come in since. If ended is 0, the next round begins at
	// the outer parameters. With a plain exchange every round does, and local is
	// nil.
	local []float32
	ended int
	// With overlapping rounds: merged reports that local has the outcome of the
	// round ended. ahead reports that the inner steps under way, or ended last,
	// lack the outcome of the round before. base, if outcomes come Late, is the
	// parameters from which the next pseudo-gradient is measured. due is the own
	// state for a checkpoint after the round due.round.
	merged, ahead bool
	base          []float32
	due           struct {
		round int
		own   state.Own
	}
	// residual is the quantisation error of the contributions so far; nil without
	// error feedback.
	residual []float32
	// With a staleness weight, late is the last contribution, without the
	// residual, until a reduction has used it. fresh is that of the inner steps
	// under way. Otherwise they are nil.
	late, fresh []float32
}

// New returns the learner of a worker.
func New(c Config) *Learner {
	l := &Learner{Config: c, compute: at}
	if c.Long {
		steps, judging := newThread(), newThread()
		l.compute, l.judge, l.threads = steps.do, judging.do, []int{steps.tid}
		l.close = append(l.close, steps.end, judging.end)
	}
	var n int
	c.Outer.Read(func(parameters []float32) { n = len(parameters) })
	if !c.Exchange.Plain() {
		l.local = make([]float32, n)
	}
	if c.Exchange.Late {
		l.base = make([]float32, n)
	}
	if c.Feedback {
		l.residual = make([]float32, n)
	}
	if c.Staleness > 0 {
		l.late, l.fresh = make([]float32, n), make([]float32, n)
	}
	return l
}

func at(do func()) { do() }

// Step takes an inner step of a round. The first one, 1, begins where the
// worker begins the round. It returns the training loss before the step and the
// time of computing.
func (l *Learner) Step(ctx context.Context, round, step int) (loss float64, took time.Duration, err error) {
	l.compute(func() {
		begin := time.Now()
		if step == 1 {
			err = l.begin(ctx, round)
		}
		if err == nil {
			loss, err = l.Trainer.Step(ctx, step)
		}
		took = time.Since(begin)
	})
	if err != nil {
		return 0, 0, fmt.Errorf("inner step %d of round %d: %w", step, round, err)
	}
	return loss, took, nil
}

// Waits returns how long each thread that computes inner steps has waited for a
// processor so far, if known.
func (l *Learner) Waits() cpuwait.Times {
	if l.Config.Waits == nil {
		return nil
	}
	var processes []int
	if p, ok := l.Trainer.(train.Processes); ok {
		processes = p.Processes()
	}
	return l.Config.Waits(l.threads, processes)
}

// begin begins a round: at the worker's own parameters if it has ended the
// round before, and at the outer ones if it is new or has discarded steps.
func (l *Learner) begin(ctx context.Context, round int) (err error) {
	if l.ended > 0 && l.ended == round-1 {
		if l.ahead = !l.merged; !l.ahead {
			l.rebase()
		}
		return l.Trainer.Begin(ctx, round, l.local)
	}
	l.ended, l.ahead = 0, false
	l.rebase()
	l.Outer.Read(func(parameters []float32) { err = l.Trainer.Begin(ctx, round, parameters) })
	return err
}

// rebase sets the base of the next pseudo-gradient: the present outer
// parameters or, with the eager correction, the beginning of its round.
func (l *Learner) rebase() {
	switch {
	case l.base == nil:
	case l.Exchange.Eager && l.ended > 0:
		copy(l.base, l.local)
	default:
		l.Outer.Read(func(parameters []float32) { copy(l.base, parameters) })
	}
}

// Contribute ends the inner steps of a round and writes the contribution to
// out, which has the length of the round's fragment. It is the pseudo-gradient,
// plus with late the contribution that came too late for the round before, plus
// the quantisation errors of earlier ones. The errors are added by Merge if the
// outcome of the round before is still to be merged.
func (l *Learner) Contribute(round int, out []float32, late bool) error {
	local := l.local
	if local == nil {
		local = out
	}
	if err := l.Trainer.Finish(local); err != nil {
		return fmt.Errorf("after the inner steps of round %d: %w", round, err)
	}
	fragment := l.Exchange.Fragments.Of(round)
	if l.base != nil {
		fragment.PseudoGradient(out, l.base, local)
	} else {
		l.Outer.Base(func(parameters []float32) { fragment.PseudoGradient(out, parameters, local) })
	}
	if l.late != nil {
		if late {
			for i, x := range l.late {
				out[i] += float32(l.Staleness * x)
			}
		}
		copy(l.fresh, out)
	}
	if !l.ahead {
		l.addResidual(round, out)
		if l.Exchange.Repeats() {
			l.Outer.Read(func(parameters []float32) { fragment.Mix(local, parameters, l.Exchange.Mix) })
		}
	}
	if l.local != nil {
		l.ended, l.merged = round, false
	}
	return nil
}

func (l *Learner) addResidual(round int, out []float32) {
	if l.residual != nil {
		l.Exchange.Fragments.Of(round).AddTo(out, l.residual)
	}
}

// Keep confirms the round of the last contribution.
func (l *Learner) Keep() { l.Trainer.Keep() }

// Arrived reports that the last contribution is available.
func (l *Learner) Arrived() error {
	l.late, l.fresh = l.fresh, l.late
	if l.Exchange.Overlap == 0 {
		return nil
	}
	l.rebase() // before the next round begins, and the outer step of this one comes
	if l.CheckpointEvery == 0 || l.ended%l.CheckpointEvery != 0 {
		return nil
	}
	inner, err := l.Trainer.State()
	l.due.round, l.due.own = l.ended, state.Own{Inner: inner, Local: slices.Clone(l.local)}
	return err
}

// Lost records the quantisation error of the contribution to a round, at its
// outer step.
func (l *Learner) Lost(round int, lost []float32) {
	if l.residual != nil {
		l.Exchange.Fragments.Of(round).Scatter(l.residual, lost)
	}
}

// Merge adds the effect of a round's outer step, which the outer state has
// taken, to the worker's parameters: those of the next round, if that is under
// way or has ended. Then it also completes contribution, the next round's.
// participants is the number of workers in the outer step.
func (l *Learner) Merge(round int, contribution []float32, participants int) error {
	fragment := l.Exchange.Fragments.Of(round)
	mix := func(local []float32) {
		l.Outer.Read(func(parameters []float32) { fragment.Mix(local, parameters, l.Exchange.Mix) })
	}
	switch {
	case l.ended == 0: // it contributed zeros
	case !l.ahead && l.ended == round:
		mix(l.local)
		l.merged = true
	case l.ahead && l.ended == round:
		t, ok := l.Trainer.(train.Adjuster)
		if !ok {
			return errors.New("the trainer does not allow parameters to change within a round, which train.outer.overlap requires; set train.outer.overlap to 0 or inner_steps")
		}
		t.Adjust(mix)
		l.ahead = false
	case l.ahead && l.ended == round+1:
		mix(l.local)
		if l.Exchange.Eager {
			l.Optimiser.Share(l.local, contribution, participants)
		}
		l.addResidual(round+1, contribution)
		l.ahead = false
	}
	return nil
}

// Reset makes the next round begin at the outer parameters, which belong to
// another lineage than the worker's own.
func (l *Learner) Reset() { l.ended, l.ahead, l.due.round = 0, false, 0 }

// Own returns the worker's own state besides the outer state after so many
// outer steps, in slices that are not written any more. With overlapping rounds
// its steps may be ahead: then it is the state at their beginning, with the
// outcome.
func (l *Learner) Own(outerSteps int) (state.Own, error) {
	if l.due.round == outerSteps && outerSteps > 0 {
		own := l.due.own
		own.Residual = slices.Clone(l.residual)
		l.due.round, l.due.own = 0, state.Own{}
		l.Outer.Read(func(parameters []float32) {
			l.Exchange.Fragments.Of(outerSteps).Mix(own.Local, parameters, l.Exchange.Mix)
		})
		return own, nil
	}
	inner, err := l.Trainer.State()
	own := state.Own{Residual: slices.Clone(l.residual), Inner: inner}
	if l.ended > 0 && l.ended == outerSteps {
		own.Local = slices.Clone(l.local)
	}
	return own, err
}

// Restore continues from the result of Own after so many outer steps.
func (l *Learner) Restore(own state.Own, outerSteps int) error {
	if own.Inner != nil {
		if err := l.Trainer.Restore(own.Inner); err != nil {
			return err
		}
	}
	if own.Residual != nil && l.residual != nil {
		l.residual = own.Residual
	}
	if own.Local != nil && l.local != nil {
		l.local, l.ended, l.merged = own.Local, outerSteps, true
	}
	return nil
}

// Loss returns a function for the validation loss of the present outer state.
// It may be called from any goroutine, while steps are taken. Quick losses are
// computed at once. The error is train.ErrNoLoss if there is none.
func (l *Learner) Loss() func() (float64, error) {
	var now []float32
	var loss float64
	var err error
	l.Outer.Read(func(parameters []float32) {
		if l.Long {
			now = slices.Clone(parameters)
		} else {
			loss, err = l.Task.Validate(parameters)
		}
	})
	return func() (float64, error) {
		if l.Long {
			l.judge(func() { loss, err = l.Task.Validate(now) })
		}
		if err == nil && (math.IsNaN(loss) || math.IsInf(loss, 0)) {
			err = fmt.Errorf("the loss is %v: the training has diverged; lower the learning rate of the inner steps, or train.outer.rate", loss)
		}
		return loss, err
	}
}

// Review returns a function that describes, in events, a contribution to the
// last outer step. If the outer state is to be validated, it includes the
// layers, and the state's present loss. The function may be called from any
// goroutine, while steps are taken, and takes long.
func (l *Learner) Review(round int, contribution, outcome []float32, format allreduce.Format, validate bool) func() ([]record.Event, error) {
	contribution, outcome = slices.Clone(contribution), slices.Clone(outcome)
	var layers []train.Layer
	var loss func() (float64, error)
	if validate {
		layers, loss = l.Exchange.Fragments.Of(round).Layers(l.Task.Layers()), l.Loss()
	}
	return func() (events []record.Event, err error) {
		l.judge(func() {
			if c, ok := train.NewContribution(contribution, outcome, codec.Lost(format, contribution), layers); ok {
				events = append(events, record.Event{Type: record.Contributed, Contribution: &c})
			}
		})
		if !validate {
			return events, nil
		}
		now, err := loss()
		switch {
		case errors.Is(err, train.ErrNoLoss):
			return events, nil
		case err != nil:
			return events, err
		}
		return append(events, record.Event{Type: record.Validated, Loss: &now}), nil
	}
}

// Close ends the trainer. Nothing may be under way.
func (l *Learner) Close() error {
	for _, end := range l.close {
		end()
	}
	return l.Trainer.Close()
}

// thread is an operating system's thread for computing, one task at a time.
type thread struct {
	work chan func()
	tid  int
}

func newThread() *thread {
	t, begun := &thread{work: make(chan func())}, make(chan struct{})
	go func() {
		t.tid = nice.Thread()
		close(begun)
		for do := range t.work {
			do()
		}
	}()
	<-begun
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
