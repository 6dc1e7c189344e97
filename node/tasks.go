package node

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"testbed/allreduce"
	"testbed/allreduce/codec"
	"testbed/allreduce/quicring"
	"testbed/node/state"
	"testbed/policy"
	"testbed/runlog"
	"testbed/scenarios"
	"testbed/train"
	"testbed/worker"
)

// buffers are a worker's vectors beside its outer state. They have one owner at a
// time: the goroutine of run or, while there is one, the task, which gets them
// handed over and gives them back with its result.
type buffers struct {
	gradient []float32      // the contribution: a pseudo-gradient
	mean     []float32      // outcome of the last reduction
	outcome  *codec.Outcome // the same, as it went over the wire
	// With error feedback, residual is what quantisation has taken from the
	// pseudo-gradients so far, and nextResidual what it will be once the outcome
	// is applied; else they are nil.
	residual, nextResidual []float32
	// With a staleness weight, late is the last contribution, without the
	// residual, as long as no reduction has asked for it, and fresh the one of the
	// inner steps under way; else they are nil.
	late, fresh []float32
}

func newBuffers(s *scenarios.Scenario) *buffers {
	n := s.Real.Parameters
	b := &buffers{gradient: make([]float32, n), mean: make([]float32, n)}
	if s.Policy.StalenessWeight > 0 {
		b.late, b.fresh = make([]float32, n), make([]float32, n)
	}
	if s.Real.AllReduce.Feedback() {
		b.residual, b.nextResidual = make([]float32, n), make([]float32, n)
	}
	return b
}

// task is what the worker does in the background: an inner step, a reduction or
// a fetch. There is one at a time.
type task struct{ cancel context.CancelFunc }

// result is what a task has come to: the event for the worker's machine, and
// what the coordinator is to know besides.
type result struct {
	event   worker.Event
	err     error // the worker cannot go on
	details message
	ended   time.Time // of an inner step
	fetched *state.Snapshot
	buffers *buffers
}

// spawn begins a task, which has the buffers until it ends.
func (w *workerDriver) spawn(ctx context.Context, do func(context.Context, *buffers) result) {
	ctx, cancel := context.WithCancel(ctx)
	w.task = &task{cancel}
	b := w.buffers
	w.buffers = nil
	go func() {
		r := do(ctx, b)
		r.buffers = b
		w.results <- r
	}()
}

// stop ends the task under way, if there is one, and waits for it; its result is
// dropped.
func (w *workerDriver) stop() {
	if w.task != nil {
		w.task.cancel()
		w.buffers = (<-w.results).buffers
		w.task = nil
	}
}

// apply takes an outer step with the outcome of the last reduction, and has the
// coordinator compare the state that it leads to.
func (w *workerDriver) apply() {
	b := w.buffers
	w.outer.Step(b.mean, b.outcome)
	b.residual, b.nextResidual = b.nextResidual, b.residual
	steps, _ := w.outer.Version()
	m := message{Type: msgStepped, OuterSteps: steps, Hash: w.outer.Hash()}
	if !w.cfg.Scenario.Train.Real() {
		m.Loss = w.learner.Loss()()
	} else if w.validates {
		w.validate(steps)
	}
	w.coordinator.session.send(m)
}

// validate tells the validation loss of an outer state, which takes a while.
func (w *workerDriver) validate(outerSteps int) {
	loss := w.learner.Loss()
	w.background.Go(func() {
		now := loss()
		if math.IsNaN(now) || math.IsInf(now, 0) {
			w.cfg.Log.Error("the training has diverged", "outer_step", outerSteps, "loss", now)
			return // the next inner step fails
		}
		w.cfg.Report(Report{Event: &runlog.Event{
			T: w.cfg.Scenario.ScenarioTime(time.Since(w.began)), Type: runlog.Validated, Node: scenarios.NodeName(w.cfg.ID),
			Round: outerSteps, Loss: &now,
		}})
	})
}

// beginStep begins an inner step. It computes, and the rest of the step's time
// passes as the scenario says. A step's time counts from the end
// of the one before, and the first one's from the word to start, so that applying
// the outer step and computing the pseudo-gradient lie within the time of the
// steps, and workers that share few processors still arrive together.
func (w *workerDriver) beginStep(ctx context.Context, a *worker.BeginStep) {
	begin := w.stepFrom
	at := w.cfg.Scenario.ScenarioTime(begin.Sub(w.began))
	duration := w.cfg.Scenario.RealDuration(w.steps.Step(at, a.Factor))
	w.spawn(ctx, func(ctx context.Context, b *buffers) result {
		loss, computed, err := w.learner.Step(ctx, a.Round, a.Step)
		if err == nil && a.Last {
			err = w.contribute(b, a)
		}
		if err != nil {
			return result{err: err}
		}
		measured := w.cfg.Scenario.Real.Compute == scenarios.ComputeMeasured
		if measured {
			duration = time.Duration(a.Factor * float64(time.Since(begin)))
		}
		stood, err := w.clock.Pass(ctx, begin, duration)
		if err != nil {
			return result{} // stopped
		}
		end := time.Now()
		took := end.Sub(begin) - stood
		late := took - duration
		r := Report{Lateness: &late, Event: &runlog.Event{
			T: w.cfg.Scenario.ScenarioTime(end.Sub(w.began)), Type: runlog.Step, Node: scenarios.NodeName(w.cfg.ID),
			Round: a.Round, Step: a.Step, Duration: w.cfg.Scenario.ScenarioTime(took),
			ClockError: w.cfg.Scenario.ScenarioTime(w.coordinator.oneWayDelay()),
		}}
		if w.cfg.Scenario.Train.Real() {
			r.Event.Loss = &loss
			if !measured {
				r.Computing = float64(computed) / float64(max(duration, 1))
			}
		}
		if a.Last {
			w.learner.Keep()
		}
		w.cfg.Report(r)
		return result{event: worker.StepDone{}, ended: end}
	})
}

// contribute makes the contribution to a round: the pseudo-gradient, what came
// too late for a round before, and what quantisation has taken from others.
func (w *workerDriver) contribute(b *buffers, a *worker.BeginStep) error {
	if err := w.learner.Finish(b.gradient); err != nil {
		return err
	}
	if b.late != nil {
		if a.Late > 0 {
			weight := float32(w.cfg.Scenario.Policy.StalenessWeight)
			for i, x := range b.late {
				b.gradient[i] += float32(weight * x)
			}
			w.cfg.Log.Info("a late contribution is added", "of_round", a.Late, "to_round", a.Round, "weight", weight)
		}
		copy(b.fresh, b.gradient)
	}
	for i, x := range b.residual {
		b.gradient[i] += x
	}
	return nil
}

func (w *workerDriver) beginReduce(ctx context.Context, a *worker.BeginReduce) {
	rank := slices.Index(a.Ring, w.cfg.ID)
	if a.Zero {
		clear(w.buffers.gradient)
	}
	op := quicring.Op{Epoch: uint64(a.Epoch), Round: a.Round, Rank: rank, Residual: w.buffers.nextResidual}
	op.Algorithm, _ = allreduce.ParseAlgorithm(w.cfg.Scenario.Real.AllReduce.Algorithm) // the scenario is valid
	for _, p := range w.peers {
		op.Peers = append(op.Peers, quicring.Peer{Name: scenarios.NodeName(p.ID), Addr: p.Addr, Incarnation: p.Incarnation})
	}
	if op.Algorithm == allreduce.Hierarchical {
		op.Groups = w.cfg.Scenario.Groups(a.Ring)
	}
	from := a.Ring[(rank+len(a.Ring)-1)%len(a.Ring)]
	if op.Algorithm == allreduce.Direct {
		from = w.cfg.ID // from everybody: no one to name
	}
	w.reducing.Store(&reducing{a.Epoch, from})
	w.validates = w.cfg.ID == slices.Min(a.Ring)
	w.spawn(ctx, func(ctx context.Context, b *buffers) result {
		defer w.reducing.Store(nil)
		r, err := w.ring.Reduce(ctx, op, b.gradient, b.mean)
		if err != nil {
			w.cfg.Log.Warn("reduction failed", "epoch", a.Epoch, "err", err)
			return result{event: worker.ReduceFailed{Peer: failedAt(err, a.Ring)}, details: message{Error: err.Error()}}
		}
		b.outcome = r.Outcome
		w.cfg.Report(Report{Event: &runlog.Event{
			T: w.cfg.Scenario.ScenarioTime(time.Since(w.began)), Type: runlog.Reduced, Node: scenarios.NodeName(w.cfg.ID),
			Round: a.Round, Epoch: a.Epoch, Duration: w.cfg.Scenario.ScenarioTime(r.Total), ReduceScatter: w.cfg.Scenario.ScenarioTime(r.ReduceScatter),
			BytesSent: r.BytesSent, BytesReceived: r.BytesReceived, ClockError: w.cfg.Scenario.ScenarioTime(w.coordinator.oneWayDelay()),
		}})
		return result{event: worker.Reduced{}, details: message{Hash: train.Hash(b.mean), Bytes: r.BytesSent, Took: r.Total}}
	})
}

// failedAt returns the worker that a reduction failed at, if that is known.
func failedAt(err error, ring []policy.ID) *policy.ID {
	at, ok := errors.AsType[*quicring.PeerError](err)
	if !ok {
		return nil
	}
	i := slices.IndexFunc(ring, func(id policy.ID) bool { return scenarios.NodeName(id) == at.Peer })
	if i < 0 {
		return nil
	}
	return &ring[i]
}

// beginFetch gets the outer state from peers.
func (w *workerDriver) beginFetch(ctx context.Context, a *worker.BeginFetch) {
	var donors []state.Peer
	for _, p := range w.peers {
		donors = append(donors, state.Peer{Name: scenarios.NodeName(p.ID), Addr: p.Addr})
	}
	w.spawn(ctx, func(ctx context.Context, _ *buffers) result {
		begin := time.Now()
		s, bytes, err := w.states.Fetch(ctx, donors, a.OuterSteps, a.Current)
		if err != nil {
			w.cfg.Log.Warn("state fetch failed", "err", err)
			return result{event: worker.FetchFailed{}, details: message{Error: err.Error()}}
		}
		return result{event: worker.Fetched{OuterSteps: s.Steps}, fetched: s, details: message{Bytes: bytes, Took: time.Since(begin)}}
	})
}
