package sim

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"testbed/policy"
	"testbed/policy/worker"
	"testbed/record"
	"testbed/scenarios/resolved"
)

// churn is churn's network: a message takes base_latency, an all-reduce or a
// state fetch base_latency + state_bytes / bandwidth_bpus, regardless of other
// traffic. Rounds begin everywhere at once. A partition holds messages back and
// drops none.
type churn struct{ processes }

// onChurn is the state of a worker on churn's network, where it decides less
// than worker.Machine does.
type onChurn struct {
	cut      bool               // partitioned
	begin    bool               // paused before the first step of its round
	ahead    bool               // its inner steps have begun before the outer step of the round before
	due      bool               // that outer step is taken by now
	held     []int              // rounds whose arrivals wait for the end of the partition
	asking   bool               // it wants to join, but cannot be heard
	born     policy.Time        // when the coordinator has heard of this life
	failNext *worker.FailReduce // how its next reduction fails, or the one under way
	fetch    struct {
		from    int
		free    bool // costs nothing and passes through partitions
		agreed  bool // the state that all regions last agreed on
		pending bool // over, except for a partition
	}
}

// mute reports whether the worker can neither be heard nor hear.
func (w *workerState) mute() bool { return w.cut || w.paused }

// Run simulates a scenario on churn's network. note is given every event in
// order; it may be nil. Times are scenario time in microseconds. The scenario's
// links are not used, so r needs no plan.
func Run(r *resolved.Scenario, note func(record.Event)) (record.Summary, error) {
	p, err := newProcesses(r, r.Policy, note)
	if err != nil {
		return record.Summary{}, err
	}
	c := &churn{p}
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], r.Seed)
	rng := rand.New(rand.NewChaCha8(key))
	for i := range c.workers {
		c.workers[i].draw = r.Sampler(c.workers[i].spec, 0, rng)
	}
	sum, err := c.play(c, "none", 1)
	if err != nil {
		return sum, err
	}
	for _, in := range r.Faults.Links {
		sum.NotSimulated = append(sum.NotSimulated, in.String())
	}
	return sum, nil
}

// transfer is the duration of a state fetch on churn's network, or of an
// all-reduce of the whole state.
func transfer(r *resolved.Scenario) policy.Time {
	return r.Churn.BaseLatency + policy.Time(stateBytes(r)/r.Churn.BandwidthBpus)
}

// stateBytes is the size of a worker's part of the outer state.
func stateBytes(r *resolved.Scenario) int64 { return r.Churn.StateBytes / int64(r.Train.Ranks()) }

// exchange is the duration of the all-reduce of a round, by the part of the
// state that the round exchanges.
func (c *churn) exchange(round int) policy.Time {
	r := c.scenario
	bytes := stateBytes(r)
	if fragments := r.Exchange.Fragments; len(fragments) > 1 {
		bytes = int64(float64(bytes) * float64(fragments.Of(round).Len) / float64(r.Train.Shard(r.Parameters)))
	}
	return r.Churn.BaseLatency + policy.Time(bytes/r.Churn.BandwidthBpus)
}

func (c *churn) begin() {
	c.processes.begin()
	c.heap.push(c.scenario.Policy.HeartbeatPeriod, beats, 0, 0)
}

func (c *churn) handle(e entry) {
	a, b := int(e.a), int(e.b)
	switch e.kind {
	case stepDone:
		if c.endStep(a, b) {
			c.goOn(a)
		}
	case arrives:
		if arrival := (policy.Arrival{ID: policy.ID(a), Round: b}); c.stale(arrival.ID) {
			return
		} else if c.disconnected {
			c.wait(arrival)
		} else {
			c.step(arrival)
		}
	case reduced:
		if r := c.reduction(policy.Epoch(a)); r != nil {
			c.reduced(r)
		}
	case fetched:
		if c.workers[a].gen == b {
			c.fetched(a)
		}
	case beats: // of everybody
		for i := range c.workers {
			if w := &c.workers[i]; w.alive && (w.member || w.life > 0) && (!w.mute() || w.beats && !w.cut) && !c.disconnected {
				c.step(policy.Heartbeat{ID: w.spec.ID})
			}
		}
		c.heap.push(c.now+c.scenario.Policy.HeartbeatPeriod, beats, 0, 0)
	}
}

func (c *churn) carryOut(a policy.Action) {
	c.noteAction(a)
	switch a := a.(type) {
	case *policy.StartRound:
		for _, id := range a.IDs {
			c.startRound(c.find(id), a.Round)
		}
	case *policy.Reduce:
		c.beginReduction(a)
		for _, id := range a.Participants {
			if i := c.find(id); c.workers[i].failNext != nil {
				c.failSoon(i, a.Epoch)
			}
		}
		c.heap.push(c.now+c.exchange(a.Round), reduced, int(a.Epoch), 0)
	case *policy.Abort:
		c.endReduction(a.Epoch)
		for _, id := range a.Participants {
			if a.Confirm {
				c.confirmAfter(2*c.scenario.Churn.BaseLatency, c.find(id), a.Epoch)
			}
		}
	case *policy.OuterStep:
		c.endReduction(a.Epoch)
	case *policy.Fetch:
		c.startFetch(a)
	case *policy.Evict:
		if c.evict(a) {
			i := c.find(a.ID)
			w := &c.workers[i]
			w.drop()
			w.fetch.pending = false
			w.life++
			c.askAfter(2*c.scenario.Churn.BaseLatency, i) // it receives a message, and answers
		}
	default:
		c.processes.carryOut(a)
	}
}

// startRound begins a round at a worker, or continues one that it has begun ahead.
func (c *churn) startRound(i, round int) {
	w := &c.workers[i]
	if w.ahead && w.round == round && !w.preempted && w.alive {
		if w.due = true; !w.stepping {
			c.goOn(i)
		}
		return
	}
	w.drop()
	w.round, w.step = round, 0
	switch {
	case w.preempted:
		c.later(c.now, func() { c.actOnNotice(i) })
	case w.paused:
		w.begin = true
	case w.alive:
		c.beginStep(i)
	}
}

// goOn continues after an inner step: with the next one, or with the arrival
// and, where rounds overlap, the next round, as worker.Machine does.
func (c *churn) goOn(i int) {
	w := &c.workers[i]
	overlap := c.scenario.Exchange.Overlap
	if w.ahead && w.step == overlap {
		if !w.due || w.paused {
			return // StartRound follows, or the end of the pause
		}
		w.ahead = false
		c.noteMerge(w, w.round-1, w.step)
	}
	if w.step < c.scenario.InnerSteps {
		c.beginStep(i)
		return
	}
	if w.cut {
		w.held = append(w.held, w.round)
	} else {
		c.arrive(w, w.round)
	}
	if overlap > 0 && !w.preempted {
		w.round, w.step, w.ahead, w.due = w.round+1, 0, true, false
		c.beginStep(i)
	}
}

// arrive sends an arrival.
func (c *churn) arrive(w *workerState, round int) {
	c.heap.push(c.now+c.scenario.Churn.BaseLatency, arrives, int(w.spec.ID), round)
}

// stale reports whether an arrival that comes now was sent in an earlier life.
func (c *churn) stale(id policy.ID) bool {
	w := &c.workers[c.find(id)]
	return w.life > 0 && c.now-c.scenario.Churn.BaseLatency < w.born
}

// started handles a new process of a worker, which asks to join. It is as slow
// as the process before.
func (c *churn) started(i int) {
	w := &c.workers[i]
	if w.incarnation == 0 {
		c.joining--
		w.alive = true
		c.tell(w.spec.Asks(c.firstJoin))
		return
	}
	if c.scenario.Work != nil {
		w.draw = c.scenario.Sampler(w.spec, w.incarnation, nil)
	}
	c.ask(i)
}

// ask sends a worker's request to join again, once it can be heard.
func (c *churn) ask(i int) {
	w := &c.workers[i]
	if w.asking = w.mute(); w.asking {
		return
	}
	w.born, w.held = c.now, nil
	c.tell(policy.Join{ID: w.spec.ID, Incarnation: w.incarnation})
}

// askAfter makes a worker ask to join again after a delay, unless it has joined by then.
func (c *churn) askAfter(delay policy.Time, i int) {
	w, life := &c.workers[i], c.workers[i].life
	c.later(c.now+delay, func() {
		if w.alive && !w.member && w.life == life {
			c.ask(i)
		}
	})
}

// drive carries out an inject at a worker.
func (c *churn) drive(i int, e worker.Event) {
	w := &c.workers[i]
	switch e := e.(type) {
	case worker.Slow:
		c.noteSpeed(w, e.Factor, true)
	case worker.Restore:
		c.noteSpeed(w, 1, false)
	case worker.Leave:
		c.leave(w)
	case worker.Preempt:
		if w.member && w.round == c.machine.OuterSteps()+1 && !w.preempted {
			w.preempted = true
		} else { // its round is no longer open
			c.leave(w)
		}
	case worker.FailReduce:
		w.failNext = &e
		for _, r := range c.running {
			if slices.Contains(r.participants, w.spec.ID) {
				c.failSoon(i, r.epoch)
			}
		}
	}
}

func (c *churn) leave(w *workerState) {
	w.alive = false
	w.drop()
	c.tell(policy.Leave{ID: w.spec.ID})
}

func (c *churn) lastWords(i int, e policy.Event) {
	if !c.workers[i].cut {
		c.tell(e)
	}
}

// reconnect delivers a heartbeat of each worker before the messages that have waited.
func (c *churn) reconnect() {
	c.disconnected = false
	for i := range c.workers {
		if w := &c.workers[i]; w.alive && w.member && !w.cut {
			c.tell(policy.Heartbeat{ID: w.spec.ID})
		}
	}
	c.processes.reconnect()
}

func (c *churn) partition(ids []policy.ID, cut bool) {
	for _, id := range ids {
		w := &c.workers[c.find(id)]
		if w.cut && !cut {
			for _, round := range w.held {
				c.arrive(w, round)
			}
			w.held = nil
		}
		w.cut = cut
	}
	c.proceed()
}

func (c *churn) resume(i int) {
	c.processes.resume(i)
	switch w := &c.workers[i]; {
	case !w.alive || w.stepping:
	case w.begin:
		w.begin = false
		c.beginStep(i)
	case w.ahead:
		c.goOn(i)
	}
	c.proceed()
}

// proceed continues the reductions, fetches and requests to join that are no
// longer held up by a partition or a pause.
func (c *churn) proceed() {
	latency := c.scenario.Churn.BaseLatency
	for _, r := range c.running {
		if r.blocked && !slices.ContainsFunc(r.participants, func(id policy.ID) bool { return c.workers[c.find(id)].mute() }) {
			r.blocked = false
			c.heap.push(c.now+latency, reduced, int(r.epoch), 0)
		}
	}
	for i := range c.workers {
		w := &c.workers[i]
		if w.fetch.pending && !c.held(w) {
			w.fetch.pending = false
			c.heap.push(c.now+latency, fetched, i, w.gen)
		}
		if w.asking && !w.mute() {
			w.asking = false
			c.askAfter(latency, i)
		}
	}
}

// startFetch begins a fetch, which takes a transfer's time for a joiner. A
// sidelined worker gets the state at once: in churn's model it restarts with
// the round at no cost, even from behind a partition.
func (c *churn) startFetch(a *policy.Fetch) {
	i := c.find(a.ID)
	w := &c.workers[i]
	w.drop()
	if w.preempted {
		c.later(c.now, func() { c.actOnNotice(i) })
		return
	}
	w.fetch.from, w.fetch.pending, w.fetch.agreed = c.find(a.From), false, a.Agreed
	w.fetch.free = a.Rule == policy.RuleResync
	at := c.now
	if !w.fetch.free {
		at += transfer(c.scenario)
	}
	c.heap.push(at, fetched, i, w.gen)
}

func (c *churn) fetched(i int) {
	w := &c.workers[i]
	donor := &c.workers[w.fetch.from]
	switch {
	case !w.alive || !donor.alive || !donor.member: // the machine notices by their heartbeats
	case c.held(w):
		w.fetch.pending = true
	default:
		c.tell(policy.StateFetched{ID: w.spec.ID, OuterSteps: c.machine.OuterSteps(), Agreed: w.fetch.agreed})
	}
}

// held reports whether something keeps the worker's fetch from ending now.
func (c *churn) held(w *workerState) bool {
	if w.fetch.free {
		return w.paused
	}
	return w.mute() || c.workers[w.fetch.from].mute()
}

// reduced handles the end of a reduction.
func (c *churn) reduced(r *reduction) {
	mute := false
	for _, id := range r.participants {
		w := &c.workers[c.find(id)]
		if !w.alive || !w.member {
			return // the ring hangs until the machine notices and aborts
		}
		mute = mute || w.mute()
	}
	if mute {
		r.blocked = true
		return
	}
	successful := r.participants
	if slices.ContainsFunc(r.participants, func(id policy.ID) bool { return c.workers[c.find(id)].failNext != nil }) {
		if successful = c.reducedByOthers(r); successful == nil {
			return
		}
	}
	c.note(&record.Event{Type: record.ReduceDone, Round: r.round, Epoch: r.epoch, Lineage: r.lineage, Participants: successful, Duration: c.now - r.begun})
	for _, id := range successful {
		if outcome := (policy.Reduced{ID: id, Round: r.round, Epoch: r.epoch}); c.disconnected {
			c.wait(outcome)
		} else {
			c.step(outcome)
		}
	}
	if len(successful) < len(r.participants) {
		for _, id := range r.participants {
			if i := c.find(id); c.workers[i].failNext != nil {
				c.reduceFails(i, r)
			}
		}
	}
}

// reducedByOthers returns the participants for which a reduction succeeds although an
// inject makes it fail for others. It is nil if it fails for all.
func (c *churn) reducedByOthers(r *reduction) []policy.ID {
	others := []policy.ID{}
	for _, id := range r.participants {
		i := c.find(id)
		if fails := c.workers[i].failNext; fails == nil {
			others = append(others, id)
		} else if !fails.Alone {
			c.reduceFails(i, r)
			return nil
		}
	}
	return others
}

// failSoon makes a reduction fail at once, if an inject asks the worker for that and it
// can be heard.
func (c *churn) failSoon(i int, epoch policy.Epoch) {
	c.later(c.now, func() {
		if w, r := &c.workers[i], c.reduction(epoch); r != nil && w.alive && !w.mute() && w.failNext != nil && !w.failNext.Alone {
			c.reduceFails(i, r)
		}
	})
}

// reduceFails reports that a worker's reduction has failed.
func (c *churn) reduceFails(i int, r *reduction) {
	w := &c.workers[i]
	alone := w.failNext.Alone
	w.failNext = nil
	c.tell(policy.ReduceFailed{ID: w.spec.ID, Round: r.round, Epoch: r.epoch, Alone: alone})
}

// confirmAfter makes a worker confirm after a delay, or when it can be heard, that it
// has dropped a reduction.
func (c *churn) confirmAfter(delay policy.Time, i int, epoch policy.Epoch) {
	c.later(c.now+delay, func() {
		switch w := &c.workers[i]; {
		case !w.alive || !w.member:
		case w.mute():
			c.confirmAfter(c.scenario.Policy.HeartbeatPeriod, i, epoch)
		default:
			c.tell(policy.ReduceFailed{ID: w.spec.ID, Epoch: epoch})
		}
	})
}
