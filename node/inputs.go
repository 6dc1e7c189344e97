package node

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"testbed/node/outcomes"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios/resolved"
)

// recover takes over from the coordinator that wrote this journal.
func (c *coordinator) recover() error {
	if c.cfg.Journal == nil {
		return nil
	}
	c.replaying = true
	header := journalHeader{journalVersion, c.cfg.Run, c.cfg.Scenario, c.cfg.PolicyName, c.cfg.Seed}
	if err := replayJournal(c.cfg.Journal, header, c.replay); err != nil {
		return err
	}
	c.replaying = false
	for _, d := range c.pending { // the coordinator before died before it could write them
		if err := appendLine(c.cfg.Journal, d); err != nil {
			return err
		}
	}
	c.pending = nil
	switch {
	case c.cfg.Resume != nil:
		if !c.started {
			return errors.New("resuming the run: the coordinator's journal ends before the start of the run; run the scenario again")
		}
		return c.take(entry{T: c.t, What: halted})
	case c.started && !c.done:
		return c.take(entry{T: c.now(), What: recovered, Forgets: c.cfg.Forgets})
	}
	return nil
}

// replay acts on an input of the journal, or compares the decisions about the
// last input with the recorded ones.
func (c *coordinator) replay(e entry) error {
	if e.What != decided && len(c.pending) == 0 {
		c.apply(e)
		return c.failed
	}
	now, then := "nothing", "nothing"
	if len(c.pending) > 0 {
		now = string(c.pending[0].Decided)
		c.pending = c.pending[1:]
	}
	if e.What == decided {
		then = string(e.Decided)
	}
	if now != then {
		return fmt.Errorf("on replay the policy decided %s, but the journal contains %s; a policy must depend only on its inputs, never on a clock or randomness", now, then)
	}
	return nil
}

// take writes an input to the journal, and then acts on it.
func (c *coordinator) take(e entry) error {
	if c.cfg.Journal != nil {
		if err := appendLine(c.cfg.Journal, e); err != nil {
			return err
		}
	}
	c.apply(e)
	return c.failed
}

// witness writes the decisions of an External policy to the journal, before
// anybody receives them.
func (c *coordinator) witness(actions []policy.Action) {
	if _, is := c.cfg.Policy.Policy.(policy.External); !is || c.cfg.Journal == nil {
		return
	}
	var events []record.Event
	for _, a := range actions {
		if e, ok := record.FromAction(c.t, a); ok {
			events = append(events, e)
		}
	}
	if len(events) == 0 {
		return
	}
	d := entry{T: c.t, What: decided, Decided: json.RawMessage(describe(events))}
	if c.replaying {
		c.pending = append(c.pending, d)
	} else if err := appendLine(c.cfg.Journal, d); err != nil {
		c.failed = err
	}
}

// apply acts on an input. It depends only on the inputs so far.
func (c *coordinator) apply(e entry) {
	before := c.t
	c.t = e.T
	switch {
	case e.Msg != nil && e.Msg.Type == msgHello:
		c.hello(e)
	case e.Msg != nil:
		c.handle(e.ID, *e.Msg)
	case e.What == waitedOut:
		c.begin(e.BeganAt)
	case e.What == timerFired:
		c.tell(policy.Timer{})
	case e.What == unreachable:
		c.tell(policy.Unreachable{ID: e.ID})
	case e.What == horizonCame:
		c.note(record.Event{Type: record.Horizon})
		c.giveUp()
	case e.What == recovered:
		c.note(record.Event{Type: record.CoordinatorBack, Duration: c.t - before})
		c.tell(policy.Recovered{Forgets: e.Forgets, Away: c.t - before})
	case e.What == halted:
		c.halted = true
		for _, r := range c.workers {
			r.session, r.back = &session{}, false
		}
	case e.What == restarted:
		c.restart(e)
	}
	if c.started && c.machine.Members() == 0 && !c.expectJoin() && !c.done {
		c.giveUp()
	}
}

// restart goes on from a checkpoint.
func (c *coordinator) restart(e entry) {
	c.halted, c.began, c.done = false, c.timeOf(e.BeganAt), false
	c.outcomes.Clear()
	c.note(record.Event{Type: record.RunResume, Round: e.Resume.OuterSteps, IDs: e.Resume.Holders, Hash: e.Resume.Hash})
	c.tell(policy.Restarted{OuterSteps: e.Resume.OuterSteps, Holders: e.Resume.Holders})
}

// expectJoin reports whether a worker is still to come. A worker that was
// absent when the run began may come later, but is not waited for.
func (c *coordinator) expectJoin() bool {
	return slices.ContainsFunc(c.cfg.Workers, func(w resolved.Worker) bool {
		return c.workers[w.ID] == nil && !slices.Contains(c.absent, w.ID)
	})
}

// receive handles a message, unless it is obsolete.
func (c *coordinator) receive(r received) error {
	m, w := r.msg, c.workers[r.id]
	if m.Type == msgHello {
		return c.welcome(r)
	}
	if w == nil || w.session.current() != r.line {
		return nil // a second connection under the same name
	}
	if m.Seq > 0 && m.Seq <= w.session.received {
		return nil // sent again after a connection was lost
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
		m = message{Type: msgLost, Error: "a message of the worker is missing"}
	}
	switch m.Type {
	case msgHeartbeat:
		if m.Peer == nil {
			c.tell(policy.Heartbeat{ID: id})
		} else {
			c.tell(policy.Progress{ID: id, Epoch: m.Epoch, Received: m.Bytes, From: *m.Peer, Due: m.Due})
		}
	case msgArrive:
		c.tell(policy.Arrival{ID: id, Round: m.Round})
	case msgReduced:
		if c.outcomes.Reduced(m.Epoch, id, outcomes.Reduced{Hash: m.Hash, Bytes: m.Bytes, Took: m.Took}) {
			c.tell(policy.Reduced{ID: id, Round: m.Round, Epoch: m.Epoch})
		}
	case msgReduceFailed:
		c.cfg.Log.Warn("a reduction failed at a worker", "worker", id.Node(), "round", m.Round, "epoch", m.Epoch, "err", m.Error)
		c.tell(policy.ReduceFailed{ID: id, Round: m.Round, Epoch: m.Epoch, Peer: m.Peer, Alone: m.Alone})
	case msgStepped:
		if c.outcomes.Stepped(id, outcomes.Stepped{OuterSteps: m.OuterSteps, Hash: m.Hash, Loss: m.Loss}) {
			c.compareStates(c.gone)
		}
	case msgFetched:
		c.cfg.Log.Info("a worker fetched the outer state", "worker", id.Node(), "outer_steps", m.OuterSteps, "bytes", m.Bytes, "took", m.Took)
		c.tell(policy.StateFetched{ID: id, OuterSteps: m.OuterSteps, Agreed: m.Agreed})
	case msgFetchFailed:
		c.cfg.Log.Warn("a worker could not fetch the outer state", "worker", id.Node(), "err", m.Error)
		c.tell(policy.FetchFailed{ID: id})
	case msgLeave:
		c.tell(policy.Leave{ID: id})
	case msgGaveUp, msgRattle:
		c.cfg.Log.Warn("a worker gives up", "worker", id.Node(), "err", m.Error)
		c.lose(w, policy.RuleGaveUp)
	case msgLost:
		c.lose(w, policy.RuleConnection)
	default:
		c.cfg.Log.Warn("a worker sent an unknown message", "worker", id.Node(), "type", m.Type)
	}
}

// lose gives up a worker whose connection has ended. Of a former member only
// the name is kept: in a long run many come and go. A former member that comes
// back, because it does not know of its eviction, is told of it.
func (c *coordinator) lose(w *remote, rule policy.Rule) {
	c.tell(policy.Lost{ID: w.id, Rule: rule})
	if w.gone {
		w.session.detach()
	}
}

// welcome handles a worker's hello: its first, or one because this coordinator
// has replaced the one that it knew.
func (c *coordinator) welcome(r received) error {
	w := c.workers[r.id]
	newer := 0 // than the known one
	if w != nil && !c.halted {
		newer = w.compare(r.msg)
	}
	switch {
	case newer > 0:
		if l := w.session.detach(); l != nil {
			l.conn.CloseWithError(0, "a newer connection of this worker replaces this connection")
		}
		w = nil
	case newer < 0:
		c.cfg.Log.Warn("the coordinator refused an earlier incarnation of a worker", "worker", r.id.Node(), "incarnation", r.msg.Incarnation)
		r.line.conn.CloseWithError(codeProtocol, "a newer incarnation of this worker is connected")
		return nil
	case w != nil && w.session.current() != nil:
		c.cfg.Log.Warn("the coordinator ignored a second hello of a connected worker", "worker", r.id.Node())
		return nil
	case w == nil && r.msg.Ack > 0:
		c.cfg.Log.Warn("the coordinator refused a worker that confirmed orders which the coordinator never gave", "worker", r.id.Node())
		r.line.conn.CloseWithError(codeProtocol, "the worker confirmed orders which the coordinator never gave")
		return nil
	case w != nil && c.halted && (r.msg.OuterSteps != c.cfg.Resume.OuterSteps || r.msg.Hash != c.cfg.Resume.Hash):
		return fmt.Errorf("worker %s restored outer step %[3]d with the hash %[2]s, but the run continues from outer step %[5]d with the hash %[4]s; run the scenario again",
			r.id.Node(), r.msg.Hash, r.msg.OuterSteps, c.cfg.Resume.Hash, c.cfg.Resume.OuterSteps)
	}
	e := entry{T: c.now(), ID: r.id, Msg: &r.msg}
	if w == nil {
		w = c.register(r.id, r.msg)
	}
	if !c.started && c.gathered() {
		e.BeganAt = new(c.cfg.Clock())
	}
	w.session.accept(r.msg)
	w.session.attach(r.line, nil, func(m *message) {
		if m.Type == msgStart || m.Type == msgReduce {
			m.Now = e.T
		}
	})
	if err := c.take(e); err != nil {
		return err
	}
	if !c.halted || slices.ContainsFunc(c.cfg.Resume.Holders, func(id policy.ID) bool { return !c.cameBack(id) }) {
		return nil
	}
	return c.take(entry{T: c.t, What: restarted, BeganAt: new(c.cfg.Clock() - c.cfg.ClockDuration(c.t-c.cfg.FirstJoin())), Resume: c.cfg.Resume})
}

// compare reports by its sign whether a hello is of a later life of the worker
// than the known one, of that life, or of an earlier one.
func (w *remote) compare(hello message) int {
	return cmp.Or(cmp.Compare(hello.Incarnation, w.incarnation), cmp.Compare(hello.Rejoins, w.rejoins))
}

// register records a worker that says hello, in place of its earlier life if
// there was one.
func (c *coordinator) register(id policy.ID, hello message) *remote {
	c.outcomes.Forget(id)
	c.workers[id] = &remote{
		id: id, incarnation: hello.Incarnation, rejoins: hello.Rejoins,
		session: &session{}, ring: hello.Ring, fetch: hello.Fetch,
	}
	return c.workers[id]
}

func (c *coordinator) cameBack(id policy.ID) bool {
	w := c.workers[id]
	return w != nil && w.back
}

// gathered reports whether all workers that start the run are there.
func (c *coordinator) gathered() bool {
	return !slices.ContainsFunc(c.cfg.Workers, func(w resolved.Worker) bool {
		return w.JoinAt == c.cfg.FirstJoin() && c.workers[w.ID] == nil
	})
}

// hello registers a worker. The run starts when all workers that are to start
// it are there. They join at the same scenario time, in order of their IDs.
func (c *coordinator) hello(e entry) {
	w := c.workers[e.ID]
	if w == nil || !c.halted && w.compare(*e.Msg) > 0 {
		w = c.register(e.ID, *e.Msg)
	}
	w.session.accept(*e.Msg)
	switch {
	case c.halted:
		w.back = true
		w.incarnation, w.rejoins = e.Msg.Incarnation, e.Msg.Rejoins
		return
	case c.started && w.joined:
		c.tell(policy.Heartbeat{ID: e.ID})
		return
	case c.done: // it comes while the last messages of the others are awaited
		c.finish(e.ID)
		return
	case c.started:
		join := policy.Join{ID: e.ID, Incarnation: w.incarnation}
		if spec := c.cfg.worker(e.ID); spec.InitialStep > 0 && w.incarnation+w.rejoins == 0 {
			join = spec.Asks(c.cfg.FirstJoin())
		}
		c.join(join)
		return
	case e.BeganAt == nil && e.Began == nil:
		if !c.replaying {
			c.gather.Reset(c.gatherPatience())
		}
		return
	}
	c.begin(e.BeganAt)
}

// timeOf is the time of a reading of the clock that outlives this process.
func (c *coordinator) timeOf(at *time.Duration) time.Time {
	if at == nil { // in a journal of an earlier version
		return time.Now()
	}
	return time.Now().Add(*at - c.cfg.Clock())
}

// gatherPatience is how long to wait for the next worker that starts the run.
// It is zero if all missing ones are dead.
func (c *coordinator) gatherPatience() time.Duration {
	for _, w := range c.cfg.Workers {
		if w.JoinAt == c.cfg.FirstJoin() && c.workers[w.ID] == nil && !c.dead[w.ID] {
			return c.patient(gatherPatience)
		}
	}
	return 0
}

// begin starts the run with the workers that are there.
func (c *coordinator) begin(at *time.Duration) {
	first := c.cfg.FirstJoin()
	for _, w := range c.cfg.Workers {
		if w.JoinAt == first && c.workers[w.ID] == nil {
			c.absent = append(c.absent, w.ID)
		}
	}
	c.began, c.started = c.timeOf(at), true
	if !c.replaying {
		c.gather.Stop()
	}
	c.note(record.Event{Type: record.RunStart, Run: &record.Run{
		Schema: record.Schema, Scenario: c.cfg.Scenario, Policy: c.cfg.PolicyName, World: record.Real,
		Links: c.cfg.Links, Seed: c.cfg.Seed, TimeScale: c.cfg.TimeScale, Dilation: c.cfg.Slowdown(),
	}})
	for _, id := range c.absent {
		c.note(record.Event{Type: record.Absent, Node: id.Node()})
	}
	ids := slices.Sorted(maps.Keys(c.workers))
	for _, initial := range []bool{true, false} {
		for _, id := range ids {
			if spec := c.cfg.worker(id); (spec.JoinAt == first) == initial {
				join := spec.Asks(first)
				join.Incarnation = c.workers[id].incarnation
				c.join(join)
			}
		}
	}
}

func (c *coordinator) join(e policy.Join) {
	c.workers[e.ID].joined = true
	c.tell(e)
}
