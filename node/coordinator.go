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

	"testbed/policy"
	"testbed/runlog"
	"testbed/scenarios"
)

// farewell bounds how long the coordinator waits for the last words of the
// workers after the last outer step, and of one that it has evicted.
const farewell = 10 * time.Second

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
	Log      *slog.Logger
	// Unreachable gives addresses to which packets of Conn could not be
	// delivered because nobody listens there. Nil: the network never says.
	Unreachable <-chan netip.AddrPort
	// Report is called with the record of the run, from one goroutine.
	Report func(Report)
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
	defer func() {
		transport.Close()
		cfg.Conn.Close()
	}()
	quicConfig := controlQUIC()
	if cfg.Scenario.Real.HeedUnreachable {
		// Whoever is silent for a period is pinged: where nobody listens any
		// more, the network says so.
		quicConfig.KeepAlivePeriod = max(time.Millisecond, cfg.Scenario.RealDuration(cfg.Scenario.HeartbeatPeriod))
	} else {
		cfg.Unreachable = nil
	}
	listener, err := transport.Listen(withALPN(cfg.TLS, controlALPN, ""), quicConfig)
	if err != nil {
		return fmt.Errorf("listening for workers on %s: %w", cfg.Conn.LocalAddr(), err)
	}
	defer listener.Close()
	c := &coordinator{
		cfg: cfg, scenario: cfg.Scenario, machine: machine,
		inbox: make(chan received, 4*outboxMessages), quit: make(chan struct{}),
		workers:  map[policy.ID]*remote{},
		outcomes: map[int]map[policy.ID]message{},
		states:   map[int]map[policy.ID]message{},
	}
	defer close(c.quit)
	go c.accept(ctx, listener)
	cfg.Report(Report{Ready: true})
	return c.run(ctx)
}

type coordinator struct {
	cfg      CoordinatorConfig
	scenario *scenarios.Scenario
	machine  *policy.Machine
	inbox    chan received
	quit     chan struct{}
	workers  map[policy.ID]*remote
	absent   []policy.ID // of those that were to start the run
	began    time.Time   // scenario time starts here, at the first join
	started  bool
	timer    *time.Timer
	gather   *time.Timer // since the last worker has come, before the start
	done     bool
	complete bool

	epoch        int                           // of the last reduction
	participants map[int][]policy.ID           // by outer step
	outcomes     map[int]map[policy.ID]message // of reductions, by epoch
	states       map[int]map[policy.ID]message // after outer steps
	ring         *runlog.Ring                  // the last one ordered
}

// remote is a worker that has said hello.
type remote struct {
	id    policy.ID
	line  *line
	ring  netip.AddrPort
	fetch netip.AddrPort
	gone  bool // evicted: nothing more is expected from it
}

type received struct {
	from *remote
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
				c.cfg.Log.Info("control connection ended", "peer", peerName(conn), "err", err)
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
	r := &remote{id: m.ID, line: l, ring: m.Ring, fetch: m.Fetch}
	go c.hear(ctx, conn, r)
	for c.deliver(r, m) {
		if m, err = readMessage(l.in); err != nil {
			lost := message{Type: msgLost, Error: err.Error()}
			if e, ok := errors.AsType[*quic.ApplicationError](err); ok && e.Remote && e.ErrorCode == codeRattle {
				lost.Type = msgRattle
			}
			c.deliver(r, lost)
			return err
		}
	}
	return nil
}

// deliver puts a message into the inbox, or returns false if the run is over.
func (c *coordinator) deliver(r *remote, m message) bool {
	select {
	case c.inbox <- received{r, m}:
		return true
	case <-c.quit:
		return false
	}
}

// hear takes the heartbeats of one worker.
func (c *coordinator) hear(ctx context.Context, conn *quic.Conn, r *remote) {
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
			c.cfg.Log.Warn("not a heartbeat", "worker", r.id, "err", err)
			continue
		}
		if !c.deliver(r, m) {
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
	case scenarios.NodeName(m.ID) != peerName(conn):
		return fmt.Errorf("worker %d presents the certificate of %q", m.ID, peerName(conn))
	case !m.Ring.IsValid() || !m.Fetch.IsValid():
		return fmt.Errorf("worker %d gives no address", m.ID)
	}
	if _, ok := c.scenario.Worker(m.ID); !ok {
		return fmt.Errorf("worker %d is not in the scenario", m.ID)
	}
	return nil
}

func (c *coordinator) now() policy.Time {
	elapsed := time.Since(c.began)
	return c.scenario.FirstJoin() + policy.Time(float64(elapsed)/1e3/c.scenario.Real.TimeScale)
}

// realTime is when a scenario time comes.
func (c *coordinator) realTime(t policy.Time) time.Time {
	return c.began.Add(c.scenario.RealDuration(t - c.scenario.FirstJoin()))
}

func (c *coordinator) run(ctx context.Context) error {
	c.participants = map[int][]policy.ID{}
	c.timer = time.NewTimer(time.Hour)
	defer c.timer.Stop()
	c.gather = time.NewTimer(time.Hour)
	c.gather.Stop()
	defer c.gather.Stop()
	var horizon <-chan time.Time
	defer c.hangUp()
	for !c.done {
		// What has already arrived comes before a timer: a coordinator that was
		// held up must not call a worker late whose word lies in its inbox.
		select {
		case r := <-c.inbox:
			c.receive(r)
			continue
		default:
		}
		if c.started && horizon == nil {
			horizon = time.After(time.Until(c.realTime(c.scenario.Horizon)))
		}
		select {
		case r := <-c.inbox:
			c.receive(r)
		case addr := <-c.cfg.Unreachable:
			for _, r := range c.workers {
				if r.line.conn.RemoteAddr().String() == addr.String() {
					c.tell(policy.Unreachable{ID: r.id})
				}
			}
		case <-c.timer.C:
			c.tell(policy.Timer{})
		case <-c.gather.C:
			c.begin()
		case <-horizon:
			c.note(runlog.Event{Type: runlog.Horizon})
			c.end(false)
		case <-ctx.Done():
			return fmt.Errorf("coordinating the run: %w", context.Cause(ctx))
		}
		if c.started && c.machine.Members() == 0 && !c.expectJoin() && !c.done {
			c.end(false)
		}
	}
	return c.lastWords(ctx)
}

// expectJoin says whether a worker is still to come. One that was absent when
// the run began may come yet, but nobody waits for it.
func (c *coordinator) expectJoin() bool {
	return slices.ContainsFunc(c.scenario.Workers, func(w scenarios.Worker) bool {
		return c.workers[w.ID] == nil && !slices.Contains(c.absent, w.ID)
	})
}

func (c *coordinator) receive(r received) {
	m := r.msg
	if m.Type == msgHello {
		c.hello(r.from)
		return
	}
	if c.workers[r.from.id] != r.from {
		return // a second connection under the same name
	}
	id := r.from.id
	switch m.Type {
	case msgHeartbeat:
		if m.Peer == nil {
			c.tell(policy.Heartbeat{ID: id})
		} else {
			c.tell(policy.Progress{ID: id, Epoch: m.Epoch, Moved: m.Bytes, From: *m.Peer})
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
	case msgRattle:
		c.cfg.Log.Warn("worker is giving up", "worker", id, "err", m.Error)
		c.tell(policy.Lost{ID: id, Rule: policy.RuleRattle})
	case msgLost:
		c.tell(policy.Lost{ID: id, Rule: policy.RuleConnection})
	default:
		c.cfg.Log.Warn("unknown message", "worker", id, "type", m.Type)
	}
}

// hello registers a worker. The run starts when all workers of the first hour
// are there; they join at the same scenario time, in order of their IDs.
func (c *coordinator) hello(r *remote) {
	if c.workers[r.id] != nil {
		c.cfg.Log.Warn("worker said hello twice", "worker", r.id)
		return
	}
	c.workers[r.id] = r
	if c.started {
		c.tell(policy.Join{ID: r.id})
		return
	}
	missing := func(w scenarios.Worker) bool {
		return w.JoinAt == c.scenario.FirstJoin() && c.workers[w.ID] == nil
	}
	if slices.ContainsFunc(c.scenario.Workers, missing) {
		c.gather.Reset(gatherPatience)
		return
	}
	c.begin()
}

// begin starts the run with the workers that are there.
func (c *coordinator) begin() {
	c.gather.Stop()
	first := c.scenario.FirstJoin()
	var initial, early []policy.ID
	for _, w := range c.scenario.Workers {
		switch {
		case w.JoinAt == first && c.workers[w.ID] == nil:
			c.absent = append(c.absent, w.ID)
		case w.JoinAt == first:
			initial = append(initial, w.ID)
		case c.workers[w.ID] != nil:
			early = append(early, w.ID)
		}
	}
	c.began, c.started = time.Now(), true
	c.note(runlog.Event{Type: runlog.RunStart, Run: &runlog.Run{
		Schema: runlog.Schema, Scenario: c.scenario.Name, Policy: c.cfg.Policy, World: runlog.Real,
		Links: c.cfg.Links, Seed: c.scenario.Seed, TimeScale: c.scenario.Real.TimeScale,
	}})
	for _, id := range c.absent {
		c.note(runlog.Event{Type: runlog.Absent, Node: scenarios.NodeName(id)})
	}
	slices.Sort(initial)
	for _, id := range initial {
		c.step(first, policy.Join{ID: id, HasState: true})
	}
	for _, id := range early {
		c.tell(policy.Join{ID: id})
	}
}

func (c *coordinator) note(e runlog.Event) {
	e.T = c.scenario.FirstJoin()
	if e.Type != runlog.RunStart {
		e.T = c.now()
	}
	c.cfg.Report(Report{Event: &e})
}

func (c *coordinator) end(complete bool) {
	c.done, c.complete = true, complete
	c.note(runlog.Event{Type: runlog.RunEnd, Complete: &complete})
}

func (c *coordinator) tell(e policy.Event) {
	if c.started {
		c.step(c.now(), e)
	}
}

func (c *coordinator) step(now policy.Time, e policy.Event) {
	for _, a := range c.machine.Step(now, e) {
		c.act(now, a)
	}
}

// act carries out one action of the policy machine.
func (c *coordinator) act(now policy.Time, a policy.Action) {
	if step, ok := a.(policy.OuterStep); ok {
		c.reduced(now, step)
	}
	if e, ok := runlog.FromAction(now, a); ok {
		c.orderRing(&e)
		c.cfg.Report(Report{Event: &e})
	}
	switch a := a.(type) {
	case policy.Reject:
		c.send(a.ID, message{Type: msgEvict, Error: string(a.Rule)})
	case policy.StartRound:
		for _, id := range a.IDs {
			c.send(id, message{Type: msgStart, Round: a.Round, OuterSteps: a.Round - 1, Now: now})
		}
	case policy.Reduce:
		c.epoch = a.Epoch
		ring := make([]peer, len(a.Participants))
		for i, id := range c.order(a.Participants) {
			ring[i] = peer{ID: id, Addr: c.workers[id].ring}
		}
		for _, id := range a.Participants {
			c.send(id, message{Type: msgReduce, Round: a.Round, Epoch: a.Epoch, Peers: ring, Zero: slices.Contains(a.Zero, id)})
		}
	case policy.Abort:
		delete(c.outcomes, a.Epoch)
		for _, id := range a.Participants {
			c.send(id, message{Type: msgAbort, Round: a.Round, Epoch: a.Epoch})
		}
	case policy.OuterStep:
		c.participants[a.Round] = a.Participants
	case policy.Fetch:
		var donors []peer
		for _, id := range append([]policy.ID{a.From}, a.Helpers...) {
			donors = append(donors, peer{ID: id, Addr: c.workers[id].fetch})
		}
		c.send(a.ID, message{Type: msgFetch, Round: a.Round, OuterSteps: a.OuterSteps, Peers: donors})
	case policy.Evict:
		c.send(a.ID, message{Type: msgEvict, Error: string(a.Rule)})
		r := c.workers[a.ID]
		r.gone = true
		// Whoever is dead or cut off does not hang up itself.
		time.AfterFunc(farewell, func() { r.line.conn.CloseWithError(0, "evicted") })
		c.compareStates()
	case policy.WakeAt:
		c.timer.Reset(time.Until(c.realTime(a.At)))
	case policy.Finish:
		c.done, c.complete = true, a.Complete
	}
}

func (c *coordinator) send(id policy.ID, m message) {
	if r := c.workers[id]; r != nil {
		r.line.send(m)
	}
}

// reduced records what the participants of a reduction reported.
func (c *coordinator) reduced(now policy.Time, a policy.OuterStep) {
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
	c.cfg.Report(Report{Event: &e})
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

// lastWords ends the run for the workers and waits, for a while, for the hashes
// of their final states.
func (c *coordinator) lastWords(ctx context.Context) error {
	for _, id := range slices.Sorted(maps.Keys(c.workers)) {
		c.send(id, message{Type: msgFinish, OuterSteps: c.machine.OuterSteps(), Complete: c.complete})
	}
	timeout := time.After(farewell)
	for c.complete && len(c.participants) > 0 {
		select {
		case r := <-c.inbox:
			if r.msg.Type == msgStepped {
				c.stepped(r.from.id, r.msg)
			}
		case <-timeout:
			c.cfg.Log.Warn("a worker did not report its final state", "patience", farewell)
			for step := range maps.Clone(c.participants) {
				c.compareState(step)
			}
		case <-ctx.Done():
			return fmt.Errorf("coordinating the run: %w", context.Cause(ctx))
		}
	}
	return nil
}

// hangUp lets every worker hear the last message before the connections close.
func (c *coordinator) hangUp() {
	deadline := time.Now().Add(time.Second)
	for _, r := range c.workers {
		r.line.hangUp(time.Until(deadline))
	}
	for _, r := range c.workers {
		if r.gone {
			continue
		}
		select {
		case <-r.line.conn.Context().Done():
		case <-time.After(time.Until(deadline)):
		}
	}
}
