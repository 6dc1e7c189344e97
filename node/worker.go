package node

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"testbed/allreduce/quicring"
	"testbed/node/identity"
	"testbed/node/state"
	"testbed/policy"
	"testbed/scenarios"
	"testbed/worker"
)

// partingPatience bounds how long a worker waits for the coordinator to
// acknowledge its last message.
const partingPatience = 2 * time.Second

// WorkerConfig is what a worker needs to know.
type WorkerConfig struct {
	Scenario    *scenarios.Scenario
	ID          policy.ID
	Coordinator netip.AddrPort
	// Control, Ring and Fetch are the sockets of the control connection, the
	// all-reduce and the state transfer. The worker closes them.
	Control, Ring, Fetch net.PacketConn
	TLS                  *tls.Config
	// Near is as in quicring.Config.
	Near bool
	// Run names the run in its checkpoints.
	Run string
	// Save, if given, keeps a checkpoint: it has write write one, and keeps it if
	// that returns no error. It is called from one goroutine at a time.
	Save func(write func(io.Writer) (state.Checkpoint, error)) error
	// Restore is a checkpoint to begin from. Nil: the initial state of the run.
	Restore io.Reader
	// Residual is the worker's own checkpoint besides, of its residual. Nil: it
	// has none.
	Residual io.Reader
	// Commands come from whoever started the worker; OpJoin is the first thing
	// it waits for.
	Commands <-chan Command
	Tracing  Tracing
	Log      *slog.Logger
	// Report is called with what happens to the worker, from several
	// goroutines.
	Report func(Report)
}

// RunWorker plays one worker until the run ends for it: finished, evicted or
// left. It returns an error if it could not do its work.
func RunWorker(ctx context.Context, cfg WorkerConfig) error {
	spec, ok := cfg.Scenario.Worker(cfg.ID)
	if !ok {
		return fmt.Errorf("worker %d is not in the scenario", cfg.ID)
	}
	w := &workerDriver{
		cfg: cfg, spec: spec,
		machine: worker.New(cfg.ID, cfg.Scenario.InnerSteps),
		model:   state.NewModel(cfg.Scenario.Seed, cfg.ID, cfg.Scenario.Real.Parameters),
		buffers: newBuffers(cfg.Scenario),
		rng:     cfg.Scenario.StepRand(cfg.ID), results: make(chan result, 1),
		pauses: newPauses(),
	}
	w.greeting = message{Type: msgHello, Protocol: protocol, ID: cfg.ID, Ring: addrPort(cfg.Ring), Fetch: addrPort(cfg.Fetch)}
	defer w.saving.Wait()
	reduce := cfg.Scenario.Real.AllReduce
	if cfg.Restore != nil {
		if err := w.restore(cfg.Restore); err != nil {
			return err
		}
	}
	ringConfig := quicring.Config{
		Conn: cfg.Ring, TLS: cfg.TLS, Logger: cfg.Log, Connections: reduce.Connections,
		Bits: reduce.Bits, Block: reduce.Block, Entropy: quicring.Entropy(reduce.Entropy), Near: cfg.Near,
		PacketSize: initialPacket, Tracer: cfg.Tracing.of("ring"),
	}
	ring, err := quicring.Listen(ringConfig)
	if err != nil {
		return err
	}
	defer ring.Close()
	w.ring = ring
	w.states, err = state.Listen(state.Config{
		Conn: cfg.Fetch, TLS: cfg.TLS, Log: cfg.Log, Outer: w.model.Outer, Busy: func() bool { return w.reducing.Load() != nil },
		PacketSize: initialPacket, Tracer: cfg.Tracing.of("state"),
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

// workerDriver drives a worker's machine: it hears the coordinator and whoever
// started the worker, and carries out what the machine decides. All of it
// belongs to the goroutine of run, but for what is said to be shared; tasks get
// what they need handed over.
type workerDriver struct {
	cfg     WorkerConfig
	spec    scenarios.Worker
	machine *worker.Machine
	rng     *rand.Rand // draws the durations of inner steps
	results chan result
	task    *task // under way, or nil

	session  session
	greeting message   // hello
	peers    []peer    // of the reduction or fetch that was last asked for
	details  message   // what else is to be said of the end of a task
	began    time.Time // estimate of the local time of scenario time 0
	stepFrom time.Time // when the inner step under way began

	buffers *buffers // nil while a task has them

	model  *state.Model // its Outer is shared, and locks itself
	ring   *quicring.Endpoint
	states *state.Endpoint // shared, but for Fetch, which only tasks call
	pauses *pauses         // shared: it locks itself

	oneWay   atomic.Int64             // shared: half a round trip to the coordinator, in ns
	reducing atomic.Pointer[reducing] // shared: the reduction under way, for heartbeats and the donor

	saves  sync.Mutex // held while a checkpoint is saved
	saving sync.WaitGroup
}

// reducing is a running reduction, as heartbeats tell of it.
type reducing struct {
	epoch int
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
			if _, err := w.command(ctx, c); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (w *workerDriver) run(ctx context.Context) (err error) {
	transport := &quic.Transport{Conn: w.cfg.Control}
	defer func() {
		transport.Close()
		w.cfg.Control.Close()
	}()
	l, err := w.connect(ctx, transport)
	if err != nil {
		return err
	}
	defer func() {
		if l != nil {
			l.conn.CloseWithError(0, "")
		}
	}()
	inbox := make(chan message)
	lost := make(chan error, 1)
	type connected struct {
		line *line
		err  error
	}
	back := make(chan connected, 1)
	ctx, cancel := context.WithCancel(ctx)
	var connecting sync.WaitGroup
	defer func() {
		cancel()
		connecting.Wait()
		select {
		case c := <-back: // too late
			if c.err == nil {
				l = c.line
			}
		default:
		}
	}()
	defer func() {
		w.stop()
		if l == nil {
			return
		}
		if err != nil {
			// Before the stream ends: its end alone reads as a lost connection.
			l.conn.CloseWithError(codeGaveUp, err.Error())
		}
		l.hangUp(partingPatience)
	}()
	w.speak(ctx, l, inbox, lost)
	for {
		select {
		case m := <-inbox:
			end, err := w.receive(ctx, m)
			switch {
			case err != nil:
				return err
			case end != nil && !end.Evicted:
				return w.part(ctx, inbox, lost)
			case end != nil:
				return nil // nobody waits for its last message
			}
		case r := <-w.results:
			if err := w.finished(ctx, r); err != nil {
				return err
			}
		case c := <-w.cfg.Commands:
			if _, err := w.command(ctx, c); err != nil {
				return err
			}
		case err := <-lost:
			if !isAbsence(err) {
				return fmt.Errorf("the connection to the coordinator was lost: %w", err)
			}
			w.cfg.Log.Info("the coordinator does not know this connection any more", "err", err)
			w.session.detach().hangUp(0)
			l = nil
			connecting.Go(func() {
				l, err := w.connect(ctx, transport)
				back <- connected{l, err}
			})
		case c := <-back:
			if c.err != nil {
				return c.err
			}
			l = c.line
			w.speak(ctx, l, inbox, lost)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// connect dials the coordinator, if it is not there again and again, for as long
// as coordinatorPatience.
func (w *workerDriver) connect(ctx context.Context, transport *quic.Transport) (*line, error) {
	config := controlQUIC(w.cfg.Tracing)
	if rtt := 2 * time.Duration(w.oneWay.Load()); rtt > 0 {
		config.HandshakeIdleTimeout = min(max(shortestAttempt, 8*rtt), config.HandshakeIdleTimeout)
	}
	giveUp := time.Now().Add(coordinatorPatience)
	for wait := shortestWait; ; wait = min(2*wait, longestWait) {
		l, err := w.dial(ctx, transport, config)
		switch {
		case err == nil:
			return l, nil
		case !isAbsence(err) || time.Now().After(giveUp):
			return nil, fmt.Errorf("connecting to the coordinator at %s: %w", w.cfg.Coordinator, err)
		}
		w.cfg.Log.Info("the coordinator does not answer", "err", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// How a worker connects again: it soon gives an attempt up, since within one it
// would ask ever more seldom, and waits longer before each up to longestWait.
const (
	shortestAttempt = 500 * time.Millisecond
	shortestWait    = 50 * time.Millisecond
	longestWait     = 250 * time.Millisecond
)

func (w *workerDriver) dial(ctx context.Context, transport *quic.Transport, config *quic.Config) (*line, error) {
	conn, err := transport.Dial(ctx, net.UDPAddrFromAddrPort(w.cfg.Coordinator), identity.For(w.cfg.TLS, controlALPN, scenarios.Coordinator), config)
	if err != nil {
		return nil, err
	}
	stream, err := conn.OpenStreamSync(ctx)
	if err != nil {
		conn.CloseWithError(0, "")
		return nil, err
	}
	return newLine(conn, stream), nil
}

// speak begins to talk over a line, with what was not heard over the one before.
func (w *workerDriver) speak(ctx context.Context, l *line, inbox chan<- message, lost chan<- error) {
	hello := w.greeting
	w.oneWay.Store(int64(l.conn.ConnectionStats().MinRTT / 2))
	w.session.attach(l, &hello, nil)
	go func() { lost <- w.read(ctx, l, inbox) }()
	go w.beat(ctx, l.conn)
}

// beat sends heartbeats until ctx or the connection ends.
func (w *workerDriver) beat(ctx context.Context, conn *quic.Conn) {
	ticker := time.NewTicker(max(time.Millisecond, w.cfg.Scenario.RealDuration(w.cfg.Scenario.HeartbeatPeriod)))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			m := message{Type: msgHeartbeat}
			if r := w.reducing.Load(); r != nil {
				m.Epoch, m.Peer, m.Bytes = r.epoch, &r.from, w.ring.Received()
			}
			b, err := json.Marshal(m)
			if err != nil {
				panic(err) // plain data
			}
			if err := conn.SendDatagram(b); err != nil {
				return // the reader of the connection tells
			}
		case <-conn.Context().Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

func addrPort(c net.PacketConn) netip.AddrPort {
	a, _ := netip.ParseAddrPort(c.LocalAddr().String())
	return a
}

func (w *workerDriver) read(ctx context.Context, l *line, inbox chan<- message) error {
	for {
		m, err := readMessage(l.in)
		if err != nil {
			return err
		}
		m.received = time.Now()
		select {
		case inbox <- m:
		case <-ctx.Done():
			return nil
		}
	}
}

// part waits until the coordinator has closed its side: then it has read this
// worker's last message.
func (w *workerDriver) part(ctx context.Context, inbox <-chan message, lost <-chan error) error {
	w.stop()
	timeout := time.After(partingPatience)
	for {
		select {
		case <-inbox:
		case <-lost:
			return nil
		case <-timeout:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// receive carries out a message of the coordinator. It returns the end, if the
// run is over for this worker.
func (w *workerDriver) receive(ctx context.Context, m message) (*worker.End, error) {
	switch fresh, ok := w.session.accept(m); {
	case !ok:
		return nil, fmt.Errorf("the coordinator's message %d follows %d", m.Seq, w.session.heard)
	case !fresh:
		return nil, nil
	}
	switch m.Type {
	case msgStart:
		w.started(m)
		return w.step(ctx, worker.Start{Round: m.Round, OuterSteps: m.OuterSteps, Checkpoint: m.Checkpoint, Residual: m.Residual})
	case msgReduce:
		w.peers = m.Peers
		return w.step(ctx, worker.Reduce{Round: m.Round, Epoch: m.Epoch, Ring: peerIDs(m.Peers), Zero: m.Zero})
	case msgAbort:
		return w.step(ctx, worker.Abort{Epoch: m.Epoch})
	case msgFetch:
		w.peers = m.Peers
		return w.step(ctx, worker.Fetch{OuterSteps: m.OuterSteps, Donors: peerIDs(m.Peers)})
	case msgEvict:
		w.cfg.Log.Info("evicted", "reason", m.Error)
		return w.step(ctx, worker.Evict{})
	case msgFinish:
		return w.step(ctx, worker.Finish{OuterSteps: m.OuterSteps})
	}
	w.cfg.Log.Warn("unknown message", "type", m.Type)
	return nil, nil
}

// started takes the time from the message that starts a round.
func (w *workerDriver) started(m message) {
	if l := w.session.current(); l != nil {
		w.oneWay.Store(int64(l.conn.ConnectionStats().MinRTT / 2))
	}
	if w.began.IsZero() {
		w.began = m.received.Add(-time.Duration(w.oneWay.Load()) - w.cfg.Scenario.RealDuration(m.Now))
	}
	w.stepFrom = m.received
}

// command carries out a command of whoever started the worker.
func (w *workerDriver) command(ctx context.Context, c Command) (*worker.End, error) {
	atJoin := c.At <= w.spec.JoinAt
	switch c.Op {
	case OpLeave:
		return w.step(ctx, worker.Leave{})
	case OpSlow:
		return w.step(ctx, worker.Slow{Factor: c.Factor, AtJoin: atJoin})
	case OpRestore:
		return w.step(ctx, worker.Restore{AtJoin: atJoin})
	case OpPause:
		w.pauses.set(true)
		w.cfg.Report(Report{Paused: true})
	case OpResume:
		w.pauses.set(false)
	}
	return nil, nil
}

// finished takes over the result of a task that came to its end by itself.
func (w *workerDriver) finished(ctx context.Context, r result) error {
	w.task.cancel()
	w.task, w.buffers, w.details = nil, r.buffers, r.details
	if r.fetched != nil {
		w.model.Replace(r.fetched)
	}
	w.stepFrom = r.ended
	_, err := w.step(ctx, r.event)
	return err
}

// step gives the machine an event and carries out what it decides.
func (w *workerDriver) step(ctx context.Context, e worker.Event) (end *worker.End, err error) {
	for _, a := range w.machine.Step(e) {
		switch a := a.(type) {
		case *worker.Stop:
			w.stop()
		case *worker.Apply:
			w.apply()
		case *worker.Save:
			w.checkpoint(a.Stateless)
		case *worker.BeginStep:
			w.beginStep(ctx, a)
		case *worker.BeginReduce:
			w.beginReduce(ctx, a)
		case *worker.BeginFetch:
			w.beginFetch(ctx, a)
		case *worker.Say:
			w.say(a)
		case *worker.End:
			end = a
		case *worker.GiveUp:
			err = errors.New(a.Problem)
		}
	}
	return end, err
}

// say tells the coordinator. What else there is to tell of the end of a task is
// in details.
func (w *workerDriver) say(a *worker.Say) {
	m := w.details
	m.Error = cmp.Or(a.Problem, m.Error)
	switch e := a.Event.(type) {
	case policy.Arrival:
		m.Type, m.Round = msgArrive, e.Round
		w.buffers.late, w.buffers.fresh = w.buffers.fresh, w.buffers.late
	case policy.Reduced:
		m.Type, m.Round, m.Epoch = msgReduced, e.Round, e.Epoch
	case policy.ReduceFailed:
		m.Type, m.Round, m.Epoch, m.Peer = msgReduceFailed, e.Round, e.Epoch, e.Peer
	case policy.StateFetched:
		m.Type, m.OuterSteps = msgFetched, e.OuterSteps
	case policy.FetchFailed:
		m.Type = msgFetchFailed
	case policy.Leave:
		m.Type = msgLeave
	}
	w.session.say(m)
	w.details = message{}
}

func peerIDs(peers []peer) []policy.ID {
	ids := make([]policy.ID, len(peers))
	for i, p := range peers {
		ids[i] = p.ID
	}
	return ids
}
