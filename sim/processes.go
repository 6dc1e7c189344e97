package sim

import (
	"testbed/policy"
	"testbed/policy/worker"
	"testbed/record"
	"testbed/scenarios/faults"
	"testbed/scenarios/resolved"
	"testbed/train/work"
)

// processes are the workers' processes, and the injects into them and into the
// coordinator. Churn's network and the planned links share them.
type processes struct {
	engine
	live      liveNetwork
	workers   []workerState
	index     map[policy.ID]int
	firstJoin policy.Time
	running   []*reduction // that are under way
	stepCost  policy.Time  // that the machine adds to every inner step

	absent bool // there is no coordinator
	// disconnected says that the workers are not connected to the coordinator. Their
	// messages wait.
	disconnected bool
	waiting      []func()
	outages      int
	back         policy.Recovered // event for the next coordinator

	busy, barrier policy.Time // for the churn-like utilisation
	firstArrival  policy.Time
	arrivedAny    bool
}

// liveNetwork is a network on which the scenario's injects happen during the run. (On a
// recorded network they are in the record.) The methods of processes are those of a
// network on which an inject has no further effect.
type liveNetwork interface {
	network
	// started begins the life of a worker's new process.
	started(i int)
	// drive gives a worker an event for an inject.
	drive(i int, e worker.Event)
	// lastWords sends the last message of a worker. On a cut path it is lost.
	lastWords(i int, e policy.Event)
	crashed(i int) // a worker is about to crash
	pause(i int)
	resume(i int)
	partition(ids []policy.ID, cut bool)
	reconnect() // workers are connected to the coordinator again
}

// workerState is a worker as the simulator plays it.
type workerState struct {
	spec   resolved.Worker
	name   string
	factor float64
	alive  bool // has joined and has neither crashed nor left
	member bool
	paused bool
	beats  bool // sends heartbeats although it is paused
	// A life is the time from one request to join to the next: that of a new
	// process, or of an evicted worker that asks again. Messages still on their
	// way from an earlier life have no effect.
	begun       bool // its first process has begun
	incarnation int  // the number of its process
	life        int
	preempted   bool // it leaves after its round
	// Of the step in flight: when it ends, or how much of it was left when a pause
	// interrupted it.
	stepping      bool
	stepEnd, left policy.Time
	awaits        []func() // actions of the worker after its pause
	round         int
	step          int
	gen           int // invalidates scheduled events of earlier activities
	stepFor       policy.Time
	draw          work.Sampler // the durations of its inner steps
	onChurn
}

// newProcesses returns processes that have not begun.
func newProcesses(r *resolved.Scenario, cfg policy.Config, note func(record.Event)) (processes, error) {
	e, err := newEngine(r, cfg, note)
	if err != nil {
		return processes{}, err
	}
	p := processes{engine: e, index: make(map[policy.ID]int, len(r.Workers)), firstJoin: r.FirstJoin()}
	p.joining = len(r.Workers)
	for i, w := range r.Workers {
		p.workers = append(p.workers, workerState{spec: w, name: w.ID.Node(), factor: 1})
		p.index[w.ID] = i
	}
	return p, nil
}

// begin schedules the first processes of all workers, and the injects.
func (p *processes) begin() {
	for i := range p.workers {
		w := &p.workers[i]
		p.later(w.spec.JoinAt, func() {
			w.begun = true
			p.live.started(i)
		})
	}
	for _, in := range p.scenario.Injects {
		p.later(in.At, func() { p.inject(in) })
	}
}

// play runs the processes on a network. links names its model in the record.
func (p *processes) play(n liveNetwork, links string, timeScale float64) (record.Summary, error) {
	p.live = n
	sum, err := p.run(n, record.Run{World: record.Sim, Links: links, Seed: p.scenario.Seed, TimeScale: timeScale})
	if total := p.busy + p.barrier; err == nil && total > 0 {
		u := float64(p.busy) / float64(total)
		sum.ChurnLikeUtilization = &u
	}
	return sum, err
}

// find returns the place of a worker in workers.
func (p *processes) find(id policy.ID) int {
	if i := int(id); i >= 0 && i < len(p.workers) && p.workers[i].spec.ID == id {
		return i // IDs mostly count from 0
	}
	return p.index[id]
}

// beginStep begins an inner step. Its length is fixed now: a later Slow or
// Restore does not change a step in flight.
func (p *processes) beginStep(i int) {
	w := &p.workers[i]
	w.stepFor = w.draw.Step(p.now, w.factor) + p.stepCost
	p.busy += w.stepFor
	p.continueStep(i, w.stepFor)
}

// continueStep schedules the end of a worker's step, with so much of it left.
func (p *processes) continueStep(i int, left policy.Time) {
	w := &p.workers[i]
	w.stepping, w.stepEnd = true, p.now+left
	p.heap.push(w.stepEnd, stepDone, i, w.gen)
}

// endStep records the end of an inner step, and reports whether it counts: the
// worker may have been given another order.
func (p *processes) endStep(i, gen int) bool {
	w := &p.workers[i]
	if !w.alive || w.gen != gen {
		return false
	}
	w.step++
	w.stepping = false
	p.note(&record.Event{Type: record.Step, Node: w.name, Round: w.round, Step: w.step, Duration: w.stepFor})
	return true
}

// drop ends the worker's inner step and all its waits.
func (w *workerState) drop() {
	w.gen++
	w.stepping, w.begin, w.ahead = false, false, false
}

// noteMerge records when a worker merges an outcome, where rounds overlap.
func (p *processes) noteMerge(w *workerState, outerSteps, step int) {
	if p.scenario.Exchange.Overlap > 0 {
		p.note(&record.Event{Type: record.Merge, Node: w.name, Round: outerSteps, Step: step})
	}
}

// noteSpeed makes a worker's inner steps that begin from now on take factor times
// as long.
func (p *processes) noteSpeed(w *workerState, factor float64, slow bool) {
	w.factor = factor
	if slow {
		p.note(&record.Event{Type: record.Slow, Node: w.name, Factor: factor})
		return
	}
	p.note(&record.Event{Type: record.Restore, Node: w.name})
}

// carryOut carries out an action that is alike on both networks.
func (p *processes) carryOut(a policy.Action) {
	switch a := a.(type) {
	case *policy.Admit:
		p.workers[p.find(a.ID)].member = true
	case *policy.Arrived:
		if !a.Late && !p.arrivedAny {
			p.arrivedAny, p.firstArrival = true, p.now
		}
	case *policy.Close:
		p.barrier += p.now - p.firstArrival
		p.arrivedAny = false
	case *policy.Reject:
		p.ended(p.find(a.ID)) // a process that is no longer a member
	case *policy.WakeAt:
		p.wakeAt(a.At)
	case *policy.Finish:
		p.done = true
		// churn's utilisation charges the first steps of the round after the
		// last one.
		for i := range p.workers {
			if w := &p.workers[i]; a.Complete && w.alive && w.member {
				p.busy += w.draw.Step(p.now, w.factor)
			}
		}
	}
}

func (p *processes) wakeUp() {
	if !p.absent {
		p.step(policy.Timer{})
	}
}

func (p *processes) inject(in faults.Inject) {
	if in.Op == faults.CoordinatorCrash {
		p.crashCoordinator(in)
		return
	}
	if in.ID != nil {
		p.injectWorker(in, p.find(*in.ID))
		return
	}
	ids := in.IDs
	if ids == nil {
		ids = p.scenario.IDs()
	}
	cut := in.Op == faults.Partition
	e := record.Event{Type: record.Heal, IDs: ids}
	if cut {
		e.Type = record.Partition
	}
	p.note(&e)
	p.live.partition(ids, cut)
}

func (p *processes) injectWorker(in faults.Inject, i int) {
	atJoin := in.At <= p.workers[i].spec.JoinAt
	switch in.Op {
	case faults.Slow:
		p.live.drive(i, worker.Slow{Factor: *in.Factor, AtJoin: atJoin})
	case faults.Restore:
		p.live.drive(i, worker.Restore{AtJoin: atJoin})
	case faults.Restart:
		p.injectWorker(faults.Inject{Op: faults.Crash}, i)
		p.later(p.now+in.After, func() { p.restart(i) })
	default:
		if p.workers[i].alive {
			p.disrupt(in, i)
		}
	}
}

// disrupt ends or interrupts a worker that is alive.
func (p *processes) disrupt(in faults.Inject, i int) {
	w, op := &p.workers[i], in.Op
	note := func(what record.Type) { p.note(&record.Event{Type: what, Node: w.name}) }
	switch {
	case op == faults.Crash:
		p.live.crashed(i)
		note(record.Crash)
		w.alive = false
		w.drop()
	case op == faults.Preempt:
		p.preempt(in.Notice, i)
	case (op == faults.Leave || op == faults.Fail || op == faults.FailReduce) && w.paused:
		w.awaits = append(w.awaits, func() { p.injectWorker(in, i) })
	case op == faults.Leave:
		note(record.Leave)
		p.live.drive(i, worker.Leave{})
	case op == faults.Fail:
		note(record.Fail)
		w.alive = false
		w.drop()
		p.live.lastWords(i, policy.Lost{ID: w.spec.ID, Rule: policy.RuleGaveUp})
	case op == faults.FailReduce:
		p.note(&record.Event{Type: record.FailReduce, Node: w.name, Alone: in.Alone})
		p.live.drive(i, worker.FailReduce{Alone: in.Alone})
	case op == faults.Pause && !w.paused:
		p.note(&record.Event{Type: record.Pause, Node: w.name, Heartbeats: in.Heartbeats})
		w.beats = in.Heartbeats
		p.live.pause(i)
	case op == faults.Resume && w.paused:
		note(record.Resume)
		p.live.resume(i)
	}
}

func (*processes) crashed(int) {}

// partition does nothing: on planned links partitions are among the faults of links.
func (*processes) partition([]policy.ID, bool) {}

// pause stops a worker in the middle of its step.
func (p *processes) pause(i int) {
	w := &p.workers[i]
	w.paused = true
	if w.stepping {
		w.gen++
		w.left = w.stepEnd - p.now
	}
}

// resume continues a paused worker where it stood, with what it has received since.
func (p *processes) resume(i int) {
	w := &p.workers[i]
	w.paused, w.beats = false, false
	awaits := w.awaits
	w.awaits = nil
	for _, do := range awaits {
		do()
	}
	if w.alive && w.stepping {
		p.continueStep(i, w.left)
	}
}
