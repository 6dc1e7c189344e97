// Package node is what runs inside a node of the network: the worker, the
// coordinator, the control protocol between them and the transfer of the outer
// state. It does not know which world it is in and starts no process.
package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/quic-go/quic-go"

	"testbed/node/identity"
	"testbed/policy"
	"testbed/runlog"
	"testbed/scenarios"
)

// endPatience bounds how long the coordinator waits for the last messages of the
// workers after the last outer step, and of one that it has evicted.
const endPatience = 10 * time.Second

// gatherPatience is how long the coordinator waits for another of the workers
// that start the run, after one has come, before it begins without the rest: a
// handshake takes no longer, be it that of many at once on a slow machine.
const gatherPatience = 10 * time.Second

// CoordinatorConfig is what a coordinator needs to know.
type CoordinatorConfig struct {
	Scenario *scenarios.Scenario
	Policy   string
	Links    string         // the link backend, for the record
	Delays   RingDelays     // what rings are ordered by
	Conn     net.PacketConn // where it listens; the coordinator closes it
	TLS      *tls.Config
	Tracing  Tracing
	Log      *slog.Logger
	// Unreachable gives addresses to which packets of Conn could not be
	// delivered because nobody listens there. Nil: the network never says.
	Unreachable <-chan netip.AddrPort
	// Report is called with the record of the run, from one goroutine.
	Report func(Report)
	// Run names the run in its journal.
	Run string
	// Journal is where the coordinator writes what it learns. With the journal
	// of one that has died, and its credentials and address, it takes its
	// place. Nil: it cannot be replaced.
	Journal Journal
	// Reported is the number of the last event that was reported before.
	Reported int
	// Resume is given if the workers have died too.
	Resume *Resume
}

// RunCoordinator plays the coordinator of one run until the policy machine
// finishes it, the horizon is reached, or ctx ends. It returns an error if it
// could not do its work; a run that stayed incomplete is no error.
func RunCoordinator(ctx context.Context, cfg CoordinatorConfig) error {
	machineConfig, err := cfg.Scenario.RealMachine(cfg.Policy)
	if err != nil {
		return err
	}
	machine, err := policy.New(machineConfig)
	if err != nil {
		return err
	}
	transport := &quic.Transport{Conn: cfg.Conn}
	if transport.StatelessResetKey, err = resetKey(cfg.TLS); err != nil {
		return err
	}
	defer func() {
		transport.Close()
		cfg.Conn.Close()
	}()
	quicConfig := controlQUIC(cfg.Tracing)
	if cfg.Scenario.Real.HeedUnreachable {
		// Whoever is silent for a period is pinged: where nobody listens any
		// more, the network says so.
		quicConfig.KeepAlivePeriod = max(time.Millisecond, cfg.Scenario.RealDuration(cfg.Scenario.HeartbeatPeriod))
	} else {
		cfg.Unreachable = nil
	}
	listener, err := transport.Listen(identity.For(cfg.TLS, controlALPN, ""), quicConfig)
	if err != nil {
		return fmt.Errorf("listening for workers on %s: %w", cfg.Conn.LocalAddr(), err)
	}
	defer listener.Close()
	c := &coordinator{
		cfg: cfg, scenario: cfg.Scenario, machine: machine,
		inbox: make(chan received, 4*outboxMessages), quit: make(chan struct{}),
		workers:      map[policy.ID]*remote{},
		joined:       map[policy.ID]bool{},
		participants: map[int][]policy.ID{},
		outcomes:     map[int]map[policy.ID]message{},
		states:       map[int]map[policy.ID]message{},
		t:            cfg.Scenario.FirstJoin(), timer: time.NewTimer(time.Hour),
	}
	defer c.timer.Stop()
	if err := c.recover(); err != nil {
		return err
	}
	defer close(c.quit)
	go c.accept(ctx, listener)
	cfg.Report(Report{Ready: true})
	return c.run(ctx)
}

type coordinator struct {
	cfg       CoordinatorConfig
	scenario  *scenarios.Scenario
	machine   *policy.Machine
	inbox     chan received
	quit      chan struct{}
	workers   map[policy.ID]*remote
	absent    []policy.ID // of those that were to start the run
	t         policy.Time // of the running input
	began     time.Time   // scenario time starts here, at the first join
	started   bool
	replaying bool
	reported  int // events so far
	timer     *time.Timer
	gather    *time.Timer // since the last worker has come, before the start
	done      bool
	complete  bool
	joined    map[policy.ID]bool // the machine has been told
	// back are the workers that have come back since all nodes died; nil if
	// none is waited for.
	back map[policy.ID]bool

	epoch        int                           // of the last reduction
	participants map[int][]policy.ID           // by outer step
	outcomes     map[int]map[policy.ID]message // of reductions, by epoch
	states       map[int]map[policy.ID]message // after outer steps
	ring         *runlog.Ring                  // the last one ordered
}

// remote is a worker that has said hello.
type remote struct {
	id      policy.ID
	session *session
	ring    netip.AddrPort
	fetch   netip.AddrPort
	gone    bool // evicted: nothing more is expected from it
}

// received is a message, and who it came from over which line.
type received struct {
	id   policy.ID
	line *line
	msg  message
}

func (c *coordinator) accept(ctx context.Context, l *quic.Listener) {
	for {
		conn, err := l.Accept(ctx)
		if err != nil {
			return
		}
		go func() {
			if err := c.serve(ctx, conn); err != nil {
				c.cfg.Log.Info("control connection ended", "peer", identity.Peer(conn), "err", err)
				conn.CloseWithError(codeProtocol, "protocol error")
			}
		}()
	}
}

// serve reads the messages of one worker.
func (c *coordinator) serve(ctx context.Context, conn *quic.Conn) error {
	hello, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	stream, err := conn.AcceptStream(hello)
	if err != nil {
		return err
	}
	stream.SetReadDeadline(time.Now().Add(15 * time.Second))
	l := newLine(conn, stream)
	defer l.hangUp(0)
	m, err := readMessage(l.in)
	if err == nil {
		err = c.checkHello(conn, m)
	}
	if err != nil {
		return err
	}
	stream.SetReadDeadline(time.Time{})
	id := m.ID
	go c.receiveHeartbeats(ctx, conn, l, id)
	for c.deliver(received{id, l, m}) {
		if m, err = readMessage(l.in); err != nil {
			lost := message{Type: msgLost, Error: err.Error()}
			if e, ok := errors.AsType[*quic.ApplicationError](err); ok && e.Remote && e.ErrorCode == codeGaveUp {
				lost.Type = msgGaveUp
			}
			c.deliver(received{id, l, lost})
			return err
		}
	}
	return nil
}

// deliver puts a message into the inbox, or returns false if the run is over.
func (c *coordinator) deliver(r received) bool {
	select {
	case c.inbox <- r:
		return true
	case <-c.quit:
		return false
	}
}

// receiveHeartbeats takes the heartbeats of one worker.
func (c *coordinator) receiveHeartbeats(ctx context.Context, conn *quic.Conn, l *line, id policy.ID) {
	for {
		b, err := conn.ReceiveDatagram(ctx)
		if err != nil {
			return
		}
		m, err := parseMessage(b)
		if err == nil && m.Type != msgHeartbeat {
			err = fmt.Errorf("a datagram with the message %s", m.Type)
		}
		if err != nil {
			c.cfg.Log.Warn("not a heartbeat", "worker", id, "err", err)
			continue
		}
		if !c.deliver(received{id, l, m}) {
			return
		}
	}
}

// checkHello holds a worker to the name in its certificate and the address it
// speaks from.
func (c *coordinator) checkHello(conn *quic.Conn, m message) error {
	switch {
	case m.Type != msgHello || m.Protocol != protocol:
		return fmt.Errorf("expected hello of protocol %d, got %s of %d", protocol, m.Type, m.Protocol)
	case scenarios.NodeName(m.ID) != identity.Peer(conn):
		return fmt.Errorf("worker %d presents the certificate of %q", m.ID, identity.Peer(conn))
	case !m.Ring.IsValid() || !m.Fetch.IsValid():
		return fmt.Errorf("worker %d gives no address", m.ID)
	}
	if _, ok := c.scenario.Worker(m.ID); !ok {
		return fmt.Errorf("worker %d is not in the scenario", m.ID)
	}
	return nil
}

// now is the scenario time. It stands still until the run begins, and as long
// as it waits for workers to come back.
func (c *coordinator) now() policy.Time {
	if !c.started || c.back != nil {
		return c.t
	}
	elapsed := time.Since(c.began)
	return max(c.t, c.scenario.FirstJoin()+policy.Time(float64(elapsed)/1e3/c.scenario.Real.TimeScale))
}

// realTime is when a scenario time comes.
func (c *coordinator) realTime(t policy.Time) time.Time {
	return c.began.Add(c.scenario.RealDuration(t - c.scenario.FirstJoin()))
}

// recover takes over from the coordinator whose journal this is.
func (c *coordinator) recover() error {
	if c.cfg.Journal == nil {
		return nil
	}
	c.replaying = true
	header := journalHeader{journalVersion, c.cfg.Run, c.scenario.Name, c.cfg.Policy, c.scenario.Seed}
	if err := replay(c.cfg.Journal, header, c.apply); err != nil {
		return err
	}
	c.replaying = false
	switch {
	case c.cfg.Resume != nil:
		if !c.started {
			return errors.New("resuming the run: the coordinator's journal ends before its beginning")
		}
		return c.take(entry{T: c.t, What: halted})
	case c.started && !c.done:
		// Of the wall clock only the difference counts that it shows now.
		c.began = time.Now().Add(-time.Now().Round(0).Sub(c.began))
		return c.take(entry{T: c.now(), What: recovered})
	}
	return nil
}

func (c *coordinator) run(ctx context.Context) error {
	c.gather = time.NewTimer(gatherPatience)
	defer c.gather.Stop()
	if c.started || len(c.workers) == 0 {
		c.gather.Stop()
	}
	var horizon <-chan time.Time
	defer c.hangUp()
	for !c.done {
		// What has already arrived comes before a timer: a coordinator that was
		// held up must not call a worker late whose word lies in its inbox.
		var err error
		select {
		case r := <-c.inbox:
			if err := c.receive(r); err != nil {
				return err
			}
			continue
		default:
		}
		if c.started && c.back == nil && horizon == nil {
			horizon = time.After(time.Until(c.realTime(c.scenario.Horizon)))
		}
		select {
		case r := <-c.inbox:
			err = c.receive(r)
		case addr := <-c.cfg.Unreachable:
			for _, r := range c.workers {
				if l := r.session.current(); l != nil && l.conn.RemoteAddr().String() == addr.String() {
					err = c.take(entry{T: c.now(), What: unreachable, ID: r.id})
				}
			}
		case <-c.timer.C:
			err = c.take(entry{T: c.now(), What: timerFired})
		case <-c.gather.C:
			err = c.take(entry{T: c.now(), What: waitedOut, Began: new(time.Now())})
		case <-horizon:
			err = c.take(entry{T: c.now(), What: horizonCame})
		case <-ctx.Done():
			err = fmt.Errorf("coordinating the run: %w", context.Cause(ctx))
		}
		if err != nil {
			return err
		}
	}
	return c.awaitFinalStates(ctx)
}

// take writes an input to the journal, and then acts on it.
func (c *coordinator) take(e entry) error {
	if c.cfg.Journal != nil {
		if err := record(c.cfg.Journal, e); err != nil {
			return err
		}
	}
	c.apply(e)
	return nil
}

// apply acts on an input. It depends on nothing but the inputs so far.
func (c *coordinator) apply(e entry) {
	before := c.t
	c.t = e.T
	switch {
	case e.Msg != nil && e.Msg.Type == msgHello:
		c.hello(e)
	case e.Msg != nil:
		c.handle(e.ID, *e.Msg)
	case e.What == waitedOut:
		c.begin(*e.Began)
	case e.What == timerFired:
		c.tell(policy.Timer{})
	case e.What == unreachable:
		c.tell(policy.Unreachable{ID: e.ID})
	case e.What == horizonCame:
		c.note(runlog.Event{Type: runlog.Horizon})
		c.end(false)
	case e.What == recovered:
		c.note(runlog.Event{Type: runlog.CoordinatorBack, Duration: c.t - before})
		c.tell(policy.Recovered{})
	case e.What == halted:
		c.back = map[policy.ID]bool{}
		for _, r := range c.workers {
			r.session = &session{}
		}
	case e.What == restarted:
		c.restart(e)
	}
	if c.started && c.machine.Members() == 0 && !c.expectJoin() && !c.done {
		c.end(false)
	}
}

// restart goes on from a checkpoint.
func (c *coordinator) restart(e entry) {
	c.back, c.began, c.done = nil, *e.Began, false
	clear(c.participants)
	clear(c.outcomes)
	clear(c.states)
	c.note(runlog.Event{Type: runlog.RunResume, Round: e.Resume.OuterSteps, IDs: e.Resume.Holders, Hash: e.Resume.Hash})
	c.tell(policy.Restarted{OuterSteps: e.Resume.OuterSteps, Holders: e.Resume.Holders})
}

// expectJoin says whether a worker is still to come. One that was absent when
// the run began may come yet, but nobody waits for it.
func (c *coordinator) expectJoin() bool {
	return slices.ContainsFunc(c.scenario.Workers, func(w scenarios.Worker) bool {
		return c.workers[w.ID] == nil && !slices.Contains(c.absent, w.ID)
	})
}

// receive takes a message in, unless it is of no concern any more.
func (c *coordinator) receive(r received) error {
	m, w := r.msg, c.workers[r.id]
	if m.Type == msgHello {
		return c.welcome(r)
	}
	if w == nil || w.session.current() != r.line {
		return nil // a second connection under the same name
	}
	if m.Seq > 0 && m.Seq <= w.session.heard {
		return nil // said again after a connection was lost
	}
	return c.take(entry{T: c.now(), ID: r.id, Msg: &m})
}

// handle acts on a message of a worker.
func (c *coordinator) handle(id policy.ID, m message) {
	w := c.workers[id]
	if w == nil {
		return // the journal has been tampered with
	}
	if _, ok := w.session.accept(m); !ok {
		m = message{Type: msgLost, Error: "a message is missing"}
	}
	switch m.Type {
	case msgHeartbeat:
		if m.Peer == nil {
			c.tell(policy.Heartbeat{ID: id})
		} else {
			c.tell(policy.Progress{ID: id, Epoch: m.Epoch, Received: m.Bytes, From: *m.Peer})
		}
	case msgArrive:
		c.tell(policy.Arrival{ID: id, Round: m.Round})
	case msgReduced:
		if m.Epoch != c.epoch {
			return // aborted meanwhile
		}
		if c.outcomes[m.Epoch] == nil {
			c.outcomes[m.Epoch] = map[policy.ID]message{}
		}
		c.outcomes[m.Epoch][id] = m
		c.tell(policy.Reduced{ID: id, Round: m.Round, Epoch: m.Epoch})
	case msgReduceFailed:
		c.cfg.Log.Warn("reduction failed", "worker", id, "round", m.Round, "epoch", m.Epoch, "err", m.Error)
		c.tell(policy.ReduceFailed{ID: id, Round: m.Round, Epoch: m.Epoch, Peer: m.Peer})
	case msgStepped:
		c.stepped(id, m)
	case msgFetched:
		c.cfg.Log.Info("state fetched", "worker", id, "outer_steps", m.OuterSteps, "bytes", m.Bytes, "took", m.Took)
		c.tell(policy.StateFetched{ID: id, OuterSteps: m.OuterSteps})
	case msgFetchFailed:
		c.cfg.Log.Warn("state fetch failed", "worker", id, "err", m.Error)
		c.tell(policy.FetchFailed{ID: id})
	case msgLeave:
		c.tell(policy.Leave{ID: id})
	case msgGaveUp, msgRattle:
		c.cfg.Log.Warn("worker is giving up", "worker", id, "err", m.Error)
		c.lose(w, policy.RuleGaveUp)
	case msgLost:
		c.lose(w, policy.RuleConnection)
	default:
		c.cfg.Log.Warn("unknown message", "worker", id, "type", m.Type)
	}
}

// lose gives up a worker whose connection has ended. Of one that is no member
// any more only the name is kept: in a long run many come and go. One that is
// back all the same, because it has not heard that it was evicted, is told so.
func (c *coordinator) lose(w *remote, rule policy.Rule) {
	c.tell(policy.Lost{ID: w.id, Rule: rule})
	if w.gone {
		w.session.detach()
	}
}

// welcome takes a worker in that says hello: for the first time, or because
// this coordinator has taken the place of the one it knew.
func (c *coordinator) welcome(r received) error {
	w := c.workers[r.id]
	switch {
	case w != nil && w.session.current() != nil:
		c.cfg.Log.Warn("worker said hello twice", "worker", r.id)
		return nil
	case w == nil && r.msg.Ack > 0:
		c.cfg.Log.Warn("worker knows of orders that nobody gave", "worker", r.id)
		r.line.conn.CloseWithError(codeProtocol, "unknown worker")
		return nil
	case w != nil && c.back != nil && (r.msg.OuterSteps != c.cfg.Resume.OuterSteps || r.msg.Hash != c.cfg.Resume.Hash):
		return fmt.Errorf("worker %d has restored the state %s after outer step %d, not %s after %d",
			r.id, r.msg.Hash, r.msg.OuterSteps, c.cfg.Resume.Hash, c.cfg.Resume.OuterSteps)
	}
	e := entry{T: c.now(), ID: r.id, Msg: &r.msg}
	if w == nil {
		w = &remote{id: r.id, session: &session{}, ring: r.msg.Ring, fetch: r.msg.Fetch}
		c.workers[r.id] = w
	}
	if !c.started && c.gathered() {
		e.Began = new(time.Now())
	}
	w.session.accept(r.msg)
	w.session.attach(r.line, nil, func(m *message) {
		if m.Type == msgStart {
			m.Now = e.T
		}
	})
	if err := c.take(e); err != nil {
		return err
	}
	if c.back == nil || slices.ContainsFunc(c.cfg.Resume.Holders, func(id policy.ID) bool { return !c.back[id] }) {
		return nil
	}
	return c.take(entry{T: c.t, What: restarted, Began: new(time.Now().Add(-c.scenario.RealDuration(c.t - c.scenario.FirstJoin()))), Resume: c.cfg.Resume})
}

// gathered says whether all workers of the first hour are there.
func (c *coordinator) gathered() bool {
	return !slices.ContainsFunc(c.scenario.Workers, func(w scenarios.Worker) bool {
		return w.JoinAt == c.scenario.FirstJoin() && c.workers[w.ID] == nil
	})
}

// hello registers a worker. The run starts when all workers of the first hour
// are there; they join at the same scenario time, in order of their IDs.
func (c *coordinator) hello(e entry) {
	w := c.workers[e.ID]
	if w == nil {
		w = &remote{id: e.ID, session: &session{}, ring: e.Msg.Ring, fetch: e.Msg.Fetch}
		c.workers[e.ID] = w
	}
	w.session.accept(*e.Msg)
	switch {
	case c.back != nil:
		c.back[e.ID] = true
		return
	case c.started && c.joined[e.ID]:
		c.tell(policy.Heartbeat{ID: e.ID})
		return
	case c.started:
		c.join(policy.Join{ID: e.ID})
		return
	case e.Began == nil:
		if !c.replaying {
			c.gather.Reset(gatherPatience)
		}
		return
	}
	c.begin(*e.Began)
}

// begin starts the run with the workers that are there.
func (c *coordinator) begin(began time.Time) {
	first := c.scenario.FirstJoin()
	for _, w := range c.scenario.Workers {
		if w.JoinAt == first && c.workers[w.ID] == nil {
			c.absent = append(c.absent, w.ID)
		}
	}
	c.began, c.started = began, true
	if !c.replaying {
		c.gather.Stop()
	}
	c.note(runlog.Event{Type: runlog.RunStart, Run: &runlog.Run{
		Schema: runlog.Schema, Scenario: c.scenario.Name, Policy: c.cfg.Policy, World: runlog.Real,
		Links: c.cfg.Links, Seed: c.scenario.Seed, TimeScale: c.scenario.Real.TimeScale,
	}})
	for _, id := range c.absent {
		c.note(runlog.Event{Type: runlog.Absent, Node: scenarios.NodeName(id)})
	}
	ids := slices.Sorted(maps.Keys(c.workers))
	for _, initial := range []bool{true, false} {
		for _, id := range ids {
			if spec, _ := c.scenario.Worker(id); (spec.JoinAt == first) == initial {
				c.join(policy.Join{ID: id, HasState: initial})
			}
		}
	}
}

func (c *coordinator) join(e policy.Join) {
	c.joined[e.ID] = true
	c.tell(e)
}

func (c *coordinator) note(e runlog.Event) {
	e.T = c.t
	c.report(e)
}

// report numbers an event of the record, so that one is not recorded twice that
// this coordinator and the one before both know of.
func (c *coordinator) report(e runlog.Event) {
	c.reported++
	e.Seq = c.reported
	if c.reported > c.cfg.Reported {
		c.cfg.Report(Report{Event: &e})
	}
}

func (c *coordinator) end(complete bool) {
	c.done, c.complete = true, complete
	c.note(runlog.Event{Type: runlog.RunEnd, Complete: &complete})
}

func (c *coordinator) tell(e policy.Event) {
	if !c.started || c.done || c.back != nil {
		return
	}
	for _, a := range c.machine.Step(c.t, e) {
		c.act(c.t, a)
	}
}

// act carries out one action of the policy machine.
func (c *coordinator) act(now policy.Time, a policy.Action) {
	if step, ok := a.(*policy.OuterStep); ok {
		c.reduced(now, step)
	}
	if e, ok := runlog.FromAction(now, a); ok {
		c.orderRing(&e)
		c.report(e)
	}
	switch a := a.(type) {
	case *policy.Reject:
		c.send(a.ID, message{Type: msgEvict, Error: string(a.Rule)})
	case *policy.StartRound:
		keeper := c.keeper(a)
		for _, id := range a.IDs {
			c.send(id, message{
				Type: msgStart, Round: a.Round, OuterSteps: a.Round - 1, Now: now,
				Checkpoint: id == keeper, Residual: keeper >= 0 && c.scenario.Real.AllReduce.ErrorFeedback,
			})
		}
	case *policy.Reduce:
		c.epoch = a.Epoch
		ring := make([]peer, len(a.Participants))
		for i, id := range c.order(a.Participants) {
			ring[i] = peer{ID: id, Addr: c.workers[id].ring}
		}
		for _, id := range a.Participants {
			c.send(id, message{Type: msgReduce, Round: a.Round, Epoch: a.Epoch, Peers: ring, Zero: slices.Contains(a.Zero, id)})
		}
	case *policy.Abort:
		delete(c.outcomes, a.Epoch)
		for _, id := range a.Participants {
			c.send(id, message{Type: msgAbort, Round: a.Round, Epoch: a.Epoch})
		}
	case *policy.OuterStep:
		c.participants[a.Round] = a.Participants
	case *policy.Fetch:
		var donors []peer
		for _, id := range append([]policy.ID{a.From}, a.Helpers...) {
			donors = append(donors, peer{ID: id, Addr: c.workers[id].fetch})
		}
		c.send(a.ID, message{Type: msgFetch, Round: a.Round, OuterSteps: a.OuterSteps, Peers: donors})
	case *policy.Evict:
		c.send(a.ID, message{Type: msgEvict, Error: string(a.Rule)})
		r := c.workers[a.ID]
		r.gone = true
		if l := r.session.current(); l != nil {
			// Whoever is dead or cut off does not hang up itself.
			time.AfterFunc(endPatience, func() { l.conn.CloseWithError(0, "evicted") })
		}
		c.compareStates()
	case *policy.WakeAt:
		if !c.replaying {
			c.timer.Reset(time.Until(c.realTime(a.At)))
		}
	case *policy.Finish:
		c.done, c.complete = true, a.Complete
	}
}

// keeper is who saves a checkpoint at the beginning of a round, or -1: each
// time another one of those that took part in the outer step before.
func (c *coordinator) keeper(a *policy.StartRound) policy.ID {
	every, step := c.scenario.Real.CheckpointEvery, a.Round-1
	if every == 0 || step == 0 || step%every != 0 || a.Rule != policy.RuleNextRound {
		return -1
	}
	return a.IDs[step/every%len(a.IDs)]
}

func (c *coordinator) send(id policy.ID, m message) {
	if r := c.workers[id]; r != nil {
		r.session.say(m)
	}
}

// reduced records what the participants of a reduction reported.
func (c *coordinator) reduced(now policy.Time, a *policy.OuterStep) {
	e := runlog.Event{T: now, Type: runlog.ReduceDone, Round: a.Round, Epoch: a.Epoch, Participants: a.Participants}
	var longest time.Duration
	for _, id := range a.Participants {
		m := c.outcomes[a.Epoch][id]
		longest = max(longest, m.Took)
		e.BytesSent += m.Bytes
	}
	e.Duration = policy.Time(float64(longest) / 1e3 / c.scenario.Real.TimeScale)
	e.Hash, e.Identical = agree(c.outcomes[a.Epoch], a.Participants)
	delete(c.outcomes, a.Epoch)
	c.report(e)
}

// agree returns the first participant's hash and whether all have the same.
func agree(reports map[policy.ID]message, participants []policy.ID) (string, *bool) {
	hash, same := reports[participants[0]].Hash, true
	for _, id := range participants {
		same = same && hash != "" && reports[id].Hash == hash
	}
	return hash, &same
}

func (c *coordinator) stepped(id policy.ID, m message) {
	if c.participants[m.OuterSteps] == nil {
		return // compared already
	}
	if c.states[m.OuterSteps] == nil {
		c.states[m.OuterSteps] = map[policy.ID]message{}
	}
	c.states[m.OuterSteps][id] = m
	c.compareStates()
}

// compareStates compares the outer states of the participants of a round once
// all that are still members have applied the outer step.
func (c *coordinator) compareStates() {
	for _, step := range slices.Sorted(maps.Keys(c.participants)) {
		missing := func(id policy.ID) bool {
			_, ok := c.states[step][id]
			return !ok && !c.workers[id].gone
		}
		if !slices.ContainsFunc(c.participants[step], missing) {
			c.compareState(step)
		}
	}
}

// compareState records what the participants of a round reported.
func (c *coordinator) compareState(step int) {
	reports := c.states[step]
	reported := slices.Sorted(maps.Keys(reports))
	if len(reported) > 0 {
		loss := reports[reported[0]].Loss
		e := runlog.Event{Type: runlog.State, Round: step, Participants: reported, Loss: &loss}
		e.Hash, e.Identical = agree(reports, reported)
		c.note(e)
	}
	delete(c.states, step)
	delete(c.participants, step)
}

// awaitFinalStates ends the run for the workers and waits, for a while, for the hashes
// of their final states.
func (c *coordinator) awaitFinalStates(ctx context.Context) error {
	for _, id := range slices.Sorted(maps.Keys(c.workers)) {
		c.send(id, message{Type: msgFinish, OuterSteps: c.machine.OuterSteps(), Complete: c.complete})
	}
	timeout := time.After(endPatience)
	for c.complete && len(c.participants) > 0 || c.apart() {
		select {
		case r := <-c.inbox:
			if err := c.receive(r); err != nil {
				return err
			}
		case <-timeout:
			if c.apart() {
				c.cfg.Log.Warn("a worker did not come back for the end", "patience", endPatience)
			}
			if len(c.participants) > 0 {
				c.cfg.Log.Warn("a worker did not report its final state", "patience", endPatience)
			}
			for step := range maps.Clone(c.participants) {
				c.compareState(step)
			}
			return nil
		case <-ctx.Done():
			return fmt.Errorf("coordinating the run: %w", context.Cause(ctx))
		}
	}
	return nil
}

// apart says whether a worker has yet to come back that has not heard that the
// run is over.
func (c *coordinator) apart() bool {
	for _, r := range c.workers {
		if !r.gone && r.session.current() == nil {
			return true
		}
	}
	return false
}

// hangUp lets every worker hear the last message before the connections close.
func (c *coordinator) hangUp() {
	deadline := time.Now().Add(time.Second)
	for _, r := range c.workers {
		if l := r.session.current(); l != nil {
			l.hangUp(time.Until(deadline))
		}
	}
	for _, r := range c.workers {
		l := r.session.current()
		if r.gone || l == nil {
			continue
		}
		select {
		case <-l.conn.Context().Done():
		case <-time.After(time.Until(deadline)):
		}
	}
}
