package sim

import (
	"slices"

	"testbed/policy"
	"testbed/record"
)

// recorded is the network of a recording: it uses all recorded durations, and
// the policy decides again.
//
// By induction over the record the same policy with the same parameters sees
// the same events at the same times and decides the same. After the first
// different decision, times follow from the durations: work takes as long as in
// the same round of the record, whenever it begins. docs/simulator.md has the
// model.
type recorded struct {
	engine
	rec      *Recording
	workers  map[policy.ID]*recordedWorker
	attempts map[int]int // at reductions so far, by round
	epoch    policy.Epoch
	running  recordedReduce // the attempt under way, as recorded
	ring     []policy.ID    // its participants now
	began    policy.Time
}

type recordedWorker struct {
	name    string
	joined  bool
	dead    bool
	diedAt  policy.Time
	gen     int
	fetches map[int]int // begun so far, by round
}

// Replay runs the policy over the recording. note is given every event in order; it may
// be nil.
func (r *Recording) Replay(note func(record.Event)) (record.Summary, error) {
	cfg := r.scenario.Policy
	if r.run.World == record.Real {
		cfg = r.scenario.OnLinks()
	}
	cfg.StallAfter = 0 // stalls are reported as recorded
	e, err := newEngine(r.scenario, cfg, note)
	if err != nil {
		return record.Summary{}, err
	}
	p := &recorded{engine: e, rec: r, workers: map[policy.ID]*recordedWorker{}, attempts: map[int]int{}}
	p.heap.next = later
	return p.run(p, record.Run{World: record.Replayed, Links: r.run.Links, Seed: r.run.Seed, TimeScale: r.run.TimeScale})
}

func (p *recorded) begin() {
	r := p.rec
	for _, spec := range r.scenario.Workers {
		id := spec.ID
		w := &recordedWorker{name: id.Node(), fetches: map[int]int{}}
		p.workers[id] = w
		if j, ok := r.joins[id]; ok {
			p.joining++
			p.schedule(j.at, j.order, func() {
				p.joining--
				w.joined = true
				p.step(spec.Asks(r.scenario.FirstJoin()))
			})
		}
		if c, ok := r.crashes[id]; ok {
			p.schedule(c.at, c.order, func() {
				if p.die(w) {
					p.note(&c.event)
				}
			})
		}
		if l, ok := r.leaves[id]; ok {
			p.schedule(l.at, l.order, func() {
				if p.die(w) {
					p.note(&record.Event{Type: record.Leave, Node: w.name})
					p.step(policy.Leave{ID: id})
				}
			})
		}
		if l, ok := r.losses[id]; ok {
			p.schedule(l.at, l.order, func() { p.step(policy.Lost{ID: id, Rule: l.rule}) })
		}
		for _, at := range r.silent[id] {
			if !r.heardLate(id, at) {
				p.heap.push(at, beats, int(id), 0)
			}
		}
	}
	for _, o := range r.other {
		p.schedule(o.at, o.order, func() { p.note(&o.event) })
	}
}

// schedule schedules a call at a place in the record: order is the position of
// the event. Calls without a place in the record come after the record's events
// of the same time.
func (p *recorded) schedule(at policy.Time, order int, do func()) {
	p.push(at, order, calls, p.keep(do))
}

func (p *recorded) push(at policy.Time, order int, k kind, a int) {
	if order >= later {
		p.heap.push(at, k, a, 0)
		return
	}
	p.heap.add(entry{at: at, seq: uint64(order), kind: k, a: int32(a)})
}

// die ends a worker, and reports whether it was alive.
func (p *recorded) die(w *recordedWorker) bool {
	if w.dead {
		return false
	}
	w.dead, w.diedAt = true, p.now
	return true
}

func (p *recorded) handle(e entry) {
	switch e.kind {
	case beats:
		p.step(policy.Heartbeat{ID: policy.ID(e.a)})
	case reduced:
		if policy.Epoch(e.a) == p.epoch {
			p.reduced()
		}
	}
}

// arrive reports an arrival. An arrival of a worker that has died counts only
// if it had been sent before, as in the record.
func (p *recorded) arrive(t turn, gen int) {
	w := p.workers[t.id]
	if w.gen != gen {
		return
	}
	if r := p.rec.work[t]; w.dead && p.now > w.diedAt && !(r != nil && r.arrived && p.now <= r.at) {
		return
	}
	p.step(policy.Arrival{ID: t.id, Round: t.round})
}

// reduced ends the attempt under way as it ended in the record. An attempt with
// a worker that has died, though not in the record, hangs until the machine
// notices.
func (p *recorded) reduced() {
	round, epoch := p.machine.OuterSteps()+1, p.epoch
	if id := p.running.failed; id != nil && slices.Contains(p.ring, *id) {
		p.step(policy.ReduceFailed{ID: *id, Round: round, Epoch: epoch, Peer: p.running.peer})
		return
	}
	for _, id := range p.ring {
		if p.workers[id].dead && !(p.running.done && slices.Contains(p.running.participants, id)) {
			return
		}
	}
	took := p.now - p.began
	if p.running.done && p.running.slowest > 0 {
		took = p.running.slowest
	}
	against := p.running.without
	inFavour := slices.DeleteFunc(slices.Clone(p.ring), func(id policy.ID) bool { return slices.Contains(against, id) })
	p.note(&record.Event{Type: record.ReduceDone, Round: round, Epoch: epoch, Participants: inFavour, Duration: took})
	for _, id := range inFavour {
		p.step(policy.Reduced{ID: id, Round: round, Epoch: epoch})
	}
	for _, id := range against {
		p.step(policy.ReduceFailed{ID: id, Round: round, Epoch: epoch, Alone: true})
	}
}

// fetched is called at the end of a state fetch, which began when the run had
// so many outer steps.
func (p *recorded) fetched(id, from policy.ID, gen, outerSteps int, f recordedFetch) {
	w := p.workers[id]
	switch {
	case w.gen != gen || w.dead:
	case f.failed:
		p.step(policy.FetchFailed{ID: id})
	case f.stale:
		p.step(policy.StateFetched{ID: id, OuterSteps: outerSteps})
	case f.done || !p.workers[from].dead: // the machine notices the death of a donor
		p.step(policy.StateFetched{ID: id, OuterSteps: p.machine.OuterSteps()})
	}
}

// wakeUp wakes the machine up, after the heartbeats that must have arrived by
// then.
func (p *recorded) wakeUp() {
	period := p.scenario.Policy.HeartbeatPeriod
	for _, w := range p.scenario.Workers {
		if p.heardBy(w.ID, int(p.now/period)) {
			p.step(policy.Heartbeat{ID: w.ID})
		}
	}
	p.step(policy.Timer{})
	for _, w := range p.scenario.Workers { // heartbeats that were too late for this check
		for _, at := range p.rec.silent[w.ID] {
			if at == p.now && p.rec.heardLate(w.ID, at) {
				p.step(policy.Heartbeat{ID: w.ID})
			}
		}
	}
}

// heardBy reports whether a worker's heartbeat has arrived by a check. It has
// if the record does not say otherwise. A heartbeat whose time is known was
// reported at that time.
func (p *recorded) heardBy(id policy.ID, check int) bool {
	w := p.workers[id]
	if !w.joined || w.dead {
		return false
	}
	if last, gone := p.rec.gone[id]; gone && p.now > last {
		return false
	}
	if _, silent := p.rec.silent[id][check]; silent {
		return false
	}
	for _, at := range p.rec.silent[id] {
		if at < p.now && at > p.now-p.scenario.Policy.HeartbeatPeriod {
			return false
		}
	}
	return true
}

// heardLate reports whether a heartbeat came in the instant of a check that had missed
// it.
func (r *Recording) heardLate(id policy.ID, at policy.Time) bool {
	check := int(at / r.scenario.Policy.HeartbeatPeriod)
	_, silent := r.silent[id][check]
	return silent && r.checks[check].at == at
}

func (p *recorded) carryOut(a policy.Action) {
	p.noteAction(a)
	switch a := a.(type) {
	case *policy.StartRound:
		for _, id := range a.IDs {
			p.startRound(turn{id, a.Round})
		}
	case *policy.Reduce:
		p.reduce(a)
	case *policy.Abort:
		p.epoch = 0
		for _, id := range a.Participants {
			if a.Confirm && !p.workers[id].dead { // the record has no time for the answer
				p.later(p.now, func() { p.step(policy.ReduceFailed{ID: id, Epoch: a.Epoch}) })
			}
		}
	case *policy.OuterStep:
		p.epoch = 0
	case *policy.Fetch:
		p.fetch(a)
	case *policy.Evict:
		p.workers[a.ID].gen++
	case *policy.WakeAt:
		p.wakeAt(a.At)
	case *policy.Finish:
		p.done = true
	}
}

func (p *recorded) startRound(t turn) {
	w := p.workers[t.id]
	w.gen++
	if w.dead {
		if r := p.rec.work[t]; r == nil || !r.arrived {
			return
		}
	}
	gen := w.gen
	steps, took, order := p.rec.round(t, p.now)
	at := p.now
	for i, d := range steps {
		at += d
		p.later(at, func() {
			if w.gen == gen && !w.dead {
				p.note(&record.Event{Type: record.Step, Node: w.name, Round: t.round, Step: i + 1, Duration: d})
			}
		})
	}
	p.schedule(p.now+took, order, func() { p.arrive(t, gen) })
}

// reduce begins the next attempt of a round. An attempt that was aborted in the
// record because a participant was lost does not end by itself.
func (p *recorded) reduce(a *policy.Reduce) {
	attempts, k := p.rec.reduces[a.Round], p.attempts[a.Round]
	p.attempts[a.Round]++
	p.epoch, p.ring, p.began = a.Epoch, a.Participants, p.now
	p.running = recordedReduce{took: p.rec.reduction, order: later}
	switch {
	case k < len(attempts):
		p.running = attempts[k]
	case len(attempts) > 0 && attempts[len(attempts)-1].done:
		p.running.took = attempts[len(attempts)-1].took
	}
	if r := p.running; k < len(attempts) && !r.done && r.failed == nil {
		if slices.ContainsFunc(r.participants, func(id policy.ID) bool { return !gathers(attempts, k, id) && slices.Contains(a.Participants, id) }) {
			return
		}
		p.running = recordedReduce{took: p.rec.reduction, order: later}
	}
	p.push(p.now+p.running.took, p.running.order, reduced, int(a.Epoch))
}

// gathers reports whether a participant of an aborted attempt took part in the
// next one.
func gathers(attempts []recordedReduce, k int, id policy.ID) bool {
	return k+1 < len(attempts) && slices.Contains(attempts[k+1].participants, id)
}

func (p *recorded) fetch(a *policy.Fetch) {
	w := p.workers[a.ID]
	w.gen++
	f := recordedFetch{took: p.rec.fetching, order: later}
	if p.rec.run.World == record.Sim && a.Rule == policy.RuleResync {
		f.took = 0 // as in the simulator
	}
	if all, k := p.rec.fetches[turn{a.ID, a.Round}], w.fetches[a.Round]; k < len(all) {
		if f = all[k]; !f.done && !f.stale && !f.failed {
			f.took = max(f.took+1, p.rec.fetching) // it was not over yet
		}
	}
	w.fetches[a.Round]++
	gen := w.gen
	p.schedule(p.now+f.took, f.order, func() { p.fetched(a.ID, a.From, gen, a.OuterSteps, f) })
}

// wakeAt schedules the machine's wake-up, as late as in the record.
func (p *recorded) wakeAt(at policy.Time) {
	order := later
	period := p.scenario.Policy.HeartbeatPeriod
	c := p.rec.closes[p.machine.OuterSteps()+1]
	check, seen := p.rec.checks[int(at/period)]
	switch immediate := at <= p.now; {
	case at%period == 0 && !immediate:
		if seen {
			at, order = max(at, check.at), check.order
		}
	case immediate && c.rule == policy.RuleQuorum, !immediate && c.rule == policy.RuleDeadline:
		at, order = at+c.late, c.order
	}
	if order >= later {
		p.engine.wakeAt(at)
		return
	}
	p.wakeUps++
	p.push(max(at, p.now), order, wakes, p.wakeUps)
}
