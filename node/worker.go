package node

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"testbed/allreduce"
	"testbed/allreduce/quicring"
	"testbed/policy"
	"testbed/runlog"
	"testbed/scenarios"
)

// partingPatience bounds how long a worker waits for the coordinator to
// acknowledge its last words.
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
	Save func(write func(io.Writer) (Checkpoint, error)) error
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
	n := cfg.Scenario.Real.Parameters
	w := &worker{
		cfg: cfg, spec: spec, scale: cfg.Scenario.Real.TimeScale,
		model: newModel(cfg.Scenario.Seed, cfg.ID, n),
		grad:  make([]float32, n), mean: make([]float32, n),
		rng: cfg.Scenario.StepRand(cfg.ID), results: make(chan result, 1),
		still: newStillness(),
	}
	w.greeting = message{Type: msgHello, Protocol: protocol, ID: cfg.ID, Ring: addrPort(cfg.Ring), Fetch: addrPort(cfg.Fetch)}
	w.setFactor(1)
	defer w.saving.Wait()
	reduce := cfg.Scenario.Real.AllReduce
	if cfg.Scenario.Policy.StalenessWeight > 0 {
		w.late, w.fresh = make([]float32, n), make([]float32, n)
	}
	if reduce.ErrorFeedback {
		w.residual, w.lost = make([]float32, n), make([]float32, n)
	}
	if cfg.Restore != nil {
		if err := w.restore(cfg.Restore); err != nil {
			return err
		}
	}
	ringConfig := quicring.Config{
		Conn: cfg.Ring, TLS: cfg.TLS, Logger: cfg.Log, Connections: reduce.Connections,
		Bits: reduce.Bits, Block: reduce.Block, Entropy: quicring.Entropy(reduce.Entropy), Near: cfg.Near,
		PacketSize: initialPacket,
	}
	if cfg.Tracing != nil {
		ringConfig.Tracer = cfg.Tracing("ring")
	}
	ring, err := quicring.Listen(ringConfig)
	if err != nil {
		return err
	}
	defer ring.Close()
	w.ring = ring
	busy := func() bool { return w.reducing.Load() != nil }
	if w.donor, err = newDonor(cfg.Fetch, cfg.TLS, w.model, busy, cfg.Tracing, cfg.Log); err != nil {
		return err
	}
	w.fetcher = fetcher{transport: w.donor.transport, tls: cfg.TLS, model: w.model, tracing: cfg.Tracing, log: cfg.Log}
	defer w.donor.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go w.donor.serve(ctx)
	w.cfg.Report(Report{Ready: true})
	if err := w.awaitJoin(ctx); err != nil {
		return err
	}
	return w.run(ctx)
}

type worker struct {
	cfg      WorkerConfig
	spec     scenarios.Worker
	scale    float64
	model    *model
	ring     *quicring.Endpoint
	donor    *donor
	fetcher  fetcher
	session  session
	greeting message // hello
	rng      *rand.Rand
	factor   atomic.Uint64 // bits of the slowness
	queued   []Command     // due before the first inner step has begun

	still *stillness

	began   time.Time    // estimate of the local time of scenario time 0
	oneWay  atomic.Int64 // half a round trip to the coordinator, in ns
	stepped bool         // an inner step has begun

	grad      []float32 // pseudo-gradient of gradRound
	gradRound int
	mean      []float32 // outcome of the reduction outcomeEpoch, if that is not 0
	outcome   int
	quantised *quicring.Outcome // the same, as it went over the wire
	// With error feedback, residual is what quantisation has taken from the
	// pseudo-gradients so far, and lost what it will be after the reduction
	// outcomeEpoch; else they are nil.
	residual, lost []float32
	// With a staleness weight, late is the contribution to lateRound, without
	// the residual, which no reduction has asked for; if lateRound is 0 there is
	// none. fresh is that of the running inner steps, once it is known.
	late, fresh []float32
	lateRound   int
	synced      bool // the model holds an outer state of the run

	saves  sync.Mutex // held while a checkpoint is saved
	saving sync.WaitGroup

	task    *task
	results chan result
	leaving bool

	reducing atomic.Pointer[reducing] // the running reduction, for the heartbeats
}

// reducing is a running reduction, as heartbeats tell of it.
type reducing struct {
	epoch int
	from  policy.ID // the predecessor in the ring, or this worker itself
}

// task is what the worker does in the background: inner steps, a reduction or
// a fetch. There is one at a time.
type task struct {
	kind   verb
	epoch  int
	cancel context.CancelFunc
}

// result is what a task has come to: the message to send about it.
type result struct {
	task      *task
	msg       message
	quantised *quicring.Outcome
	err       error
}

func (w *worker) setFactor(f float64) { w.factor.Store(math.Float64bits(f)) }

func (w *worker) awaitJoin(ctx context.Context) error {
	for {
		select {
		case c := <-w.cfg.Commands:
			if c.Op == OpJoin {
				return nil
			}
			w.command(c)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (w *worker) run(ctx context.Context) (err error) {
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
			l.conn.CloseWithError(codeRattle, err.Error())
		}
		l.hangUp(partingPatience)
	}()
	w.speak(ctx, l, inbox, lost)
	for {
		select {
		case m := <-inbox:
			done, err := w.receive(ctx, m)
			switch {
			case err != nil:
				return err
			case done && m.Type == msgFinish:
				return w.part(ctx, inbox, lost)
			case done:
				return nil // evicted: nobody waits for its last words
			}
		case r := <-w.results:
			w.finished(r)
		case c := <-w.cfg.Commands:
			w.command(c)
			w.leave()
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
func (w *worker) connect(ctx context.Context, transport *quic.Transport) (*line, error) {
	config := w.cfg.Tracing.add(controlQUIC(), "control")
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

func (w *worker) dial(ctx context.Context, transport *quic.Transport, config *quic.Config) (*line, error) {
	conn, err := transport.Dial(ctx, net.UDPAddrFromAddrPort(w.cfg.Coordinator), withALPN(w.cfg.TLS, controlALPN, scenarios.Coordinator), config)
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
func (w *worker) speak(ctx context.Context, l *line, inbox chan<- message, lost chan<- error) {
	hello := w.greeting
	w.oneWay.Store(int64(l.conn.ConnectionStats().MinRTT / 2))
	w.session.attach(l, &hello, nil)
	go func() { lost <- w.read(ctx, l, inbox) }()
	go w.beat(ctx, l.conn)
}

// beat sends heartbeats until ctx or the connection ends.
func (w *worker) beat(ctx context.Context, conn *quic.Conn) {
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

func (w *worker) read(ctx context.Context, l *line, inbox chan<- message) error {
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
// worker's last words.
func (w *worker) part(ctx context.Context, inbox <-chan message, lost <-chan error) error {
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

// receive carries out a message; done says that the run is over for this
// worker.
func (w *worker) receive(ctx context.Context, m message) (done bool, err error) {
	switch fresh, ok := w.session.heed(m); {
	case !ok:
		return false, fmt.Errorf("the coordinator's order %d follows %d", m.Seq, w.session.heard)
	case !fresh:
		return false, nil
	}
	switch m.Type {
	case msgStart:
		return false, w.start(ctx, m)
	case msgReduce:
		w.reduce(ctx, m)
	case msgAbort:
		if w.outcome == m.Epoch {
			w.outcome = 0
		}
		if w.task != nil && w.task.kind == msgReduce && w.task.epoch == m.Epoch {
			w.stop()
		}
	case msgFetch:
		w.fetch(ctx, m)
	case msgEvict:
		w.cfg.Log.Info("evicted", "reason", m.Error)
		return true, nil
	case msgFinish:
		w.stop()
		if w.outcome != 0 && m.OuterSteps > 0 {
			if err := w.apply(m.OuterSteps); err != nil {
				return false, err
			}
			w.session.say(w.describeState())
		}
		return true, nil
	default:
		w.cfg.Log.Warn("unknown message", "type", m.Type)
	}
	return false, nil
}

// command carries out a word from whoever started the worker. A change of
// speed at the very time of the join comes after the first step has begun, as
// in the simulator.
func (w *worker) command(c Command) {
	switch {
	case c.Op == OpLeave:
		w.leaving = true
	case c.Op == OpPause:
		w.still.set(true)
		w.cfg.Report(Report{Paused: true})
	case c.Op == OpResume:
		w.still.set(false)
	case c.Op != OpSlow && c.Op != OpRestore:
	case !w.stepped && c.At <= w.spec.JoinAt:
		w.queued = append(w.queued, c)
	case c.Op == OpSlow:
		w.setFactor(c.Factor)
	default:
		w.setFactor(1)
	}
}

// leave says goodbye, but for a worker that takes part in a reduction: it
// departs when that is over. The coordinator answers with an eviction.
func (w *worker) leave() {
	if !w.leaving || w.outcome != 0 || w.task != nil && w.task.kind == msgReduce {
		return
	}
	w.leaving = false
	w.stop()
	w.session.say(message{Type: msgLeave})
}

// spawn begins a task; it ends the one before.
func (w *worker) spawn(ctx context.Context, kind verb, epoch int, do func(context.Context) result) {
	w.stop()
	ctx, cancel := context.WithCancel(ctx)
	t := &task{kind: kind, epoch: epoch, cancel: cancel}
	w.task = t
	go func() {
		r := do(ctx)
		r.task = t
		w.results <- r
	}()
}

// stop ends the running task and waits for it; its result is dropped.
func (w *worker) stop() {
	if w.task != nil {
		w.task.cancel()
		<-w.results
		w.task = nil
	}
}

// finished takes over the result of a task that came to its end by itself.
func (w *worker) finished(r result) {
	t := w.task
	t.cancel()
	w.task = nil
	switch {
	case r.err != nil && t.kind == msgReduce:
		w.cfg.Log.Warn("reduction failed", "epoch", t.epoch, "err", r.err)
	case r.err != nil:
		w.cfg.Log.Warn("task failed", "task", t.kind, "err", r.err)
	case t.kind == msgStart && w.late != nil:
		w.late, w.fresh, w.lateRound = w.fresh, w.late, w.gradRound
	case t.kind == msgReduce:
		w.outcome, w.quantised = t.epoch, r.quantised
	case t.kind == msgFetch:
		w.synced = true
	}
	w.session.say(r.msg)
	w.leave()
}

// apply takes the outer step to the given version with the pending outcome.
func (w *worker) apply(outerSteps int) error {
	if have, _ := w.model.version(); have != outerSteps-1 {
		return fmt.Errorf("asked to take outer step %d while at %d", outerSteps, have)
	}
	w.model.outerStep(w.mean, w.quantised)
	w.residual, w.lost = w.lost, w.residual
	w.outcome = 0
	return nil
}

func (w *worker) describeState() message {
	steps, _ := w.model.version()
	return message{Type: msgStepped, OuterSteps: steps, Hash: w.model.stateHash(), Loss: w.model.loss()}
}

// start begins a round, after the outer step of the round before.
func (w *worker) start(ctx context.Context, m message) error {
	w.stop()
	if l := w.session.current(); l != nil {
		w.oneWay.Store(int64(l.conn.ConnectionStats().MinRTT / 2))
	}
	if w.began.IsZero() {
		w.began = m.received.Add(-time.Duration(w.oneWay.Load()) - w.cfg.Scenario.RealDuration(m.Now))
	}
	applied := false
	if have, _ := w.model.version(); have < m.OuterSteps && w.outcome != 0 {
		if err := w.apply(m.OuterSteps); err != nil {
			return err
		}
		applied = true
	}
	if have, _ := w.model.version(); have != m.OuterSteps {
		return fmt.Errorf("asked to begin round %d from outer step %d while at %d", m.Round, m.OuterSteps, have)
	}
	w.outcome, w.synced = 0, true
	if m.Checkpoint || m.Residual {
		w.checkpoint(!m.Checkpoint)
	}
	if w.leaving {
		w.leave()
		return nil
	}
	first := w.stepDuration()
	w.stepped = true
	for _, c := range w.queued {
		w.command(c)
	}
	w.queued = nil
	w.spawn(ctx, msgStart, 0, func(ctx context.Context) result {
		return w.innerSteps(ctx, m, first, applied)
	})
	return nil
}

func (w *worker) stepDuration() time.Duration {
	return w.cfg.Scenario.RealDuration(w.spec.Step(w.rng, math.Float64frombits(w.factor.Load())))
}

// innerSteps runs the inner steps of a round. The arithmetic is real but
// short; the rest of each step's time passes as the scenario says. The first
// step's time counts from the word to start, so that applying the outer step
// and computing the pseudo-gradient lie within the time of the steps, and
// workers that share few processors still arrive together.
func (w *worker) innerSteps(ctx context.Context, start message, duration time.Duration, applied bool) result {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	begin := start.received
	for step := 1; ; step++ {
		if applied && step == 1 {
			w.session.say(w.describeState())
		}
		w.model.innerStep()
		last := step == w.cfg.Scenario.InnerSteps
		if last {
			w.contribute(start.Round)
		}
		stood, err := w.pass(ctx, timer, begin, duration)
		if err != nil {
			return result{err: err}
		}
		end := time.Now()
		took := end.Sub(begin) - stood
		late := took - duration
		w.cfg.Report(Report{Lateness: &late, Event: &runlog.Event{
			T: w.scenarioTime(end.Sub(w.began)), Type: runlog.Step, Node: scenarios.NodeName(w.cfg.ID),
			Round: start.Round, Step: step, Duration: w.scenarioTime(took),
			ClockError: w.scenarioTime(time.Duration(w.oneWay.Load())),
		}})
		if last {
			return result{msg: message{Type: msgArrive, Round: start.Round}}
		}
		begin, duration = end, w.stepDuration()
	}
}

// contribute makes the contribution to a round: the pseudo-gradient, what came
// too late for a round before, and what quantisation has taken from others.
func (w *worker) contribute(round int) {
	w.model.pseudoGradient(w.grad)
	if w.lateRound > 0 {
		weight := float32(w.cfg.Scenario.Policy.StalenessWeight)
		for i, x := range w.late {
			w.grad[i] += float32(weight * x)
		}
		w.cfg.Log.Info("a late contribution is added", "of_round", w.lateRound, "to_round", round, "weight", weight)
	}
	copy(w.fresh, w.grad)
	for i, x := range w.residual {
		w.grad[i] += x
	}
	w.gradRound = round
}

// pass waits until a time has passed since begin in which the worker was not
// paused, and returns how long it was.
func (w *worker) pass(ctx context.Context, timer *time.Timer, begin time.Time, d time.Duration) (time.Duration, error) {
	for {
		stood, paused, changed := w.still.since(begin)
		timer.Stop()
		if !paused {
			timer.Reset(time.Until(begin.Add(d + stood)))
		}
		select {
		case <-timer.C:
			return stood, nil
		case <-changed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (w *worker) scenarioTime(d time.Duration) policy.Time {
	return policy.Time(float64(d) / 1e3 / w.scale)
}

func (w *worker) reduce(ctx context.Context, m message) {
	failed := func(err error) message {
		failure := message{Type: msgReduceFailed, Round: m.Round, Epoch: m.Epoch, Error: err.Error()}
		if at, ok := errors.AsType[*quicring.PeerError](err); ok {
			for _, p := range m.Peers {
				if scenarios.NodeName(p.ID) == at.Peer {
					failure.Peer = &p.ID
				}
			}
		}
		return failure
	}
	rank := slices.IndexFunc(m.Peers, func(p peer) bool { return p.ID == w.cfg.ID })
	w.stop()
	if m.Zero && rank >= 0 { // it has just joined
		clear(w.grad)
		w.gradRound = m.Round
	}
	if rank < 0 || w.gradRound != m.Round {
		w.session.say(failed(errors.New("this worker has no contribution to the round")))
		return
	}
	// Whatever becomes of the reduction, a state that this worker may fetch
	// later can contain the contribution.
	w.lateRound = 0
	op := quicring.Op{Epoch: uint64(m.Epoch), Round: m.Round, Rank: rank, Residual: w.lost}
	op.Algorithm, _ = allreduce.ParseAlgorithm(w.cfg.Scenario.Real.AllReduce.Algorithm) // the scenario is valid
	ids := make([]policy.ID, len(m.Peers))
	for k, p := range m.Peers {
		ids[k] = p.ID
		op.Peers = append(op.Peers, quicring.Peer{Name: scenarios.NodeName(p.ID), Addr: p.Addr})
	}
	if op.Algorithm == allreduce.Hierarchical {
		op.Groups = w.cfg.Scenario.Groups(ids)
	}
	w.outcome = 0
	from := m.Peers[(rank+len(m.Peers)-1)%len(m.Peers)].ID
	if op.Algorithm == allreduce.Direct {
		from = w.cfg.ID // from everybody: no one to name
	}
	w.reducing.Store(&reducing{m.Epoch, from})
	w.spawn(ctx, msgReduce, m.Epoch, func(ctx context.Context) result {
		defer w.reducing.Store(nil)
		r, err := w.ring.Reduce(ctx, op, w.grad, w.mean)
		if err != nil {
			return result{err: err, msg: failed(err)}
		}
		w.cfg.Report(Report{Event: &runlog.Event{
			T: w.scenarioTime(time.Since(w.began)), Type: runlog.Reduced, Node: scenarios.NodeName(w.cfg.ID),
			Round: m.Round, Epoch: m.Epoch, Duration: w.scenarioTime(r.Total), ReduceScatter: w.scenarioTime(r.ReduceScatter),
			BytesSent: r.BytesSent, BytesReceived: r.BytesReceived, ClockError: w.scenarioTime(time.Duration(w.oneWay.Load())),
		}})
		return result{quantised: r.Outcome, msg: message{
			Type: msgReduced, Round: m.Round, Epoch: m.Epoch, Hash: hashFloats(w.mean), Bytes: r.BytesSent, Took: r.Total,
		}}
	})
}

// fetch gets the outer state from peers; whatever the worker was doing is
// dropped.
func (w *worker) fetch(ctx context.Context, m message) {
	w.stop()
	w.outcome = 0
	if len(m.Peers) == 0 {
		w.session.say(message{Type: msgFetchFailed, Error: "no donor given"})
		return
	}
	var sources []source
	for _, p := range m.Peers {
		sources = append(sources, source{scenarios.NodeName(p.ID), p.Addr})
	}
	w.spawn(ctx, msgFetch, 0, func(ctx context.Context) result {
		begin := time.Now()
		bytes, err := w.fetcher.fetch(ctx, sources, m.OuterSteps, w.synced)
		if err != nil {
			return result{err: err, msg: message{Type: msgFetchFailed, Error: err.Error()}}
		}
		steps, _ := w.model.version()
		return result{msg: message{Type: msgFetched, OuterSteps: steps, Bytes: bytes, Took: time.Since(begin)}}
	})
}
