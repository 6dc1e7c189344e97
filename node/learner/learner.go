// Package learner takes a worker's inner steps: it drives a trainer from the
// outer state of the worker, and computes without standing in the way of the
// node it is in.
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

// Config is what a Learner is made of.
type Config struct {
	Task    train.Task
	Trainer train.Trainer
	Outer   *state.Outer
	// Optimiser is the outer one.
	Optimiser train.Outer
	// Exchange is how outer and local parameters come together.
	Exchange *train.Exchange
	// Long says that steps compute for long, as a real model's do: they get threads
	// of the lowest priority, so that heartbeats and the all-reduce never wait for
	// them.
	Long bool
	// Feedback is error feedback.
	Feedback bool
	// Staleness, if it is not 0, is the weight with which a contribution that no
	// reduction has asked for is added to the next one.
	Staleness float32
	// Waits reads how long threads and processes have waited for a processor. Nil: time
	// is not the machine's, and nobody waits.
	Waits func(threads, processes []int) cpuwait.Times
	// CheckpointEvery is after how many outer steps there is a checkpoint; 0: never.
	CheckpointEvery int
}

// Learner is the inner optimiser of a worker, with what is the worker's own
// beside the outer state. It has one user at a time.
type Learner struct {
	Config
	compute func(do func())
	judge   func(do func()) // apart from inner steps
	threads []int           // that inner steps are computed on
	close   []func()

	// local are the parameters after the inner steps of the round ended, with what
	// has come in since; if ended is 0 the next round begins at the outer ones. Where
	// the exchange is plain each does, and local is nil.
	local []float32
	ended int
	// Where rounds overlap: merged says that local has the outcome of the round ended,
	// ahead that the inner steps under way, or ended last, lack that of the round
	// before. base, where outcomes come Late, is what the next pseudo-gradient is
	// measured from. due is what a checkpoint after the round due.round is to have.
	merged, ahead bool
	base          []float32
	due           struct {
		round int
		own   state.Own
	}
	// residual is what quantisation has taken from the contributions so far; nil
	// without error feedback.
	residual []float32
	// With a staleness weight, late is the last contribution, without the residual,
	// as long as no reduction has asked for it, and fresh the one of the inner steps
	// under way; else they are nil.
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

// Step takes an inner step of a round, the first one, 1, from where the worker
// begins it. It returns the training loss before it and how long it computed.
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

// Waits returns how long each thread that computes inner steps has waited for a processor
// so far, as far as that is known.
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

// begin begins a round: at the worker's own parameters if it has ended the one
// before, and at the outer ones if it comes new or has thrown steps away.
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

// rebase has the next pseudo-gradient measured from the outer parameters as they
// are now or, with the eager correction, from where its round begins.
func (l *Learner) rebase() {
	switch {
	case l.base == nil:
	case l.Exchange.Eager && l.ended > 0:
		copy(l.base, l.local)
	default:
		l.Outer.Read(func(parameters []float32) { copy(l.base, parameters) })
	}
}

// Contribute ends the inner steps of a round and writes the contribution to out,
// of the length of the round's fragment: the pseudo-gradient, with late what came
// too late for the round before, and what quantisation has taken from others; this
// waits for Merge if the outcome of the round before does.
func (l *Learner) Contribute(round int, out []float32, late bool) error {
	local := l.local
	if local == nil {
		local = out
	}
	if err := l.Trainer.Finish(local); err != nil {
		return fmt.Errorf("the end of a round's inner steps: %w", err)
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

// Keep says that the round counts whose contribution was made last.
func (l *Learner) Keep() { l.Trainer.Keep() }

// Arrived says that the contribution that was made last is there to be asked for.
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

// Lost takes note of what quantisation took from the contribution to a round, with
// its outer step.
func (l *Learner) Lost(round int, lost []float32) {
	if l.residual != nil {
		l.Exchange.Fragments.Of(round).Scatter(l.residual, lost)
	}
}

// Merge brings what the outer step of a round, which the outer state has taken, came
// to into the worker's parameters: those of the next round, if that is under way or
// has ended. Then it completes contribution, the one to that. So many took part in
// the outer step.
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
			return errors.New("the trainer does not allow parameters to change within a round, which train.outer.overlap requires")
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

// Reset has the next round begin at the outer parameters, which are another
// lineage's than the worker's own.
func (l *Learner) Reset() { l.ended, l.ahead, l.due.round = 0, false, 0 }

// Own returns what the worker has beside the outer state after so many outer
// steps, in slices that are not written any more. Where rounds overlap its steps may
// be ahead: then it is what it had as they began, with the outcome.
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

// Restore goes on from what Own returned after so many outer steps.
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

// Loss returns what computes the validation loss of the outer state as it is
// now, from any goroutine, while steps are taken. What takes no time has been
// computed by then. The error is train.ErrNoLoss if there is none.
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
			err = fmt.Errorf("the training has diverged: the loss is %v", loss)
		}
		return loss, err
	}
}

// Review returns what tells, in events, what a contribution to the outer step of a
// round, the last one, was like, its layers too if the outer state is to be validated, and how well
// that does as it is now. It may be called from any goroutine, while steps are
// taken, and takes long.
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

// thread is a thread of the operating system for computing, one thing at a time.
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
