// Package sim plays a scenario in a deterministic discrete-event simulator.
//
// It drives the same policy machine as a real run, on a logical clock, with
// all randomness from one seeded ChaCha8 stream: the same scenario and seed
// give the same events on every machine. Its network model is churn's: a
// message takes base_latency, an all-reduce or a state fetch takes
// base_latency + state_bytes / bandwidth_bpus, whatever else is going on.
// Rounds begin everywhere at once, and a partition holds messages back rather
// than dropping them. RunLinks has another one: the links that a real run of
// the scenario would be given.
package sim

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"testbed/policy"
	"testbed/scenarios/faults"

	"testbed/record"
	"testbed/scenarios"
	"testbed/shaping/fidelity"
	"testbed/train/work"

	"testbed/policy/worker"
)

// workerState is a worker as the simulator plays it.
type workerState struct {
	spec   scenarios.Worker
	name   string
	factor float64
	alive  bool // has joined and has neither crashed nor left
	member bool
	cut    bool // partitioned
	paused bool
	beats  bool // heartbeats all the same
	// Of the step in flight: when it ends, or how much of it was left when a
	// pause caught it.
	stepping      bool
	stepEnd, left policy.Time
	begin         bool     // paused before the first step of its round
	awaits        []func() // what it is to do once it is paused no more
	round         int
	comeback
	step    int
	ahead   bool // its inner steps have begun before the outer step of the round before
	due     bool // that is taken by now
	gen     int  // invalidates scheduled events of what it was doing before
	stepFor policy.Time
	draw    work.Sampler // the durations of its inner steps
	held    []int        // rounds whose arrivals wait for the end of the partition
	fetch   struct {
		from    int
		free    bool // costs nothing and passes through partitions
		agreed  bool // what all regions last agreed on
		pending bool // over, but for a partition
	}
}

type simulator struct {
	scenario *scenarios.Scenario
	machine  policy.Coordinator
	exchange func(round int) policy.Time // what a reduction takes on the network of churn
	overlap  int                         // of rounds, in inner steps
	rule     *policy.Grouping
	heap     Heap
	links    *world // nil: the network is churn's
	now      policy.Time
	workers  []workerState
	index    map[policy.ID]int
	record   func(record.Event)
	sum      *record.Summarizer
	joining  int         // joins still to come
	first    policy.Time // of the joins
	wake     policy.Time
	done     bool
	failed   error // why it could not go on

	running []*reduction // reductions under way
	spare   []*reduction // that are over

	// away says that there is no coordinator, and apart that the workers are not
	// connected to it; what they have to say meanwhile waits.
	away, apart bool
	waiting     []undelivered
	outages     int
	back        policy.Recovered // what it is told when it is back

	busy, barrier policy.Time // for the churn-like utilisation
	firstArrival  policy.Time
	arrivedAny    bool
}

// Run simulates the scenario under a policy. If record is not nil it is given
// every event in order.
func Run(s *scenarios.Scenario, policyName string, note func(record.Event)) (record.Summary, error) {
	cfg, err := s.Machine(policyName)
	if err != nil {
		return record.Summary{}, err
	}
	sim, err := newSimulator(s, cfg, note)
	if err != nil {
		return record.Summary{}, err
	}
	return sim.run(policyName, "none", 1)
}

// newSimulator returns a simulator of the scenario that has not begun.
func newSimulator(s *scenarios.Scenario, cfg policy.Config, note func(record.Event)) (*simulator, error) {
	machine, err := policy.NewCoordinator(cfg)
	if err != nil {
		return nil, fmt.Errorf("simulating %s: %w", s.Name, err)
	}
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], s.Seed)
	rng := rand.New(rand.NewChaCha8(key))
	sim := &simulator{
		scenario: s, machine: machine, exchange: Exchanges(s), overlap: s.Exchange().Overlap, rule: s.Grouping(),
		index:  make(map[policy.ID]int, len(s.Workers)),
		record: note, sum: record.NewSummarizer(s.Setup()),
		wake: -1, joining: len(s.Workers), first: s.FirstJoin(),
	}
	for i, w := range s.Workers {
		sim.workers = append(sim.workers, workerState{spec: w, name: w.ID.Node(), factor: 1, draw: s.Sampler(w, 0, rng)})
		sim.index[w.ID] = i
		sim.heap.Push(w.JoinAt, joins, i, 0)
	}
	for i, in := range s.Injects {
		sim.heap.Push(in.At, injects, i, 0)
	}
	return sim, nil
}

// run plays the scenario to its end.
func (s *simulator) run(policyName, links string, timeScale float64) (record.Summary, error) {
	if s.links == nil {
		s.heap.Push(s.scenario.HeartbeatPeriod, ticks, 0, 0)
	}
	s.note(&record.Event{Type: record.RunStart, Run: &record.Run{
		Schema: record.Schema, Scenario: s.scenario.Name, Policy: policyName, World: record.Sim, Links: links,
		Seed: s.scenario.Seed, TimeScale: timeScale,
	}})
	s.loop()
	if s.failed != nil {
		return record.Summary{}, s.failed
	}
	sum := s.sum.Summary()
	sum.Fidelity.Verdict = fidelity.Valid // a logical clock is never late
	if s.links == nil {
		for _, in := range s.scenario.Real.Injects {
			sum.NotSimulated = append(sum.NotSimulated, in.String())
		}
	}
	if total := s.busy + s.barrier; total > 0 {
		u := float64(s.busy) / float64(total)
		sum.ChurnLikeUtilization = &u
	}
	return sum, nil
}

func (s *simulator) loop() {
	for !s.done {
		e, ok := s.heap.Pop()
		if !ok || e.At > s.scenario.Horizon {
			s.now = s.scenario.Horizon
			s.note(&record.Event{Type: record.Horizon})
			s.end(false)
			return
		}
		s.now = e.At
		s.handle(e)
		if s.joining == 0 && s.machine.Members() == 0 && !s.done {
			s.end(false) // nobody is left and nobody will come
		}
	}
}

func (s *simulator) end(complete bool) {
	s.done = true
	s.note(&record.Event{Type: record.RunEnd, Complete: &complete})
}

func (s *simulator) note(e *record.Event) {
	e.T = s.now
	s.sum.Add(e)
	if s.record != nil {
		s.record(*e)
	}
}

func (s *simulator) handle(e Entry) {
	a, b := int(e.A), int(e.B)
	switch e.Kind {
	case joins:
		s.workers[a].begun = true
		if s.links != nil {
			s.joinOverLinks(a)
			return
		}
		w := &s.workers[a]
		s.joining--
		w.alive = true
		s.tell(w.spec.Asks(s.first))
	case injects:
		s.inject(s.scenario.Injects[a])
	case returns:
		s.note(&record.Event{Type: record.CoordinatorBack, Duration: s.back.Away})
		s.away = false
		s.step(s.back)
		s.heap.Push(s.now+3*s.scenario.BaseLatency, reunites, s.outages, 0)
	case reunites:
		if a == s.outages {
			s.reunite()
		}
	case ticks:
		for i := range s.workers {
			if w := &s.workers[i]; w.alive && (w.member || w.life > 0) && (!w.mute() || w.beats && !w.cut) && !s.apart {
				s.step(policy.Heartbeat{ID: w.spec.ID})
			}
		}
		s.heap.Push(s.now+s.scenario.HeartbeatPeriod, ticks, 0, 0)
	case stepDone:
		s.stepDone(a, b)
	case arrives:
		if arrival := (policy.Arrival{ID: policy.ID(a), Round: b}); s.stale(arrival.ID) {
			return
		} else if s.apart {
			s.wait(arrival)
		} else {
			s.step(arrival)
		}
	case reduced:
		if r := s.reduction(policy.Epoch(a)); r != nil {
			s.reduced(r)
		}
	case failing:
		s.failsNow(a, policy.Epoch(b))
	case confirms:
		s.confirm(a, policy.Epoch(b))
	case fetched:
		if s.workers[a].gen == b {
			s.fetched(a)
		}
	case timers:
		if s.now == s.wake {
			s.wake = -1
			if !s.away {
				s.step(policy.Timer{})
			}
		}
	case delivers:
		s.deliver(a)
	case restarts:
		s.restart(a)
	case asks:
		s.askAgain(a, b)
	case acts:
		s.actOnNotice(a)
	case kills:
		s.kill(a, b)
	case beats:
		s.beat(a, b)
	case reducedRank:
		s.reducedRank(a, policy.Epoch(b))
	case linksChange:
		if s.failed = s.relay(); s.failed != nil {
			s.done = true
		}
	}
}

func (s *simulator) stepDone(i, gen int) {
	w := &s.workers[i]
	if !w.alive || w.gen != gen {
		return
	}
	w.step++
	w.stepping = false
	s.note(&record.Event{Type: record.Step, Node: w.name, Round: w.round, Step: w.step, Duration: w.stepFor})
	switch {
	case s.links != nil:
		s.drive(i, worker.StepDone{})
	default:
		s.goOn(i)
	}
}

// goOn follows on an inner step: with the next one, or with the arrival and, where
// rounds overlap, the next round, as worker.Machine has it.
func (s *simulator) goOn(i int) {
	w := &s.workers[i]
	if w.ahead && w.step == s.overlap {
		if !w.due || w.paused {
			return // StartRound follows, or the end of the pause
		}
		w.ahead = false
		s.noteMerge(w, w.round-1, w.step)
	}
	if w.step < s.scenario.InnerSteps {
		s.scheduleStep(i)
		return
	}
	if w.cut {
		w.held = append(w.held, w.round)
	} else {
		s.heap.Push(s.now+s.scenario.BaseLatency, arrives, int(w.spec.ID), w.round)
	}
	if s.overlap > 0 && !w.preempted {
		w.round, w.step, w.ahead, w.due = w.round+1, 0, true, false
		s.scheduleStep(i)
	}
}

// noteMerge records when outcomes come in, where that is of interest.
func (s *simulator) noteMerge(w *workerState, outerSteps, step int) {
	if s.overlap > 0 {
		s.note(&record.Event{Type: record.Merge, Node: w.name, Round: outerSteps, Step: step})
	}
}

// scheduleStep begins an inner step. Its length is fixed now: a later Slow or
// Restore does not change a step in flight.
func (s *simulator) scheduleStep(i int) {
	w := &s.workers[i]
	w.stepFor = w.draw.Step(s.now, w.factor)
	if s.links != nil {
		w.stepFor += s.links.scenario(s.links.StepCost())
	}
	s.busy += w.stepFor
	s.continueStep(i, w.stepFor)
}

// continueStep has the step of a worker end when that much of it has passed.
func (s *simulator) continueStep(i int, left policy.Time) {
	w := &s.workers[i]
	w.stepping, w.stepEnd = true, s.now+left
	s.heap.Push(w.stepEnd, stepDone, i, w.gen)
}

// mute says whether nobody hears of the worker.
func (w *workerState) mute() bool { return w.cut || w.paused }

// drop has the worker forget what it was doing.
func (w *workerState) drop() {
	w.gen++
	w.stepping, w.begin, w.ahead = false, false, false
}

// find returns the place of a worker in workers.
func (s *simulator) find(id policy.ID) int {
	if i := int(id); i >= 0 && i < len(s.workers) && s.workers[i].spec.ID == id {
		return i // IDs mostly count from 0
	}
	return s.index[id]
}

func (s *simulator) fetched(i int) {
	w := &s.workers[i]
	donor := &s.workers[w.fetch.from]
	switch {
	case !w.alive || !donor.alive || !donor.member: // the machine notices by their heartbeats
	case s.held(w):
		w.fetch.pending = true
	default:
		s.tell(policy.StateFetched{ID: w.spec.ID, OuterSteps: s.machine.OuterSteps(), Agreed: w.fetch.agreed})
	}
}

// held says whether the worker's fetch cannot end now.
func (s *simulator) held(w *workerState) bool {
	if w.fetch.free {
		return w.paused
	}
	return w.mute() || s.workers[w.fetch.from].mute()
}

// tell gives the machine what a worker has to say, once they are connected.
// What is said most does without it: a call of step alone does not allocate.
func (s *simulator) tell(e policy.Event) {
	if s.apart {
		s.wait(e)
		return
	}
	s.step(e)
}

func (s *simulator) wait(e policy.Event) { s.waiting = append(s.waiting, undelivered{event: e}) }

// step gives the machine an event and carries its actions out.
func (s *simulator) step(e policy.Event) {
	if s.done {
		return
	}
	for _, a := range s.machine.Step(s.now, e) {
		s.act(a)
	}
}

func (s *simulator) act(a policy.Action) {
	if step, ok := a.(*policy.OuterStep); ok && s.links != nil {
		s.noteReduced(step)
	}
	if e, ok := record.FromAction(s.now, a); ok {
		s.note(&e)
	}
	if s.links != nil && s.actOverLinks(a) {
		return
	}
	switch a := a.(type) {
	case *policy.Admit:
		s.workers[s.find(a.ID)].member = true
	case *policy.StartRound:
		for _, id := range a.IDs {
			i := s.find(id)
			w := &s.workers[i]
			if w.ahead && w.round == a.Round && !w.preempted && w.alive {
				if w.due = true; !w.stepping {
					s.goOn(i)
				}
				continue
			}
			w.drop()
			w.round, w.step = a.Round, 0
			switch {
			case w.preempted:
				s.heap.Push(s.now, acts, i, 0)
			case w.paused:
				w.begin = true
			case w.alive:
				s.scheduleStep(i)
			}
		}
	case *policy.Arrived:
		if !a.Late && !s.arrivedAny {
			s.arrivedAny, s.firstArrival = true, s.now
		}
	case *policy.Close:
		s.barrier += s.now - s.firstArrival
		s.arrivedAny = false
	case *policy.Reduce:
		s.expectFailures(s.beginReduction(a))
		s.heap.Push(s.now+s.exchange(a.Round), reduced, int(a.Epoch), 0)
	case *policy.Abort:
		s.endReduction(a.Epoch)
		for _, id := range a.Participants {
			if a.Confirm {
				s.heap.Push(s.now+2*s.scenario.BaseLatency, confirms, s.find(id), int(a.Epoch))
			}
		}
	case *policy.OuterStep:
		s.endReduction(a.Epoch)
	case *policy.Fetch:
		s.startFetch(a)
	case *policy.Evict:
		s.evict(a)
	case *policy.Reject:
		s.ended(s.find(a.ID)) // a process that is no member
	case *policy.WakeAt:
		s.wake = max(a.At, s.now)
		s.heap.PushLast(s.wake, timers, 0, 0) // an arrival exactly at the deadline is on time
	case *policy.Finish:
		s.done = true
		// churn's utilisation charges the first steps of the round after the
		// last one.
		for i := range s.workers {
			if w := &s.workers[i]; a.Complete && w.alive && w.member {
				s.busy += w.draw.Step(s.now, w.factor)
			}
		}
	}
}

// startFetch takes the time of a transfer for a joiner. A sidelined worker gets
// the state at once: in churn's model it restarts with the round at no cost,
// even from behind a partition.
func (s *simulator) startFetch(a *policy.Fetch) {
	i := s.find(a.ID)
	w := &s.workers[i]
	w.drop()
	if w.preempted {
		s.heap.Push(s.now, acts, i, 0)
		return
	}
	w.fetch.from, w.fetch.pending, w.fetch.agreed = s.find(a.From), false, a.Agreed
	w.fetch.free = a.Rule == policy.RuleResync
	at := s.now
	if !w.fetch.free {
		at += Transfer(s.scenario)
	}
	s.heap.Push(at, fetched, i, w.gen)
}

// crashCoordinator leaves the workers without a coordinator. They go on with
// what they were told; what they have to say waits for the next one.
func (s *simulator) crashCoordinator(in faults.Inject) {
	if s.away {
		return
	}
	s.note(&record.Event{Type: record.CoordinatorCrash})
	s.away, s.apart, s.back = true, true, policy.Recovered{Forgets: in.Forgets, Away: in.Down}
	s.outages++
	s.heap.Push(s.now+in.Down, returns, 0, 0)
}

// reunite is when the workers are connected to the new coordinator: a
// handshake, which takes a round trip, and a message after it is back. They
// give a sign of life, and then say what they could not say before.
func (s *simulator) reunite() {
	s.apart = false
	for i := range s.workers {
		if w := &s.workers[i]; w.alive && w.member && !w.cut && s.links == nil { // over links its heartbeats have waited too
			s.tell(policy.Heartbeat{ID: w.spec.ID})
		}
	}
	waiting := s.waiting
	s.waiting = nil
	for _, u := range waiting {
		s.receive(u)
	}
}

func (s *simulator) inject(in faults.Inject) {
	if in.Op == faults.CoordinatorCrash {
		s.crashCoordinator(in)
		return
	}
	if in.ID != nil {
		s.injectWorker(in, s.find(*in.ID))
		return
	}
	targets := in.IDs
	if targets == nil {
		for i := range s.workers {
			targets = append(targets, s.workers[i].spec.ID)
		}
	}
	cut := in.Op == faults.Partition
	e := record.Event{Type: record.Heal, IDs: targets}
	if cut {
		e.Type = record.Partition
	}
	s.note(&e)
	if s.links != nil {
		return // the paths change with the other faults of links
	}
	for _, id := range targets {
		w := &s.workers[s.find(id)]
		healed := w.cut && !cut
		w.cut = cut
		if healed {
			s.release(s.find(id))
		}
	}
	s.proceed()
}

// proceed has the reduction and the fetches go on that nothing holds up any
// more.
func (s *simulator) proceed() {
	for _, r := range s.running {
		if r.stalled && !slices.ContainsFunc(r.participants, func(id policy.ID) bool { return s.workers[s.find(id)].mute() }) {
			r.stalled = false
			s.heap.Push(s.now+s.scenario.BaseLatency, reduced, int(r.epoch), 0)
		}
	}
	for i := range s.workers {
		w := &s.workers[i]
		if w.fetch.pending && !s.held(w) {
			w.fetch.pending = false
			s.heap.Push(s.now+s.scenario.BaseLatency, fetched, i, w.gen)
		}
		if w.asking && !w.mute() {
			w.asking = false
			s.heap.Push(s.now+s.scenario.BaseLatency, asks, i, w.life)
		}
	}
}

// pause stops a worker in the middle of its step.
func (s *simulator) pause(i int) {
	w := &s.workers[i]
	w.paused = true
	if w.stepping {
		w.gen++
		w.left = w.stepEnd - s.now
	}
	if s.links != nil {
		s.stand(i, true)
	}
}

// unpause has a worker go on where it stood, with what has come in since.
func (s *simulator) unpause(i int) {
	w := &s.workers[i]
	w.paused, w.beats = false, false
	if s.links != nil {
		s.stand(i, false)
	}
	awaits := w.awaits
	w.awaits = nil
	for _, do := range awaits {
		do()
	}
	switch {
	case !w.alive:
	case w.begin:
		w.begin = false
		s.scheduleStep(i)
	case w.stepping:
		s.continueStep(i, w.left)
	case w.ahead && s.links == nil:
		s.goOn(i)
	}
	s.proceed()
}

func (s *simulator) leave(w *workerState) {
	s.note(&record.Event{Type: record.Leave, Node: w.name})
	s.goodbye(w)
}

func (s *simulator) goodbye(w *workerState) {
	w.alive = false
	w.drop()
	s.tell(policy.Leave{ID: w.spec.ID})
}

// release delivers what a partition has held back.
func (s *simulator) release(i int) {
	w := &s.workers[i]
	for _, round := range w.held {
		s.heap.Push(s.now+s.scenario.BaseLatency, arrives, int(w.spec.ID), round)
	}
	w.held = nil
}

func (s *simulator) injectWorker(in faults.Inject, i int) {
	if s.links != nil && s.injectOverLinks(in, i) {
		return
	}
	w := &s.workers[i]
	switch in.Op {
	case faults.Slow:
		s.noteSpeed(w, *in.Factor, true)
	case faults.Restore:
		s.noteSpeed(w, 1, false)
	case faults.Restart:
		s.injectWorker(faults.Inject{Op: faults.Crash}, i)
		s.heap.Push(s.now+in.After, restarts, i, 0)
	default:
		if w.alive {
			s.disrupt(in, i)
		}
	}
}

// noteSpeed has a worker's inner steps that begin from now on take factor times
// as long.
func (s *simulator) noteSpeed(w *workerState, factor float64, slow bool) {
	w.factor = factor
	if slow {
		s.note(&record.Event{Type: record.Slow, Node: w.name, Factor: factor})
		return
	}
	s.note(&record.Event{Type: record.Restore, Node: w.name})
}

// disrupt ends or interrupts a worker that is alive.
func (s *simulator) disrupt(in faults.Inject, i int) {
	w, op := &s.workers[i], in.Op
	note := func(what record.Type) { s.note(&record.Event{Type: what, Node: w.name}) }
	switch {
	case op == faults.Crash:
		note(record.Crash)
		w.alive = false
		w.drop()
	case op == faults.Preempt:
		s.preempt(in.Notice, i)
	case (op == faults.Leave || op == faults.Fail || op == faults.FailReduce) && w.paused:
		w.awaits = append(w.awaits, func() { s.injectWorker(in, i) })
	case op == faults.Leave:
		s.leave(w)
	case op == faults.Fail:
		note(record.Fail)
		s.fail(i)
	case op == faults.FailReduce:
		s.note(&record.Event{Type: record.FailReduce, Node: w.name, Alone: in.Alone})
		s.failReduce(in, i)
	case op == faults.Pause && !w.paused:
		s.note(&record.Event{Type: record.Pause, Node: w.name, Heartbeats: in.Heartbeats})
		w.beats = in.Heartbeats
		s.pause(i)
	case op == faults.Resume && w.paused:
		note(record.Resume)
		s.unpause(i)
	}
}

// What is scheduled.
const (
	joins Kind = iota
	injects
	ticks    // heartbeats of everybody
	stepDone // a worker has completed an inner step
	arrives  // an arrival reaches the coordinator
	reduced  // a reduction is over
	failing  // a reduction fails at a worker
	confirms // a worker says that it has dropped one
	fetched  // a state fetch is over
	timers   // the machine's wake-up
	returns  // another coordinator takes the place of the one that died
	reunites // the workers are connected to it
	restarts // a new process of a worker begins
	asks     // a worker that was evicted asks to join again
	acts     // a preempted worker acts on its notice
	kills    // the notice of a preempted worker is over

	// Over links only.
	delivers    // a message arrives
	beats       // a heartbeat of a worker
	reducedRank // a reduction is over at a rank
	linksChange // links change
)
