package node

import (
	"context"
	"errors"
	"slices"
	"time"

	"testbed/allreduce"
	"testbed/allreduce/quicring"
	"testbed/node/state"
	"testbed/policy"
	"testbed/policy/worker"
	"testbed/record"
	"testbed/scenarios/resolved"
	"testbed/train"
)

// background is a task of the worker in the background: an inner step or a
// fetch, one at a time, or a reduction.
type background struct {
	cancel context.CancelFunc
	result chan result
}

// end is the channel of a task's result, if there is a task.
func (t *background) end() <-chan result {
	if t == nil {
		return nil
	}
	return t.result
}

// result is the result of a task: the event for the worker's machine, and
// further details for the coordinator.
type result struct {
	event   worker.Event
	err     error // the worker cannot go on
	details message
	ended   time.Time // of an inner step
	fetched *state.Snapshot
}

// spawn begins a task.
func spawn(ctx context.Context, do func(context.Context) result) *background {
	ctx, cancel := context.WithCancel(ctx)
	t := &background{cancel, make(chan result, 1)}
	go func() { t.result <- do(ctx) }()
	return t
}

// stop ends a task, if there is one, and waits for it; its result is dropped.
func stop(t **background) {
	if *t != nil {
		(*t).cancel()
		<-(*t).result
		*t = nil
	}
}

// apply takes an outer step with the outcome of the last reduction, and reports
// the new state to the coordinator for comparison.
func (w *workerDriver) apply() {
	before, _ := w.outer.Version()
	steps := before + 1
	_, mean, lost := w.buffers.Of(steps)
	w.outer.Step(mean, w.buffers.Outcome)
	w.learner.Lost(steps, lost)
	m := message{Type: msgStepped, OuterSteps: steps, Hash: w.outer.Hash()}
	if !w.cfg.Train.Real() {
		m.Loss, _ = w.learner.Loss()() // the stand-in has one
	} else {
		w.review(steps)
	}
	w.coordinator.session.send(m)
}

// merge adds the outcome of the last outer step to the local parameters.
func (w *workerDriver) merge(a *worker.Merge) error {
	if err := w.learner.Merge(a.OuterSteps, w.buffers.Contribution(a.OuterSteps+1), w.buffers.Ranks); err != nil {
		return err
	}
	if w.exchange.Overlap > 0 {
		w.cfg.Report(Report{After: w.told, Event: &record.Event{
			T: w.cfg.ClockTime(time.Since(w.began)), Type: record.Merge, Node: w.cfg.ID.Node(), Round: a.OuterSteps, Step: a.Step,
		}})
	}
	return nil
}

// review describes the contribution to an outer step and, if this worker is
// responsible, the state's loss, which takes a while.
func (w *workerDriver) review(outerSteps int) {
	contribution, outcome, _ := w.buffers.Of(outerSteps)
	tell := w.learner.Review(outerSteps, contribution, outcome, w.cfg.Reduction.Format, w.validates)
	initial := w.initial
	w.initial = nil
	w.background.Go(func() {
		if initial != nil {
			if loss, err := initial(); err == nil { // otherwise the next one reports it
				w.cfg.Report(Report{Event: &record.Event{T: w.cfg.ClockTime(time.Since(w.began)), Type: record.Validated, Node: w.cfg.ID.Node(), Loss: &loss}})
			}
		}
		events, err := tell()
		if err != nil {
			w.cfg.Log.Warn("the validation loss after an outer step could not be computed", "outer_step", outerSteps, "err", err) // if the training has diverged, the next inner step fails
		}
		for _, e := range events {
			e.T, e.Node, e.Round = w.cfg.ClockTime(time.Since(w.began)), w.cfg.ID.Node(), outerSteps
			w.cfg.Report(Report{Event: &e})
		}
	})
}

// beginStep begins an inner step. It computes, and the rest of the step's time
// passes as the scenario says. A step's time counts from the end of the step
// before, and the first one's from the order to start. So applying the outer
// step and computing the pseudo-gradient are within the time of the steps, and
// workers that share few processors still arrive together.
//
// Measured computing excludes the time that its threads waited for a processor,
// which depends on the machine rather than on the worker.
func (w *workerDriver) beginStep(ctx context.Context, a *worker.BeginStep) {
	begin, told := w.stepFrom, w.told
	at := w.cfg.ClockTime(begin.Sub(w.began))
	planned := w.steps.Step(at, a.Factor)
	duration, measured := w.cfg.ClockDuration(planned), w.cfg.Measured
	contribution := w.buffers.Contribution(a.Round)
	w.task = spawn(ctx, func(ctx context.Context) result {
		waits := w.learner.Waits()
		loss, computed, err := w.learner.Step(ctx, a.Round, a.Step)
		if err == nil && a.Last {
			err = w.learner.Contribute(a.Round, contribution, a.Late > 0)
			if a.Late > 0 && w.cfg.StalenessWeight > 0 {
				w.cfg.Log.Info("this worker adds a late contribution", "of_round", a.Late, "to_round", a.Round)
			}
		}
		var waited, behind time.Duration
		if measured {
			ran, pace := w.clock.Running(begin), float64(planned)/float64(w.cfg.Typical)
			waited = min(w.learner.Waits().Since(waits), ran)
			lasts := func(d time.Duration) time.Duration { return w.cfg.OnClock(time.Duration(pace * float64(d))) }
			duration = lasts(ran - waited)
			behind = max(min(lasts(ran), ran)-duration, 0)
		}
		if err != nil {
			if late := max(w.clock.Going(begin)-duration-behind, 0); late > 0 || behind > 0 {
				w.cfg.Report(Report{Round: a.Round, Lateness: &late, Behind: behind}) // it may have been left out because of that
			}
			return result{err: err}
		}
		stood, err := w.clock.Pass(ctx, begin, duration)
		if err != nil {
			if behind > 0 {
				w.cfg.Report(Report{Round: a.Round, Behind: behind})
			}
			return result{} // stopped
		}
		end := time.Now()
		took := end.Sub(begin) - stood
		late := took - duration - behind
		r := Report{Round: a.Round, Lateness: &late, Behind: behind, After: told, Event: &record.Event{
			T: w.cfg.ClockTime(end.Sub(w.began)), Type: record.Step, Node: w.cfg.ID.Node(),
			Round: a.Round, Step: a.Step, Duration: w.cfg.ClockTime(took), Waited: w.cfg.ClockTime(waited),
			ClockError: w.cfg.ClockTime(w.coordinator.oneWayDelay()),
		}}
		if w.cfg.Train.Real() {
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

func (w *workerDriver) beginReduce(ctx context.Context, a *worker.BeginReduce) {
	rank, b := slices.Index(a.Ring, w.cfg.ID), w.buffers
	gradient, mean, lost := b.Of(a.Round)
	if a.Zero {
		clear(gradient)
	}
	op := quicring.Op{Epoch: uint64(a.Epoch), Round: a.Round, Rank: rank, Residual: lost}
	op.Algorithm, _ = allreduce.ParseAlgorithm(w.cfg.Reduction.Algorithm) // the scenario is valid
	for _, p := range w.peers {
		op.Peers = append(op.Peers, quicring.Peer{Name: p.ID.Node(), Addr: p.Addr, Incarnation: p.Incarnation})
	}
	if op.Algorithm == allreduce.Hierarchical {
		op.Groups = resolved.GroupsOf(a.Ring, w.cfg.Workers, w.cfg.Groups)
	}
	from := a.Ring[(rank+len(a.Ring)-1)%len(a.Ring)]
	if op.Algorithm == allreduce.Direct {
		from = w.cfg.ID // from all: there is no single one to name
	}
	w.reducing.Store(&reducing{a.Epoch, from})
	w.validates = w.grouping.Global(a.Round) && w.cfg.ID == slices.Min(a.Ring)
	if steps, _ := w.outer.Version(); w.validates && steps == 0 && w.cfg.Train.Real() {
		w.initial = w.learner.Loss()
	}
	b.Ranks = len(a.Ring)
	w.reduction = spawn(ctx, func(ctx context.Context) result {
		defer w.reducing.Store(nil)
		r, err := w.ring.Reduce(ctx, op, train.Repeated(gradient, a.Repeats), mean)
		if err != nil {
			w.cfg.Log.Warn("a reduction failed", "round", a.Round, "epoch", a.Epoch, "err", err)
			return result{event: worker.ReduceFailed{Peer: failedAt(err, a.Ring)}, details: message{Error: err.Error()}}
		}
		b.Outcome = r.Outcome
		w.cfg.Report(Report{Event: &record.Event{
			T: w.cfg.ClockTime(time.Since(w.began)), Type: record.Reduced, Node: w.cfg.ID.Node(),
			Round: a.Round, Epoch: a.Epoch, Duration: w.cfg.ClockTime(r.Total), ReduceScatter: w.cfg.ClockTime(r.ReduceScatter),
			BytesSent: r.BytesSent, BytesReceived: r.BytesReceived, ClockError: w.cfg.ClockTime(w.coordinator.oneWayDelay()),
		}})
		return result{event: worker.Reduced{}, details: message{Hash: train.Hash(mean), Bytes: r.BytesSent, Took: r.Total}}
	})
}

// failedAt returns the worker at which a reduction failed, if known.
func failedAt(err error, ring []policy.ID) *policy.ID {
	at, ok := errors.AsType[*quicring.PeerError](err)
	if !ok {
		return nil
	}
	i := slices.IndexFunc(ring, func(id policy.ID) bool { return id.Node() == at.Peer })
	if i < 0 {
		return nil
	}
	return &ring[i]
}

// beginFetch gets the outer state from peers.
func (w *workerDriver) beginFetch(ctx context.Context, a *worker.BeginFetch) {
	var donors []state.Peer
	for _, p := range w.peers {
		donors = append(donors, state.Peer{Name: p.ID.Node(), Addr: p.Addr})
	}
	w.task = spawn(ctx, func(ctx context.Context) result {
		begin := time.Now()
		s, bytes, err := w.states.Fetch(ctx, donors, a.OuterSteps, a.Current, a.Agreed)
		if err != nil {
			w.cfg.Log.Warn("this worker could not fetch the outer state", "outer_step", a.OuterSteps, "err", err)
			return result{event: worker.FetchFailed{}, details: message{Error: err.Error()}}
		}
		return result{event: worker.Fetched{OuterSteps: s.Steps}, fetched: s, details: message{Bytes: bytes, Took: time.Since(begin)}}
	})
}
