package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"testbed/allreduce/entropy"
	"testbed/policy"
	"testbed/policy/worker"
	"testbed/record"
	"testbed/scenarios/resolved"
	"testbed/train"
)

// planned is the network of the scenario's links. Churn's network has one
// latency for everything. Here every message takes the one-way delay of its
// path, and the workers act as real ones do, in the same order.
type planned struct {
	processes
	links           *links
	places          []place         // by worker
	changed, change time.Duration   // times of the last and the next change of the links
	warm            map[[2]int]bool // ordered pairs of nodes that have a connection for reductions
	held            []held
	paused          map[int]bool // nodes whose worker is paused
	jitter          *rand.Rand
	latest          map[[2]int]policy.Time // messages of a path do not overtake each other
	chooser         entropy.Chooser        // one for all ranks, whose measurements are alike
	queue           train.UploadQueue
	upload          *upload // or nil
}

// place is a worker on the links: the machine that decides as a real worker's
// does, and the effects of the links.
type place struct {
	node    int // its position in the plan
	machine *worker.Machine
	slowed  float64     // the factor of the last Slow; 0 and 1: none
	moved   int64       // grows while its reduction makes progress
	fetched policy.Time // when its fetch is over
	whole   bool        // it fetches the whole state
	heard   int         // the last life that the coordinator has heard of
}

// held is a message that a cut path holds up.
type held struct {
	from, to int
	sent     policy.Time
	deliver  func()
}

// RunLinks simulates a scenario on the links of its plan, with the timing of
// the real run and the costs of the machine. note is given every event in
// order; it may be nil. Times are scenario time in microseconds; the time scale
// converts those of the links.
func RunLinks(r *resolved.Scenario, costs Costs, note func(record.Event)) (record.Summary, error) {
	ps, err := newProcesses(r, r.OnLinks(), note)
	if err != nil {
		return record.Summary{}, err
	}
	p := &planned{
		processes: ps, links: newLinks(r, costs), places: make([]place, len(r.Workers)), warm: map[[2]int]bool{}, paused: map[int]bool{},
		jitter: rand.New(rand.NewPCG(r.Seed, 0)), latest: map[[2]int]policy.Time{},
	}
	p.stepCost = r.ScenarioTime(costs.Step)
	for i, w := range r.Workers {
		p.places[i].node = i + 1 // the plan has the coordinator first
		p.newMachine(i)
		if w.InitialStep > 0 {
			p.places[i].machine.Restored(w.InitialStep)
		}
	}
	return p.play(p, record.OnPlan, r.TimeScale)
}

// newMachine gives a worker's new process its machine and, as in real workers,
// a stream of durations of its own.
func (p *planned) newMachine(i int) {
	w := &p.workers[i]
	p.places[i].machine = worker.New(w.spec.ID, p.scenario.InnerSteps, p.scenario.Exchange.Overlap)
	w.draw = p.scenario.Sampler(w.spec, w.incarnation, nil)
}

func (p *planned) begin() {
	p.processes.begin()
	p.awaitFault(-1)
}

func (p *planned) handle(e entry) {
	a, b := int(e.a), int(e.b)
	switch e.kind {
	case stepDone:
		if p.endStep(a, b) {
			p.drive(a, worker.StepDone{})
		}
	case beats:
		p.beat(a, b)
	case reduced:
		p.reducedRank(a, policy.Epoch(b))
	}
}

func (p *planned) carryOut(a policy.Action) {
	if step, ok := a.(*policy.OuterStep); ok {
		p.noteReduced(step)
	}
	p.noteAction(a)
	switch a := a.(type) {
	case *policy.StartRound:
		for _, id := range a.IDs {
			p.order(id, worker.Start{Round: a.Round, OuterSteps: a.Round - 1})
		}
	case *policy.Reduce:
		p.reduce(a)
	case *policy.Abort:
		p.endReduction(a.Epoch)
		for _, id := range a.Participants {
			p.order(id, worker.Abort{Epoch: a.Epoch, Confirm: a.Confirm})
		}
	case *policy.OuterStep:
		p.endReduction(a.Epoch)
		p.beginUpload(p.queue.OuterStep(p.scenario.Upload, a.Round, p.scenario.TargetOuterSteps, a.Participants))
	case *policy.Fetch:
		p.order(a.ID, worker.Fetch{OuterSteps: a.OuterSteps, Donors: append([]policy.ID{a.From}, a.Helpers...), Agreed: a.Agreed, Whole: a.Whole})
	case *policy.Evict:
		if p.evict(a) {
			p.order(a.ID, worker.Evict{Rejoin: true})
		}
	default:
		p.processes.carryOut(a)
	}
}

// in returns the scenario time after a real duration.
func (p *planned) in(d time.Duration) policy.Time { return p.now + p.scenario.ScenarioTime(d) }

// cut reports whether messages from one node to another do not get through. A
// paused worker neither sends nor receives.
func (p *planned) cut(from, to int) bool {
	return p.paused[from] || p.paused[to] || p.links.cut(from, to)
}

// post sends a control message. It returns the message's time on its way if no
// cut path holds it up.
func (p *planned) post(from, to int, deliver func()) time.Duration {
	took := p.links.oneWay(from, to)
	if p.cut(from, to) {
		p.hold(from, to, deliver)
		return took
	}
	took += p.links.drawJitter(from, to, p.jitter)
	p.arrive(from, to, p.in(took), deliver)
	return took
}

func (p *planned) hold(from, to int, deliver func()) {
	p.held = append(p.held, held{from, to, p.now, deliver})
}

// arrive delivers a message at a time, but not before earlier messages of the
// path: they are on one stream.
func (p *planned) arrive(from, to int, at policy.Time, deliver func()) {
	path := [2]int{from, to}
	at = max(at, p.latest[path])
	p.latest[path] = at
	p.later(at, deliver)
}

// report sends an event to the coordinator's machine. The event counts even if
// the worker dies meanwhile, but not once the worker has asked to join again.
func (p *planned) report(i int, e policy.Event) {
	at, life := &p.places[i], p.workers[i].life
	p.post(at.node, coordinator, func() {
		if at.heard == life {
			p.tell(e)
		}
	})
}

// order sends an event to a worker's machine, and returns the message's time on
// its way.
func (p *planned) order(id policy.ID, e worker.Event) time.Duration {
	i := p.find(id)
	w, node, life := &p.workers[i], p.places[i].node, p.places[i].heard
	receive := func() {
		if w.alive && w.life == life {
			p.drive(i, e)
		}
	}
	return p.post(coordinator, node, func() {
		if w.alive && w.paused { // it lies in its socket
			p.hold(coordinator, node, receive)
			return
		}
		receive()
	})
}

// drive gives a worker's machine an event and carries out its decisions.
func (p *planned) drive(i int, e worker.Event) {
	w, at := &p.workers[i], &p.places[i]
	switch e := e.(type) {
	case worker.Slow:
		at.slowed = e.Factor
	case worker.Restore:
		at.slowed = 1
	}
	for _, a := range at.machine.Step(e) {
		switch a := a.(type) {
		case *worker.Stop:
			w.drop()
		case *worker.BeginStep:
			w.round, w.step, w.factor = a.Round, a.Step-1, a.Factor
			p.beginStep(i)
		case *worker.Merge:
			p.noteMerge(w, a.OuterSteps, a.Step)
		case *worker.BeginReduce:
			p.reduceBegins(i, a.Epoch)
		case *worker.BeginFetch:
			p.fetch(i, a)
		case *worker.Say:
			p.say(i, a.Event)
		case *worker.SpeedChanged:
			p.noteSpeed(w, a.Factor, a.Slow)
		case *worker.Rejoin:
			w.life++
			w.drop()
			p.hello(i)
		case *worker.End:
			p.ended(i)
		case *worker.GiveUp:
			p.fail(fmt.Errorf("worker %d at %d µs: %s", w.spec.ID, p.now, a.Problem))
		}
	}
}

// say sends a message of a worker's machine to the coordinator.
func (p *planned) say(i int, e policy.Event) {
	if f, fails := e.(policy.ReduceFailed); fails && !f.Alone {
		if r := p.reduction(f.Epoch); r != nil {
			r.broken = true
		}
	}
	p.report(i, e)
	if _, leaves := e.(policy.Leave); leaves {
		p.workers[i].alive = false
		p.workers[i].drop()
	}
}

// started handles the start of a worker's process. Workers that start the run
// are connected when it begins. A later process is as slow as the one before.
func (p *planned) started(i int) {
	w, at := &p.workers[i], &p.places[i]
	w.alive = true
	if w.incarnation > 0 {
		if at.whole = false; p.paused[at.node] {
			p.setPaused(i, false)
		}
		p.newMachine(i)
		if at.slowed > 0 {
			at.machine.Step(worker.Slow{Factor: at.slowed})
		}
		p.cool(at.node)
	} else if w.spec.JoinAt == p.firstJoin {
		p.joining--
		p.expectBeats(i, p.now)
		p.tell(w.spec.Asks(p.firstJoin))
		return
	}
	p.hello(i)
}

// hello sends a worker's request to join. If the worker has been a member
// before, it waits until its path is open.
func (p *planned) hello(i int) {
	w, at := &p.workers[i], &p.places[i]
	heard := p.in(p.links.hello(at.node))
	p.expectBeats(i, heard)
	life, asks := w.life, policy.Join{ID: w.spec.ID, Incarnation: w.incarnation}
	if life == 0 {
		asks = w.spec.Asks(p.firstJoin)
	}
	join := func() {
		if life == 0 {
			p.joining--
		}
		if !w.alive || w.life != life {
			return
		}
		admit := func() {
			at.heard = life
			p.step(asks)
		}
		if p.disconnected {
			p.waiting = append(p.waiting, admit)
		} else {
			admit()
		}
	}
	if life > 0 && p.cut(at.node, coordinator) {
		p.hold(at.node, coordinator, join)
		return
	}
	p.later(heard, join)
}

// expectBeats schedules the first heartbeat, a period after the worker has sent its
// hello.
func (p *planned) expectBeats(i int, heard policy.Time) {
	beat := heard + p.scenario.Policy.HeartbeatPeriod - p.scenario.ScenarioTime(p.links.oneWay(p.places[i].node, coordinator))
	p.heap.push(max(p.now, beat), beats, i, p.workers[i].life)
}

// beat sends a heartbeat: a datagram, which is lost if the path is cut.
func (p *planned) beat(i, life int) {
	w, at := &p.workers[i], &p.places[i]
	if !w.alive || w.life != life {
		return
	}
	id := w.spec.ID
	reducing := slices.IndexFunc(p.running, func(r *reduction) bool { return at.machine.Reduces(r.epoch) })
	switch {
	case w.beats && !p.links.cut(at.node, coordinator):
		p.later(p.in(p.links.oneWay(at.node, coordinator)), func() {
			if at.heard == life {
				p.tell(policy.Heartbeat{ID: id})
			}
		})
	case p.cut(at.node, coordinator):
	case reducing >= 0:
		r := p.running[reducing]
		if !p.hangs(r) {
			at.moved = int64(p.now)
		}
		p.report(i, policy.Progress{ID: id, Epoch: r.epoch, Received: at.moved, From: id})
	default:
		p.report(i, policy.Heartbeat{ID: id})
	}
	p.heap.push(p.now+p.scenario.Policy.HeartbeatPeriod, beats, i, life)
}

func (p *planned) lastWords(i int, e policy.Event) {
	if !p.cut(p.places[i].node, coordinator) {
		p.report(i, e)
	}
}

// crashed tells the coordinator of a crash by the ICMP error that answers a
// ping, if the scenario makes it heed such errors.
func (p *planned) crashed(i int) {
	if !p.scenario.HeedUnreachable {
		return
	}
	w, life := &p.workers[i], p.workers[i].life
	p.later(p.in(p.links.rtt(p.places[i].node, coordinator)), func() {
		if w.life == life {
			p.tell(policy.Unreachable{ID: w.spec.ID})
		}
	})
}

func (p *planned) pause(i int) {
	p.processes.pause(i)
	p.setPaused(i, true)
}

func (p *planned) resume(i int) {
	p.setPaused(i, false)
	p.processes.resume(i)
}

// setPaused pauses a worker, or ends the pause: then it receives the messages
// that have waited in its sockets.
func (p *planned) setPaused(i int, paused bool) {
	node := p.places[i].node
	p.paused[node] = paused
	p.held = slices.DeleteFunc(p.held, func(h held) bool {
		came := h.to == node && !p.cut(h.from, h.to)
		if came {
			p.arrive(h.from, h.to, max(p.now, h.sent+p.scenario.ScenarioTime(p.links.oneWay(h.from, h.to))), h.deliver)
		}
		return came
	})
	p.release()
}
