package sim

import (
	"testbed/policy"
	"testbed/policy/worker"
	"testbed/record"
	"testbed/scenarios/faults"
)

// restart begins a new process of a worker, if there is none.
func (p *processes) restart(i int) {
	w := &p.workers[i]
	if w.alive || !w.begun {
		return
	}
	*w = workerState{
		spec: w.spec, name: w.name, factor: w.factor, draw: w.draw, gen: w.gen + 1, alive: true,
		begun: true, incarnation: w.incarnation + 1, life: w.life + 1, onChurn: onChurn{cut: w.cut},
	}
	p.note(&record.Event{Type: record.Restart, Node: w.name, Incarnation: w.incarnation})
	p.live.started(i)
}

// evict ends a worker's membership, and reports whether it lives and may
// rejoin. A worker whose process has ended is no longer a member.
func (p *processes) evict(a *policy.Evict) (rejoins bool) {
	i := p.find(a.ID)
	w := &p.workers[i]
	if !w.member {
		return false
	}
	w.member = false
	if !a.Rejoin || !w.alive || w.preempted {
		p.ended(i)
		return false
	}
	return true
}

// ended ends the process of a worker that has nothing more to do.
func (p *processes) ended(i int) {
	w := &p.workers[i]
	w.member, w.alive = false, false
	w.drop()
}

// preempt warns a worker that it will be killed at the end of the notice.
func (p *processes) preempt(notice policy.Time, i int) {
	w := &p.workers[i]
	p.note(&record.Event{Type: record.Preempt, Node: w.name, Duration: notice})
	incarnation := w.incarnation
	p.later(p.now+notice, func() {
		if w.incarnation == incarnation {
			p.injectWorker(faults.Inject{Op: faults.Crash}, i)
		}
	})
	if notice > 0 {
		p.actOnNotice(i)
	}
}

// actOnNotice is called when a worker reads its notice.
func (p *processes) actOnNotice(i int) {
	switch w := &p.workers[i]; {
	case !w.alive:
	case w.paused:
		w.awaits = append(w.awaits, func() { p.actOnNotice(i) })
	default:
		p.live.drive(i, worker.Preempt{})
	}
}

// crashCoordinator leaves the workers without a coordinator. They continue with
// their orders. Their messages wait for the next coordinator.
func (p *processes) crashCoordinator(in faults.Inject) {
	if p.absent {
		return
	}
	p.note(&record.Event{Type: record.CoordinatorCrash})
	p.absent, p.disconnected, p.back = true, true, policy.Recovered{Forgets: in.Forgets, Away: in.Down}
	p.outages++
	p.later(p.now+in.Down, p.returned)
}

// returned is called when another coordinator replaces the one that died. The
// workers are connected to it after a handshake, which takes a round trip, and
// a message.
func (p *processes) returned() {
	p.note(&record.Event{Type: record.CoordinatorBack, Duration: p.back.Away})
	p.absent = false
	p.step(p.back)
	outage := p.outages
	p.later(p.now+3*p.scenario.Churn.BaseLatency, func() {
		if p.outages == outage {
			p.live.reconnect()
		}
	})
}

// reconnect delivers the messages that have waited for a coordinator.
func (p *processes) reconnect() {
	p.disconnected = false
	waiting := p.waiting
	p.waiting = nil
	for _, say := range waiting {
		say()
	}
}

// tell gives the coordinator's machine a message of a worker, once they are
// connected. The most frequent messages bypass it: a call of step alone does
// not allocate.
func (p *processes) tell(e policy.Event) {
	if p.disconnected {
		p.wait(e)
		return
	}
	p.step(e)
}

func (p *processes) wait(e policy.Event) { p.waiting = append(p.waiting, func() { p.step(e) }) }
