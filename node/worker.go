package node

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"testbed/allreduce/quicring"
	"testbed/internal/cpuwait"
	"testbed/node/learner"
	"testbed/node/state"
	"testbed/node/stepclock"
	"testbed/policy"
	"testbed/train"

	"testbed/policy/worker"
	"testbed/train/work"
)

// WorkerConfig is the configuration of a worker.
type WorkerConfig struct {
	WorkerSettings
	Coordinator netip.AddrPort
	// Control, Ring and Fetch are the sockets of the control connection, the
	// all-reduce and the state transfer. The worker closes them.
	Control, Ring, Fetch net.PacketConn
	TLS                  *tls.Config
	// ShortPaths is as in quicring.Config.
	ShortPaths bool
	// Run names the run in its checkpoints.
	Run string
	// Save, if given, calls write, and keeps the checkpoint if write succeeds. It is
	// called from one goroutine at a time.
	Save func(write func(io.Writer) (state.Checkpoint, error)) error
	// Restore is a checkpoint to begin from. Nil: the initial state of the run.
	Restore io.Reader
	// Residual is the worker's own checkpoint, with its residual. Nil: it has
	// none.
	Residual io.Reader
	// Commands come from the process that started the worker. It waits for OpJoin
	// first.
	Commands <-chan Command
	// CPUWaits is as in learner.Config.Waits.
	CPUWaits func(threads, processes []int) cpuwait.Times
	Tracing  Tracing
	Log      *slog.Logger
	// Report is called with the worker's reports, from several goroutines.
	Report func(Report)
}

// RunWorker plays one worker until its run ends: it has finished, was evicted
// for good, or has left. It returns an error if it could not do its work.
func RunWorker(ctx context.Context, cfg WorkerConfig) error {
	task, trainers, err := cfg.Train.NewTask(cfg.Seed, cfg.Workers, cfg.Parameters)
	if err != nil {
		return err
	}
	trainer, err := trainers(cfg.ID)
	if err != nil {
		return err
	}
	exchange := cfg.Train.Exchange(cfg.InnerSteps, cfg.Parameters)
	w := &workerDriver{
		cfg: cfg, exchange: exchange,
		machine:  worker.New(cfg.ID, cfg.InnerSteps, exchange.Overlap),
		outer:    state.NewOuter(task.Start(), cfg.Train.OuterOptimiser(), exchange.Fragments, cfg.Grouping),
		buffers:  learner.NewBuffers(exchange, cfg.Train.Shard(cfg.Parameters), cfg.Reduction.Feedback()),
		grouping: cfg.Grouping,
		steps:    cfg.Work.Sampler(cfg.Seed, cfg.ID, cfg.Mean, cfg.Jitter, cfg.Incarnation, nil),
		clock:    stepclock.New(),
	}
	w.learner = learner.New(learner.Config{
		Task: task, Trainer: trainer, Outer: w.outer, Optimiser: cfg.Train.OuterOptimiser(), Exchange: exchange, Long: cfg.Train.Real(),
		Feedback: cfg.Reduction.Feedback(), Staleness: float32(cfg.StalenessWeight),
		CheckpointEvery: cfg.CheckpointEvery, Waits: cfg.CPUWaits,
	})
	defer w.learner.Close()
	w.coordinator = newConnection(&w.cfg, w.heartbeat)
	defer w.background.Wait()
	reduce := cfg.Reduction
	switch {
	case cfg.Restore != nil:
		if err := w.restore(cfg.Restore); err != nil {
			return err
		}
	case cfg.InitialStep > 0 && cfg.Incarnation == 0:
		w.outer.Initial(cfg.InitialStep)
		w.machine.Restored(cfg.InitialStep)
	}
	ringConfig := quicring.Config{
		Conn: cfg.Ring, TLS: cfg.TLS, Logger: cfg.Log, Connections: reduce.Connections,
		Format: reduce.Format, Entropy: reduce.Entropy, ShortPaths: cfg.ShortPaths,
		PacketSize: initialPacket, Tracer: cfg.Tracing.of("ring"), Dilation: cfg.Slowdown(), Patience: cfg.Patience,
	}
	ring, err := quicring.Listen(ringConfig)
	if err != nil {
		return err
	}
	defer ring.Close()
	w.ring = ring
	w.states, err = state.Listen(state.Config{
		Conn: cfg.Fetch, TLS: cfg.TLS, Log: cfg.Log, Outer: w.outer, Busy: func() bool { return w.reducing.Load() != nil },
		PacketSize: initialPacket, Tracer: cfg.Tracing.of("state"), Dilation: cfg.Slowdown(), Patience: cfg.Patience,
	})
	if err != nil {
		return err
	}
	defer w.states.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go w.states.Serve(ctx)
	w.cfg.Report(Report{Ready: true})
	if err := w.awaitJoin(ctx); err != nil {
		return err
	}
	return w.run(ctx)
}

// workerDriver drives a worker's machine. It receives messages from the
// coordinator and commands from the process that started the worker, and
// carries out the machine's decisions. Fields belong to the goroutine of run
// unless they are marked as shared. Tasks get the values that they need.
type workerDriver struct {
	cfg      WorkerConfig
	exchange *train.Exchange
	machine  *worker.Machine
	grouping *policy.Grouping
	steps    work.Sampler // draws the durations of inner steps
	// What is under way, or nil: an inner step or a fetch, and a reduction.
	task, reduction *background

	coordinator *connection
	rejoins     bool      // it has been evicted, and joins again
	hangs       bool      // it does nothing except send heartbeats
	peers       []peer    // of the last requested reduction or fetch
	details     message   // further details for the end of a task
	began       time.Time // estimate of the local time of scenario time 0
	stepFrom    time.Time // when the inner step under way began
	told        int       // number of events that the coordinator had recorded by the start of the round

	buffers *learner.Buffers

	outer   *state.Outer     // shared: it locks itself
	learner *learner.Learner // of the task that takes an inner step, if there is one

	ring   *quicring.Endpoint
	states *state.Endpoint  // shared, except for Fetch, which only tasks call
	clock  *stepclock.Clock // shared: it locks itself

	reducing atomic.Pointer[reducing] // shared: the reduction under way, for heartbeats and the donor

	initial    func() (float64, error) // loss of the initial outer state, if this worker reports it
	validates  bool                    // the outer states of the present or last reduction
	saves      sync.Mutex              // held while a checkpoint is saved
	background sync.WaitGroup
}

// reducing is a running reduction, for heartbeats.
type reducing struct {
	epoch policy.Epoch
	from  policy.ID // the predecessor in the ring, or this worker itself
}

// awaitJoin waits for the command to join. Changes of speed may come before.
func (w *workerDriver) awaitJoin(ctx context.Context) error {
	for {
		select {
		case c := <-w.cfg.Commands:
			if c.Op == OpJoin {
				return nil
			}
			if err := w.command(ctx, c); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (w *workerDriver) run(ctx context.Context) error {
	defer w.coordinator.close()
	for {
		again, err := w.takePart(ctx)
		if err != nil || !again {
			return err
		}
		w.cfg.Log.Info("this worker joins the run again")
		w.coordinator = w.coordinator.anew()
	}
}

// takePart joins the run, and returns when it is over for the worker: for good,
// or until it joins again.
func (w *workerDriver) takePart(ctx context.Context) (again bool, err error) {
	c := w.coordinator
	defer c.disconnect()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() {
		w.stop()
		c.hangUp(err)
	}()
	if err := c.open(ctx); err != nil {
		return false, err
	}
	for {
		inbox, task, reduction := c.inbox, w.task.end(), w.reduction.end()
		if w.hangs {
			inbox, task, reduction = nil, nil, nil
		}
		select {
		case m := <-inbox:
			end, err := w.receive(ctx, m)
			switch {
			case err != nil:
				return false, err
			case w.rejoins:
				w.rejoins = false
				return true, nil
			case end != nil && !end.Evicted:
				w.stop()
				c.awaitEnd(ctx)
				return false, nil
			case end != nil:
				return false, nil // nobody waits for its last message
			}
		case r := <-task:
			if err := w.finished(ctx, &w.task, r); err != nil {
				return false, err
			}
		case r := <-reduction:
			if err := w.finished(ctx, &w.reduction, r); err != nil {
				return false, err
			}
		case command := <-w.cfg.Commands:
			if err := w.command(ctx, command); err != nil {
				return false, err
			}
		case err := <-c.lost:
			if err := c.reopen(ctx, err); err != nil {
				return false, err
			}
		case again := <-c.again:
			if again.err != nil {
				return false, again.err
			}
			c.talk(ctx, again.line)
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// heartbeat is the worker's periodic message, from any goroutine.
func (w *workerDriver) heartbeat() message {
	m := message{Type: msgHeartbeat}
	if r := w.reducing.Load(); r != nil {
		m.Epoch, m.Peer, m.Bytes = r.epoch, &r.from, w.ring.Received()
		if peer, due := w.ring.Waits(uint64(r.epoch)); due > 0 {
			if id, ok := policy.ParseNode(peer); ok {
				m.Peer, m.Due = &id, due
			}
		}
	}
	return m
}

// receive carries out a message of the coordinator. It returns the end if the
// run is over for this worker.
func (w *workerDriver) receive(ctx context.Context, m message) (*worker.End, error) {
	switch fresh, ok := w.coordinator.session.accept(m); {
	case !ok:
		return nil, fmt.Errorf("message %d of the coordinator came after message %d: the messages between them are missing", m.Seq, w.coordinator.session.received)
	case !fresh:
		return nil, nil
	}
	switch m.Type {
	case msgStart:
		w.started(m)
		return w.step(ctx, worker.Start{Round: m.Round, OuterSteps: m.OuterSteps, Checkpoint: m.Checkpoint, Residual: m.Residual})
	case msgReduce:
		w.peers = m.Peers
		w.tellsTime(m)
		return w.step(ctx, worker.Reduce{Round: m.Round, Epoch: m.Epoch, Ring: peerIDs(m.Peers), Zero: m.Zero, Repeats: m.Repeats})
	case msgAbort:
		return w.step(ctx, worker.Abort{Epoch: m.Epoch, Confirm: m.Confirm})
	case msgFetch:
		w.peers = m.Peers
		return w.step(ctx, worker.Fetch{OuterSteps: m.OuterSteps, Donors: peerIDs(m.Peers), Agreed: m.Agreed, Whole: m.Whole})
	case msgEvict:
		w.cfg.Log.Info("the coordinator evicted this worker", "reason", m.Error)
		return w.step(ctx, worker.Evict{Rejoin: m.Rejoin})
	case msgFinish:
		return w.step(ctx, worker.Finish{OuterSteps: m.OuterSteps})
	}
	w.cfg.Log.Warn("the coordinator sent an unknown message", "type", m.Type)
	return nil, nil
}

// tellsTime takes the time from the first message that has it: one that starts
// a round or, for a joiner that contributes zeros before, a reduction.
func (w *workerDriver) tellsTime(m message) {
	w.coordinator.measure()
	if w.began.IsZero() {
		w.began = m.received.Add(-w.coordinator.oneWayDelay() - w.cfg.ClockDuration(m.Now))
	}
}

// started notes when a round begins.
func (w *workerDriver) started(m message) {
	w.tellsTime(m)
	w.stepFrom, w.told = m.received, m.Told
}

// command carries out a command of the process that started the worker.
func (w *workerDriver) command(ctx context.Context, c Command) error {
	atJoin := c.At <= w.cfg.JoinAt
	var event worker.Event
	switch c.Op {
	case OpLeave:
		event = worker.Leave{}
	case OpFail:
		return errors.New("the scenario makes this worker give up")
	case OpPreempt:
		event = worker.Preempt{}
	case OpFailReduce:
		event = worker.FailReduce{Alone: c.Alone}
	case OpSlow:
		event = worker.Slow{Factor: c.Factor, AtJoin: atJoin}
	case OpRestore:
		event = worker.Restore{AtJoin: atJoin}
	case OpPause:
		w.hangs = c.Heartbeats
		w.clock.Pause(!c.Heartbeats)
		w.cfg.Report(Report{Paused: true})
		return nil
	case OpResume:
		w.hangs = false
		w.clock.Resume()
		return nil
	default:
		return nil
	}
	_, err := w.step(ctx, event)
	return err
}

// finished takes the result of a task that ended by itself.
func (w *workerDriver) finished(ctx context.Context, t **background, r result) error {
	(*t).cancel()
	*t, w.details = nil, r.details
	if r.err != nil {
		return r.err
	}
	if r.fetched != nil {
		w.outer.Replace(r.fetched)
		w.learner.Reset()
	}
	if !r.ended.IsZero() {
		w.stepFrom = r.ended
	}
	_, err := w.step(ctx, r.event)
	return err
}

// step gives the machine an event and carries out its decisions.
func (w *workerDriver) step(ctx context.Context, e worker.Event) (end *worker.End, err error) {
	for _, a := range w.machine.Step(e) {
		switch a := a.(type) {
		case *worker.Stop:
			stop(&w.task)
		case *worker.StopReduce:
			stop(&w.reduction)
		case *worker.Apply:
			w.apply()
		case *worker.Merge:
			err = errors.Join(err, w.merge(a))
		case *worker.Save:
			w.checkpoint(a.Stateless)
		case *worker.BeginStep:
			w.beginStep(ctx, a)
		case *worker.BeginReduce:
			w.beginReduce(ctx, a)
		case *worker.BeginFetch:
			w.beginFetch(ctx, a)
		case *worker.Say:
			err = errors.Join(err, w.say(a))
		case *worker.Rejoin:
			w.rejoins = true
			w.learner.Reset()
		case *worker.End:
			if end = a; !a.Evicted && w.validates && w.cfg.Train.Real() {
				w.checkpoint(false) // the last one: the result of the training
			}
		case *worker.GiveUp:
			err = errors.Join(err, errors.New(a.Problem))
		}
	}
	return end, err
}

// say sends a message to the coordinator, with the details of a task's end.
func (w *workerDriver) say(a *worker.Say) (err error) {
	m := w.details
	m.Error = cmp.Or(a.Problem, m.Error)
	switch e := a.Event.(type) {
	case policy.Arrival:
		m.Type, m.Round = msgArrive, e.Round
		w.buffers.Arrived()
		err = w.learner.Arrived()
	case policy.Reduced:
		m.Type, m.Round, m.Epoch = msgReduced, e.Round, e.Epoch
	case policy.ReduceFailed:
		m.Type, m.Round, m.Epoch, m.Peer, m.Alone = msgReduceFailed, e.Round, e.Epoch, e.Peer, e.Alone
	case policy.StateFetched:
		m.Type, m.OuterSteps, m.Agreed = msgFetched, e.OuterSteps, e.Agreed
	case policy.FetchFailed:
		m.Type = msgFetchFailed
	case policy.Leave:
		m.Type = msgLeave
	}
	w.coordinator.session.send(m)
	w.details = message{}
	return err
}

// stop ends everything under way.
func (w *workerDriver) stop() {
	stop(&w.task)
	stop(&w.reduction)
}

func peerIDs(peers []peer) []policy.ID {
	ids := make([]policy.ID, len(peers))
	for i, p := range peers {
		ids[i] = p.ID
	}
	return ids
}
