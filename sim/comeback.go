package sim

import (
	"testbed/policy"
	"testbed/policy/worker"
	"testbed/record"
	"testbed/scenarios/faults"
)

// comeback is what a worker is in its several lives. A life is the time from one
// request to join to the next: that of a new process, or of one that was evicted
// and asks again. What is still under way from an earlier life has no effect.
type comeback struct {
	begun       bool // its first process has
	incarnation int  // the number of its process
	life        int
	born        policy.Time    // when the coordinator has heard of this life
	asking      bool           // it wants to join, and is not heard
	preempted   bool           // it leaves after its round
	slowed      float64        // what the last Slow asked for; 0 and 1: nothing
	fails       *faults.Inject // what its next reduction does, or the one under way, on churn's network
}

// undelivered is what was said while the coordinator was away; life is that of the
// worker of a Join.
type undelivered struct {
	event policy.Event
	life  int
}

// restart begins a new process of a worker, if there is none. It is as slow as
// the one before.
func (s *simulator) restart(i int) {
	w := &s.workers[i]
	if w.alive || !w.begun {
		return
	}
	if w.paused {
		w.paused = false
		if s.links != nil {
			s.stand(i, false)
		}
	}
	*w = workerState{
		spec: w.spec, name: w.name, factor: w.factor, draw: w.draw, cut: w.cut, gen: w.gen + 1, alive: true,
		comeback: comeback{begun: true, incarnation: w.incarnation + 1, life: w.life + 1, slowed: w.slowed},
	}
	s.note(&record.Event{Type: record.Restart, Node: w.name, Incarnation: w.incarnation})
	if s.links != nil || s.scenario.Work != nil {
		w.draw = s.scenario.Sampler(w.spec, w.incarnation, nil)
	}
	if s.links == nil {
		s.ask(i)
		return
	}
	p := &s.links.workers[i]
	p.machine, p.chunks = worker.New(w.spec.ID, s.scenario.InnerSteps, s.overlap), false
	if w.slowed > 0 {
		p.machine.Step(worker.Slow{Factor: w.slowed})
	}
	s.cool(p.node)
	s.hello(i)
}

// ask has a worker on churn's network ask to join, as soon as it is heard.
func (s *simulator) ask(i int) {
	w := &s.workers[i]
	if w.asking = w.mute(); w.asking {
		return
	}
	w.born, w.held = s.now, nil
	s.receive(undelivered{policy.Join{ID: w.spec.ID, Incarnation: w.incarnation}, w.life})
}

// askAgain is when a worker has learned that it was evicted, or is heard again.
func (s *simulator) askAgain(i, life int) {
	if w := &s.workers[i]; w.alive && !w.member && w.life == life {
		s.ask(i)
	}
}

// stale says whether an arrival that comes now was sent in an earlier life, on
// churn's network.
func (s *simulator) stale(id policy.ID) bool {
	w := &s.workers[s.find(id)]
	return w.life > 0 && s.now-s.scenario.BaseLatency < w.born
}

// receive gives the machine what a worker has to say, or keeps it.
func (s *simulator) receive(u undelivered) {
	if s.apart {
		s.waiting = append(s.waiting, u)
		return
	}
	if j, joins := u.event.(policy.Join); joins && s.links != nil {
		s.links.workers[s.find(j.ID)].heard = u.life
	}
	s.step(u.event)
}

// evict ends the part of a worker in the run. If it lives and may come back it
// learns of it, and asks again. One whose process has ended before is no member
// here any more.
func (s *simulator) evict(a *policy.Evict) {
	i := s.find(a.ID)
	w := &s.workers[i]
	if !w.member {
		return
	}
	w.member = false
	switch {
	case !a.Rejoin || !w.alive || w.preempted:
		s.ended(i)
	case s.links != nil:
		s.order(a.ID, worker.Evict{Rejoin: true})
	default:
		w.drop()
		w.fetch.pending = false
		w.life++
		s.heap.Push(s.now+2*s.scenario.BaseLatency, asks, i, w.life) // it is told, and answers
	}
}

// ended ends the process of a worker that has nothing more to do.
func (s *simulator) ended(i int) {
	w := &s.workers[i]
	w.member, w.alive = false, false
	w.drop()
}

// fail ends a worker with its last words, which are sent once: they are lost
// where its path is cut.
func (s *simulator) fail(i int) {
	w := &s.workers[i]
	w.alive = false
	w.drop()
	gaveUp := policy.Lost{ID: w.spec.ID, Rule: policy.RuleGaveUp}
	switch {
	case s.links == nil && !w.cut:
		s.tell(gaveUp)
	case s.links != nil && !s.links.cut(s.links.workers[i].node, coordinator):
		s.report(i, gaveUp)
	}
}

// preempt tells a worker that it will be dead when the notice is over.
func (s *simulator) preempt(notice policy.Time, i int) {
	w := &s.workers[i]
	s.note(&record.Event{Type: record.Preempt, Node: w.name, Duration: notice})
	s.heap.Push(s.now+notice, kills, i, w.incarnation)
	if notice > 0 {
		s.actOnNotice(i)
	}
}

// actOnNotice has a worker act on its notice.
func (s *simulator) actOnNotice(i int) {
	switch w := &s.workers[i]; {
	case !w.alive:
	case w.paused:
		w.awaits = append(w.awaits, func() { s.actOnNotice(i) })
	case s.links != nil:
		s.drive(i, worker.Preempt{})
	case w.member && w.round == s.machine.OuterSteps()+1 && !w.preempted:
		w.preempted = true
	default: // it works on no round, or on none any more
		s.goodbye(w)
	}
}

// kill ends a preempted worker whose notice is over.
func (s *simulator) kill(i, incarnation int) {
	if s.workers[i].incarnation == incarnation {
		s.injectWorker(faults.Inject{Op: faults.Crash}, i)
	}
}
