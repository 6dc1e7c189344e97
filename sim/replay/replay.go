package replay

import (
	"container/heap"
	"fmt"
	"slices"

	"testbed/policy"
	"testbed/record"
	"testbed/shaping/fidelity"
)

// replay plays a recording: a simulation in which every duration that the
// record has is the recorded one, and the policy decides anew.
//
// By induction over the record the same policy with the same parameters sees
// the same events at the same times and decides the same. From the first other
// decision on, the times follow from the durations: work is as long as in the
// same round of the record, whenever it begins. docs/results.md has the model.
type replay struct {
	*Recording
	machine policy.Coordinator
	queue   queue
	next    int // order of what the record does not have
	now     policy.Time
	workers map[policy.ID]*replayed
	order   []policy.ID
	record  func(record.Event)
	sum     *record.Summarizer
	joining int
	done    bool

	wake     int // number of the wake-up that counts
	attempts map[int]int
	epoch    policy.Epoch
	running  recordedReduce // the attempt under way, as recorded
	ring     []policy.ID    // its participants now
	began    policy.Time
}

type replayed struct {
	name    string
	joined  bool
	dead    bool
	diedAt  policy.Time
	gen     int
	fetches map[int]int // begun so far, by round
}

// What the queue holds.
type (
	replayJoin  policy.ID
	replayCrash struct{ record.Event }
	replayNote  struct{ record.Event }
	replayLeave struct{ id policy.ID }
	replayLoss  policy.Lost
	replayBeat  policy.ID
	// replayConfirm is the answer to an abort: when it came the record does not say.
	replayConfirm policy.ReduceFailed
	replayTimer   int
	replayReduce  struct{ epoch policy.Epoch }
	replayStep    struct {
		id               policy.ID
		gen, round, step int
		took             policy.Time
	}
	replayArrival struct {
		id         policy.ID
		gen, round int
	}
	replayFetch struct {
		id, from   policy.ID
		gen        int
		outerSteps int // at its begin
		recordedFetch
	}
)

// Replay runs a policy over the recording. If record is not nil it is given
// every event in order. The policy's parameters are the scenario's; they may
// differ from those of the run.
func (r *Recording) Replay(policyName string, note func(record.Event)) (record.Summary, error) {
	configure := r.scenario.Machine
	if r.run.World == record.Real {
		played := *r.scenario
		played.Real.TimeScale = r.run.TimeScale
		configure = played.RealMachine
	}
	cfg, err := configure(policyName)
	if err != nil {
		return record.Summary{}, err
	}
	cfg.StallAfter = 0 // a standstill is told as the record has it
	machine, err := policy.NewCoordinator(cfg)
	if err != nil {
		return record.Summary{}, fmt.Errorf("replaying %s: %w", r.scenario.Name, err)
	}
	p := &replay{
		Recording: r, machine: machine, workers: map[policy.ID]*replayed{},
		record: note, sum: record.NewSummarizer(r.scenario.Setup()), attempts: map[int]int{},
	}
	for _, w := range r.scenario.Workers {
		p.workers[w.ID] = &replayed{name: w.ID.Node(), fetches: map[int]int{}}
		p.order = append(p.order, w.ID)
		if j, ok := r.joins[w.ID]; ok {
			p.joining++
			p.push(j.at, j.order, replayJoin(w.ID))
		}
		if c, ok := r.crashes[w.ID]; ok {
			p.push(c.at, c.order, replayCrash{c.event})
		}
		if l, ok := r.leaves[w.ID]; ok {
			p.push(l.at, l.order, replayLeave{w.ID})
		}
		if l, ok := r.losses[w.ID]; ok {
			p.push(l.at, l.order, replayLoss{ID: w.ID, Rule: l.rule})
		}
		for _, check := range sorted(r.silent[w.ID]) {
			if at := r.silent[w.ID][check]; !r.heardLate(w.ID, at) {
				p.push(at, later, replayBeat(w.ID))
			}
		}
	}
	for _, o := range r.other {
		p.push(o.at, o.order, replayNote{o.event})
	}
	p.note(&record.Event{Type: record.RunStart, Run: &record.Run{
		Schema: record.Schema, Scenario: r.scenario.Name, Policy: policyName, World: record.Replayed, Links: r.run.Links,
		Seed: r.run.Seed, TimeScale: r.run.TimeScale,
	}})
	p.loop()
	sum := p.sum.Summary()
	sum.Fidelity.Verdict = fidelity.Valid // of a logical clock; that of the record is the record's
	return sum, nil
}

func sorted[V any](m map[int]V) []int {
	var keys []int
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// push schedules what the record has at the place order, or what it does not
// have, behind everything that it has at the same time.
func (p *replay) push(at policy.Time, order int, what any) {
	e := scheduled{at: at, order: order, what: what}
	if order >= later {
		e.order = later + p.next
		p.next++
		_, e.last = what.(replayTimer)
	}
	heap.Push(&p.queue, e)
}

func (p *replay) loop() {
	for !p.done {
		if len(p.queue) == 0 || p.queue[0].at > p.scenario.Horizon {
			p.now = p.scenario.Horizon
			p.note(&record.Event{Type: record.Horizon})
			p.finish()
			return
		}
		e := heap.Pop(&p.queue).(scheduled)
		p.now = max(p.now, e.at)
		p.handle(e.what)
		if p.joining == 0 && p.machine.Members() == 0 && !p.done {
			p.finish() // nobody is left and nobody will come
		}
	}
}

func (p *replay) finish() {
	complete := false
	p.done = true
	p.note(&record.Event{Type: record.RunEnd, Complete: &complete})
}

func (p *replay) note(e *record.Event) {
	e.T = p.now
	p.sum.Add(e)
	if p.record != nil {
		p.record(*e)
	}
}

func (p *replay) handle(what any) {
	switch what := what.(type) {
	case replayJoin:
		id := policy.ID(what)
		w, _ := p.scenario.Worker(id)
		p.joining--
		p.workers[id].joined = true
		p.tell(w.Asks(p.scenario.FirstJoin()))
	case replayNote:
		p.note(&what.Event)
	case replayCrash:
		for _, w := range p.workers {
			if w.name == what.Node && !w.dead {
				w.dead, w.diedAt = true, p.now
				p.note(&what.Event)
			}
		}
	case replayLeave:
		if w := p.workers[what.id]; !w.dead {
			w.dead, w.diedAt = true, p.now
			p.note(&record.Event{Type: record.Leave, Node: w.name})
			p.tell(policy.Leave{ID: what.id})
		}
	case replayLoss:
		p.tell(policy.Lost(what))
	case replayConfirm:
		p.tell(policy.ReduceFailed(what))
	case replayBeat:
		p.tell(policy.Heartbeat{ID: policy.ID(what)})
	case replayStep:
		if w := p.workers[what.id]; w.gen == what.gen && !w.dead {
			p.note(&record.Event{Type: record.Step, Node: w.name, Round: what.round, Step: what.step, Duration: what.took})
		}
	case replayArrival:
		p.arrive(what)
	case replayReduce:
		if what.epoch == p.epoch {
			p.reduced()
		}
	case replayFetch:
		p.fetched(what)
	case replayTimer:
		if int(what) == p.wake {
			p.timer()
		}
	}
}

// arrive tells of an arrival. Of a worker that is dead by now only what was on
// its way already, as in the record, still arrives.
func (p *replay) arrive(a replayArrival) {
	w := p.workers[a.id]
	if w.gen != a.gen {
		return
	}
	if r := p.work[turn{a.id, a.round}]; w.dead && p.now > w.diedAt && !(r != nil && r.arrived && p.now <= r.at) {
		return
	}
	p.tell(policy.Arrival{ID: a.id, Round: a.round})
}

// reduced ends the attempt under way as it ended in the record. One with a
// worker that has died meanwhile, though not in the record, hangs until the
// machine notices.
func (p *replay) reduced() {
	round, epoch := p.machine.OuterSteps()+1, p.epoch
	if id := p.running.failed; id != nil && slices.Contains(p.ring, *id) {
		p.tell(policy.ReduceFailed{ID: *id, Round: round, Epoch: epoch, Peer: p.running.peer})
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
		p.tell(policy.Reduced{ID: id, Round: round, Epoch: epoch})
	}
	for _, id := range against {
		p.tell(policy.ReduceFailed{ID: id, Round: round, Epoch: epoch, Alone: true})
	}
}

func (p *replay) fetched(f replayFetch) {
	w := p.workers[f.id]
	switch {
	case w.gen != f.gen || w.dead:
	case f.failed:
		p.tell(policy.FetchFailed{ID: f.id})
	case f.stale:
		p.tell(policy.StateFetched{ID: f.id, OuterSteps: f.outerSteps})
	case f.done || !p.workers[f.from].dead: // the machine notices the death of a donor
		p.tell(policy.StateFetched{ID: f.id, OuterSteps: p.machine.OuterSteps()})
	}
}

// timer wakes the machine up, after the heartbeats that it has to have heard
// by then.
func (p *replay) timer() {
	check := int(p.now / p.scenario.HeartbeatPeriod)
	for _, id := range p.order {
		if p.beats(id, check) {
			p.tell(policy.Heartbeat{ID: id})
		}
	}
	p.tell(policy.Timer{})
	for _, id := range p.order { // those that were too late for this check
		for _, c := range sorted(p.silent[id]) {
			if at := p.silent[id][c]; at == p.now && p.heardLate(id, at) {
				p.tell(policy.Heartbeat{ID: id})
			}
		}
	}
}

// beats says whether a worker has been heard by a check: the record says so by
// saying nothing else. If the time is known it has been told then.
func (p *replay) beats(id policy.ID, check int) bool {
	w := p.workers[id]
	if !w.joined || w.dead {
		return false
	}
	if last, gone := p.gone[id]; gone && p.now > last {
		return false
	}
	if _, silent := p.silent[id][check]; silent {
		return false
	}
	period := p.scenario.HeartbeatPeriod
	for _, at := range p.silent[id] {
		if at < p.now && at > p.now-period {
			return false
		}
	}
	return true
}

// heardLate says whether a sign of life came in the instant of a check that
// had missed it.
func (r *Recording) heardLate(id policy.ID, at policy.Time) bool {
	check := int(at / r.scenario.HeartbeatPeriod)
	_, silent := r.silent[id][check]
	return silent && r.checks[check].at == at
}

// tell gives the machine an event and carries its actions out.
func (p *replay) tell(e policy.Event) {
	if p.done {
		return
	}
	for _, a := range p.machine.Step(p.now, e) {
		p.act(a)
	}
}

func (p *replay) act(a policy.Action) {
	if e, ok := record.FromAction(p.now, a); ok {
		p.note(&e)
	}
	switch a := a.(type) {
	case *policy.StartRound:
		for _, id := range a.IDs {
			p.begin(id, a.Round)
		}
	case *policy.Reduce:
		p.reduce(a)
	case *policy.Abort:
		p.epoch = 0
		for _, id := range a.Participants {
			if a.Confirm && !p.workers[id].dead {
				p.push(p.now, later, replayConfirm{ID: id, Epoch: a.Epoch})
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

func (p *replay) begin(id policy.ID, round int) {
	w := p.workers[id]
	w.gen++
	if w.dead {
		if r := p.work[turn{id, round}]; r == nil || !r.arrived {
			return
		}
	}
	steps, took, order := p.plan(turn{id, round}, p.now)
	at := p.now
	for i, d := range steps {
		at += d
		p.push(at, later, replayStep{id: id, gen: w.gen, round: round, step: i + 1, took: d})
	}
	p.push(p.now+took, order, replayArrival{id: id, gen: w.gen, round: round})
}

// reduce begins the next attempt of a round. One that the record saw aborted
// because a participant was lost does not end by itself.
func (p *replay) reduce(a *policy.Reduce) {
	attempts, k := p.reduces[a.Round], p.attempts[a.Round]
	p.attempts[a.Round]++
	p.epoch, p.ring, p.began = a.Epoch, a.Participants, p.now
	p.running = recordedReduce{took: p.reduction, order: later}
	switch {
	case k < len(attempts):
		p.running = attempts[k]
	case len(attempts) > 0 && attempts[len(attempts)-1].done:
		p.running.took = attempts[len(attempts)-1].took
	}
	if r := p.running; k < len(attempts) && !r.done && r.failed == nil {
		if slices.ContainsFunc(r.participants, func(id policy.ID) bool { return !p.gathers(attempts, k, id) && slices.Contains(a.Participants, id) }) {
			return
		}
		p.running = recordedReduce{took: p.reduction, order: later}
	}
	p.push(p.now+p.running.took, max(p.running.order, 0), replayReduce{a.Epoch})
}

// gathers says whether a participant of an attempt that was aborted took part
// in the next one.
func (p *replay) gathers(attempts []recordedReduce, k int, id policy.ID) bool {
	return k+1 < len(attempts) && slices.Contains(attempts[k+1].participants, id)
}

func (p *replay) fetch(a *policy.Fetch) {
	w := p.workers[a.ID]
	w.gen++
	f := recordedFetch{took: p.fetching, order: later}
	if p.run.World == record.Sim && a.Rule == policy.RuleResync {
		f.took = 0 // as the simulator has it
	}
	if all, k := p.fetches[turn{a.ID, a.Round}], w.fetches[a.Round]; k < len(all) {
		if f = all[k]; !f.done && !f.stale && !f.failed {
			f.took = max(f.took+1, p.fetching) // it was not over yet
		}
	}
	w.fetches[a.Round]++
	p.push(p.now+f.took, f.order, replayFetch{id: a.ID, from: a.From, gen: w.gen, outerSteps: a.OuterSteps, recordedFetch: f})
}

// wakeAt schedules the machine's wake-up, as late as that of the record was.
func (p *replay) wakeAt(at policy.Time) {
	p.wake++
	order := later
	c := p.closes[p.machine.OuterSteps()+1]
	check, seen := p.checks[int(at/p.scenario.HeartbeatPeriod)]
	switch immediate := at <= p.now; {
	case at%p.scenario.HeartbeatPeriod == 0 && !immediate:
		if seen {
			at, order = max(at, check.at), check.order
		}
	case immediate && c.rule == policy.RuleQuorum, !immediate && c.rule == policy.RuleDeadline:
		at, order = at+c.late, c.order
	}
	p.push(max(at, p.now), order, replayTimer(p.wake))
}
