package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"testbed/allreduce/entropy"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/scenarios/faults"
	"testbed/scenarios/resolved"
	"testbed/shaping"
	"testbed/train"

	"testbed/policy/worker"
)

// world is the scenario's link plan as the simulator plays on it. Where the
// model of churn has one latency for everything, here every message takes the
// one-way delay of its path, and the workers do what real ones do, in their
// order.
type world struct {
	*Network
	played  *scenarios.Scenario
	base    *shaping.Plan
	workers []place
	before  time.Duration   // when the links changed last
	fault   time.Duration   // when they change next
	warm    map[[2]int]bool // ordered pairs of nodes that have a connection for reductions
	held    []held
	still   map[int]bool // nodes whose worker is paused
	mail    []func()
	empty   []int // places in mail that are free
	jitter  *rand.Rand
	latest  map[[2]int]policy.Time // messages of a path do not overtake
	chooser entropy.Chooser        // one for all ranks, which measure alike
	queue   train.UploadQueue
	upload  *uploading // or nil
}

// place is a worker on the links: the machine that decides as a real one's does,
// and what the links make of its decisions.
type place struct {
	node    int // its position in the plan
	machine *worker.Machine
	moved   int64       // grows while its reduction does
	fetched policy.Time // when its fetch is over
	chunks  bool        // it fetches the whole state
	heard   int         // the life that the coordinator has heard of last
}

// held is a message that a cut path holds up.
type held struct {
	from, to int
	sent     policy.Time
	deliver  func()
}

const coordinator = Coordinator

// RunLinks simulates the scenario under a policy on the links of its plan, with
// the timing of the real run and what the machine adds to it. The time scale
// converts the links' times.
func RunLinks(s *scenarios.Scenario, policyName string, costs Costs, note func(record.Event)) (record.Summary, error) {
	n, err := NewNetwork(s, costs)
	if err != nil {
		return record.Summary{}, err
	}
	cfg, err := s.RealMachine(policyName)
	if err != nil {
		return record.Summary{}, err
	}
	sim, err := newSimulator(s, cfg, note)
	if err != nil {
		return record.Summary{}, err
	}
	w := &world{Network: n, played: s, base: n.Plan, workers: make([]place, len(s.Workers)), warm: map[[2]int]bool{}, still: map[int]bool{},
		jitter: rand.New(rand.NewPCG(s.Seed, 0)), latest: map[[2]int]policy.Time{}}
	for i := range w.workers {
		w.workers[i] = place{node: i + 1, machine: worker.New(s.Workers[i].ID, s.InnerSteps, sim.overlap)} // Nodes has the coordinator first
		if n := s.Workers[i].InitialStep; n > 0 {
			w.workers[i].machine.Restored(n)
		}
	}
	sim.links = w
	for i := range sim.workers {
		sim.workers[i].draw = s.Sampler(sim.workers[i].spec, 0, nil) // as real workers do
	}
	sim.awaitFault(-1)
	return sim.run(policyName, "plan", s.Real.TimeScale)
}

// cut says whether nothing gets from one node to another. A worker that is
// paused neither sends nor hears.
func (w *world) cut(from, to int) bool {
	return w.still[from] || w.still[to] || w.Network.Cut(from, to)
}

// stand has a worker stand still, or no longer. What has come meanwhile waits
// in its sockets.
func (s *simulator) stand(i int, still bool) {
	w, node := s.links, s.links.workers[i].node
	w.still[node] = still
	w.held = slices.DeleteFunc(w.held, func(h held) bool {
		came := h.to == node && !w.cut(h.from, h.to)
		if came {
			s.arrive(h.from, h.to, max(s.now, h.sent+w.scenario(w.OneWay(h.from, h.to))), h.deliver)
		}
		return came
	})
	s.letGo()
}

// real converts scenario time to real time, and scenario back.
func (w *world) real(t policy.Time) time.Duration {
	return w.played.RealDuration(t)
}

func (w *world) scenario(d time.Duration) policy.Time {
	return w.played.ScenarioTime(d)
}

// later has something done at a time.
func (s *simulator) later(at policy.Time, do func()) {
	w := s.links
	k := len(w.mail)
	if n := len(w.empty); n > 0 {
		k = w.empty[n-1]
		w.empty = w.empty[:n-1]
		w.mail[k] = do
	} else {
		w.mail = append(w.mail, do)
	}
	s.heap.Push(at, delivers, k, 0)
}

func (s *simulator) deliver(k int) {
	do := s.links.mail[k]
	s.links.mail[k] = nil
	s.links.empty = append(s.links.empty, k)
	do()
}

// post sends a control message, and returns how long it is on its way if no
// cut path holds it up.
func (s *simulator) post(from, to int, deliver func()) time.Duration {
	w := s.links
	took := w.OneWay(from, to)
	if w.cut(from, to) {
		w.held = append(w.held, held{from, to, s.now, deliver})
		return took
	}
	took += w.DrawJitter(from, to, w.jitter)
	s.arrive(from, to, s.now+w.scenario(took), deliver)
	return took
}

// arrive has a message arrive at a time, but not before one that was sent
// earlier: a path's messages are on one stream.
func (s *simulator) arrive(from, to int, at policy.Time, deliver func()) {
	path := [2]int{from, to}
	at = max(at, s.links.latest[path])
	s.links.latest[path] = at
	s.later(at, deliver)
}

// report sends an event to the coordinator's machine. What the worker has sent
// counts even if it dies meanwhile, but not once it has asked to join again.
func (s *simulator) report(i int, e policy.Event) {
	p, life := &s.links.workers[i], s.workers[i].life
	s.post(p.node, coordinator, func() {
		if p.heard == life {
			s.tell(e)
		}
	})
}

// order sends a worker what it is to do, if it lives to receive it, and returns
// how long the message is on its way.
func (s *simulator) order(id policy.ID, e worker.Event) time.Duration {
	i := s.find(id)
	to := s.links.workers[i].heard
	receive := func() {
		if w := &s.workers[i]; w.alive && w.life == to {
			s.drive(i, e)
		}
	}
	return s.post(coordinator, s.links.workers[i].node, func() {
		if w := &s.workers[i]; w.alive && w.paused { // it lies in its socket
			s.links.held = append(s.links.held, held{coordinator, s.links.workers[i].node, s.now, receive})
			return
		}
		receive()
	})
}

// drive gives a worker's machine an event and carries out what it decides.
func (s *simulator) drive(i int, e worker.Event) {
	w := &s.workers[i]
	for _, a := range s.links.workers[i].machine.Step(e) {
		switch a := a.(type) {
		case *worker.Stop:
			w.drop()
		case *worker.BeginStep:
			w.round, w.step, w.factor = a.Round, a.Step-1, a.Factor
			s.scheduleStep(i)
		case *worker.Merge:
			s.noteMerge(w, a.OuterSteps, a.Step)
		case *worker.BeginReduce:
			s.begun(i, a.Epoch)
		case *worker.BeginFetch:
			s.fetchOverLinks(i, a)
		case *worker.Say:
			if f, fails := a.Event.(policy.ReduceFailed); fails && !f.Alone {
				if r := s.reduction(f.Epoch); r != nil {
					r.broken = true
				}
			}
			s.report(i, a.Event)
			if _, leaves := a.Event.(policy.Leave); leaves {
				w.alive = false
				w.drop()
			}
		case *worker.SpeedChanged:
			s.noteSpeed(w, a.Factor, a.Slow)
		case *worker.Rejoin:
			w.life++
			w.drop()
			s.hello(i)
		case *worker.End:
			s.ended(i)
		case *worker.GiveUp:
			s.failed, s.done = fmt.Errorf("worker %d at %d µs: %s", w.spec.ID, s.now, a.Problem), true
		}
	}
}

// joinOverLinks is the start of a worker. Those of the first hour are connected
// when the run begins.
func (s *simulator) joinOverLinks(i int) {
	w := &s.workers[i]
	w.alive = true
	if w.spec.JoinAt > s.first {
		s.hello(i)
		return
	}
	s.joining--
	s.expectBeats(i, s.now)
	s.tell(w.spec.Asks(s.first))
}

// hello has a worker ask to join: when its path is open, if it has been a member
// before.
func (s *simulator) hello(i int) {
	w, p := &s.workers[i], &s.links.workers[i]
	heard := s.now + s.links.scenario(s.links.Hello(p.node, coordinator))
	s.expectBeats(i, heard)
	u := undelivered{policy.Join{ID: w.spec.ID, Incarnation: w.incarnation}, w.life}
	if w.life == 0 {
		u.event = w.spec.Asks(s.first)
	}
	join := func() {
		if u.life == 0 {
			s.joining--
		}
		if w.alive && w.life == u.life {
			s.receive(u)
		}
	}
	if u.life > 0 && s.links.cut(p.node, coordinator) {
		s.links.held = append(s.links.held, held{p.node, coordinator, s.now, join})
		return
	}
	s.later(heard, join)
}

// expectBeats has heartbeats begin with a hello, a one-way delay before it is
// heard.
func (s *simulator) expectBeats(i int, heard policy.Time) {
	beat := heard + s.scenario.HeartbeatPeriod - s.links.scenario(s.links.OneWay(s.links.workers[i].node, coordinator))
	s.heap.Push(max(s.now, beat), beats, i, s.workers[i].life)
}

// beat sends a heartbeat: a datagram, which is lost if the path is cut.
func (s *simulator) beat(i, life int) {
	if w := &s.workers[i]; !w.alive || w.life != life {
		return
	}
	id, p := s.workers[i].spec.ID, &s.links.workers[i]
	at := slices.IndexFunc(s.running, func(r *reduction) bool { return p.machine.Reduces(r.epoch) })
	switch {
	case s.workers[i].beats && !s.links.Network.Cut(p.node, coordinator):
		s.later(s.now+s.links.scenario(s.links.OneWay(p.node, coordinator)), func() {
			if p.heard == life {
				s.tell(policy.Heartbeat{ID: id})
			}
		})
	case s.links.cut(p.node, coordinator):
	case at >= 0:
		if !s.hangs(s.running[at]) {
			p.moved = int64(s.now)
		}
		s.report(i, policy.Progress{ID: id, Epoch: s.running[at].epoch, Received: p.moved, From: id})
	default:
		s.report(i, policy.Heartbeat{ID: id})
	}
	s.heap.Push(s.now+s.scenario.HeartbeatPeriod, beats, i, life)
}

// actOverLinks carries out an action where the links make a difference.
func (s *simulator) actOverLinks(a policy.Action) (done bool) {
	switch a := a.(type) {
	case *policy.StartRound:
		for _, id := range a.IDs {
			s.order(id, worker.Start{Round: a.Round, OuterSteps: a.Round - 1})
		}
	case *policy.Reduce:
		s.reduceOverLinks(a)
	case *policy.Abort:
		s.endReduction(a.Epoch)
		for _, id := range a.Participants {
			s.order(id, worker.Abort{Epoch: a.Epoch, Confirm: a.Confirm})
		}
	case *policy.OuterStep:
		s.endReduction(a.Epoch)
		s.upload(s.links.queue.OuterStep(s.scenario.Real.Upload, a.Round, s.scenario.TargetOuterSteps, a.Participants))
	case *policy.Fetch:
		s.order(a.ID, worker.Fetch{OuterSteps: a.OuterSteps, Donors: append([]policy.ID{a.From}, a.Helpers...), Agreed: a.Agreed, Whole: a.Whole})
	default:
		return false
	}
	return true
}

// injectOverLinks says whether an inject has been seen to, or has to wait, for
// what the worker is doing.
func (s *simulator) injectOverLinks(in faults.Inject, i int) (done bool) {
	w, p := &s.workers[i], &s.links.workers[i]
	switch in.Op {
	case faults.Slow:
		w.slowed = *in.Factor
		s.drive(i, worker.Slow{Factor: *in.Factor, AtJoin: in.At <= w.spec.JoinAt})
		return true
	case faults.Restore:
		w.slowed = 1
		s.drive(i, worker.Restore{AtJoin: in.At <= w.spec.JoinAt})
		return true
	case faults.Crash:
		if w.alive && s.scenario.Real.HeedUnreachable {
			// The answer to a ping: nobody listens there.
			life := w.life
			s.later(s.now+s.links.scenario(s.links.RTT(p.node, coordinator)), func() {
				if w.life == life {
					s.tell(policy.Unreachable{ID: w.spec.ID})
				}
			})
		}
	case faults.Leave:
		switch {
		case w.paused:
			w.awaits = append(w.awaits, func() { s.injectWorker(in, i) })
		case w.alive:
			s.note(&record.Event{Type: record.Leave, Node: w.name})
			s.drive(i, worker.Leave{})
		}
		return true
	}
	return false
}

// reduceOverLinks begins a reduction: each participant when it hears of it.
func (s *simulator) reduceOverLinks(a *policy.Reduce) {
	w := s.links
	w.Begin(a.Round)
	r := s.beginReduction(a)
	var nodes []int
	var begin []time.Duration
	for _, ring := range s.rule.Rings(a.Round, w.InOrder(a.Participants)) {
		r.rings = append(r.rings, [2]int{len(r.ranks), len(r.ranks) + len(ring.Workers)})
		for _, id := range ring.Workers {
			i := s.find(id)
			r.ranks, nodes = append(r.ranks, i), append(nodes, w.workers[i].node)
			begin = append(begin, s.order(id, worker.Reduce{Round: a.Round, Epoch: a.Epoch, Ring: ring.Workers, Zero: slices.Contains(a.Zero, id)}))
		}
	}
	if w.Entropy == entropy.Auto {
		w.Coded = w.chooser.Choose(int(a.Epoch))
	}
	reduction := func() (ends []time.Duration) { // rings do not wait for each other
		for _, ring := range r.rings {
			ends = append(ends, w.Reduction(nodes[ring[0]:ring[1]], begin[ring[0]:ring[1]], func(i, j int) bool { return !w.warm[[2]int{i, j}] })...)
		}
		return ends
	}
	ends := reduction()
	r.coded = w.Coded
	r.ends = w.after(s.now, ends)
	for k := range ends {
		r.longest = max(r.longest, w.scenario(ends[k]-begin[k]))
	}
	if u := w.upload; u != nil && slices.Contains(nodes, u.place.node) {
		w.besideUpload(s.now, r, reduction)
	}
	r.pairs = map[[2]int]bool{}
	for _, ring := range r.rings {
		maps.Copy(r.pairs, w.Connected(nodes[ring[0]:ring[1]]))
	}
	s.warmUp(r, nodes)
	s.holdBack()
	if r.blocked = w.interrupted(r); r.blocked {
		r.since = s.now
		return
	}
	s.expectEnds(r)
}

// warmUp keeps the connections of the last reduction of each worker.
func (s *simulator) warmUp(r *reduction, nodes []int) {
	w := s.links
	if len(s.running) == 1 {
		w.warm = r.pairs
		return
	}
	w.warm = maps.Clone(w.warm)
	maps.DeleteFunc(w.warm, func(pair [2]int, _ bool) bool {
		return slices.Contains(nodes, pair[0]) || slices.Contains(nodes, pair[1])
	})
	maps.Copy(w.warm, r.pairs)
}

// cool forgets the connections of a worker that has a new process.
func (s *simulator) cool(node int) {
	of := func(pair [2]int, _ bool) bool { return pair[0] == node || pair[1] == node }
	maps.DeleteFunc(s.links.warm, of)
	for _, r := range s.running {
		maps.DeleteFunc(r.pairs, of)
	}
}

// interrupted says whether a path that a reduction needs is cut.
func (w *world) interrupted(r *reduction) bool {
	for _, i := range r.ranks {
		if w.cut(coordinator, w.workers[i].node) {
			return true
		}
	}
	for pair := range r.pairs {
		if w.cut(pair[0], pair[1]) {
			return true
		}
	}
	return false
}

func (s *simulator) expectEnds(r *reduction) {
	for rank, at := range r.ends {
		if at >= s.now {
			s.heap.Push(at, reducedRank, rank, int(r.epoch))
		}
	}
}

// reducedRank is the end of a reduction at one of its ranks.
func (s *simulator) reducedRank(rank int, epoch policy.Epoch) {
	r := s.reduction(epoch)
	if r == nil || r.blocked || s.now != r.ends[rank] {
		return
	}
	if s.hangs(r) {
		return // until the machine notices and aborts
	}
	i := r.ranks[rank]
	if !s.links.workers[i].machine.Reduces(epoch) {
		return // it has yet to receive the order; see begun
	}
	r.ends[rank] = -1
	s.drive(i, worker.Reduced{})
}

// begun is when a worker receives the order to reduce. One that receives it so
// late that the others' part of the reduction is over ends it at once.
func (s *simulator) begun(i int, epoch policy.Epoch) {
	r := s.reduction(epoch)
	if r == nil {
		return
	}
	if rank := slices.Index(r.ranks, i); rank >= 0 && r.ends[rank] >= 0 && r.ends[rank] < s.now {
		r.ends[rank] = s.now
		s.heap.Push(s.now, reducedRank, rank, int(epoch))
	}
}

// hangs says that a reduction moves no more.
func (s *simulator) hangs(r *reduction) bool {
	return r.blocked || r.broken || slices.ContainsFunc(r.ranks, func(i int) bool { return !s.workers[i].alive || !s.workers[i].member })
}

// noteReduced records a reduction that every participant has reported.
func (s *simulator) noteReduced(a *policy.OuterStep) {
	w, r := s.links, s.reduction(a.Epoch)
	w.Begin(a.Round)
	var sent int64
	for _, of := range r.rings {
		if n := of[1] - of[0]; n > 1 {
			for _, i := range r.ranks[of[0]:of[1]] {
				if slices.Contains(a.Participants, s.workers[i].spec.ID) {
					sent += int64(w.Sent(n))
				}
			}
		}
	}
	if sent > 0 {
		// Coding takes processors, which take no time here; the sender waits for
		// its link all the while.
		took := w.real(r.longest)
		w.chooser.Note(entropy.Reduction{Coded: r.coded, Values: w.Length, Total: took, Wait: took})
	}
	s.note(&record.Event{Type: record.ReduceDone, Round: a.Round, Epoch: a.Epoch, Lineage: a.Lineage, Participants: a.Participants, Duration: r.longest, BytesSent: sent})
}

// fetchOverLinks has a worker get the outer state.
func (s *simulator) fetchOverLinks(i int, a *worker.BeginFetch) {
	w := s.links
	gen := s.workers[i].gen
	donor := s.find(a.Donors[0])
	life := s.workers[donor].life
	asker, from := &w.workers[i], &w.workers[donor]
	s.later(s.now+w.scenario(w.FetchRequest(asker.node, from.node)), func() {
		version := max(from.machine.OuterSteps(), a.OuterSteps)
		missed, ok := worker.Missed(asker.machine.OuterSteps(), version, from.machine.KeptOutcomes())
		if a.Agreed {
			var steps []int
			steps, ok = s.rule.Missed(asker.machine.OuterSteps(), version, from.machine.KeptOutcomes())
			missed = len(steps)
		}
		if a.Current && ok {
			asker.fetched = s.now + w.scenario(w.FetchOutcomes(from.node, asker.node, w.Outcomes(version-missed, missed)))
		} else {
			var donors []int
			for _, id := range a.Donors {
				donors = append(donors, w.workers[s.find(id)].node)
			}
			asker.chunks, asker.fetched = true, s.now+w.scenario(w.FetchState(donors, asker.node, !a.Agreed && !s.rule.Global(version)))
			asker.fetched += s.reductionLeft() // donors hold chunks back while they reduce
		}
		s.later(asker.fetched, func() { s.fetchedOverLinks(i, donor, gen, life, version) })
	})
}

// reductionLeft is how long running reductions still take.
func (s *simulator) reductionLeft() (left policy.Time) {
	for _, r := range s.running {
		left = max(left, slices.Max(r.ends)-s.now)
	}
	return left
}

// holdBack puts off the ends of state fetches by a reduction that begins.
func (s *simulator) holdBack() {
	for i := range s.links.workers {
		if p := &s.links.workers[i]; p.chunks && p.fetched > s.now {
			p.fetched += s.reductionLeft()
		}
	}
}

func (s *simulator) fetchedOverLinks(i, donor, gen, life, version int) {
	w := &s.workers[i]
	p, from := &s.links.workers[i], &s.links.workers[donor]
	switch {
	case !w.alive || w.gen != gen:
	case s.now < p.fetched: // held back meanwhile
		s.later(p.fetched, func() { s.fetchedOverLinks(i, donor, gen, life, version) })
	case !s.workers[donor].alive || s.workers[donor].life != life: // the machine notices by its heartbeats
	case s.links.cut(from.node, p.node):
		s.links.held = append(s.links.held, held{from.node, p.node, s.now, func() { s.fetchedOverLinks(i, donor, gen, life, version) }})
	default:
		p.chunks = false
		s.drive(i, worker.Fetched{OuterSteps: version})
	}
}

// awaitFault expects the next change of the links after a real time.
func (s *simulator) awaitFault(after time.Duration) {
	if at, ok := s.scenario.Faults().Next(after); ok {
		s.links.before, s.links.fault = after, at
		s.heap.Push(max(s.now, s.links.scenario(at)), linksChange, 0, 0)
	}
}

// relay gives the links the faults of the present time, and lets go what the
// cut ones have held up.
func (s *simulator) relay() error {
	w := s.links
	plan, err := shaping.Compose(w.base, s.scenario.Faults().At(w.fault))
	if err != nil {
		return fmt.Errorf("the links at %d µs: %w", s.now, err)
	}
	w.Plan = plan
	for _, e := range resolved.LinkChanges(s.scenario.Faults(), w.before, w.fault) {
		s.note(&e)
	}
	s.awaitFault(w.fault)
	s.letGo()
	return nil
}

// letGo delivers what no cut path holds up any more, and stops or goes on with
// the running reduction.
func (s *simulator) letGo() {
	w := s.links
	var still []held
	for _, h := range w.held {
		if w.cut(h.from, h.to) {
			still = append(still, h)
			continue
		}
		s.arrive(h.from, h.to, s.recovered(h.from, h.to, h.sent), h.deliver)
	}
	w.held = still
	for _, r := range s.running {
		switch blocked := w.interrupted(r); {
		case blocked && !r.blocked:
			r.blocked, r.since = true, s.now
		case !blocked && r.blocked:
			r.blocked = false
			s.resume(r)
		}
	}
}

// recovered is when a message that was sent at a time arrives, now that its path
// is open again: with the next probe for it or, if heartbeats go the same way,
// a round trip after the next of these, whose acknowledgement shows the loss.
func (s *simulator) recovered(from, to int, sent policy.Time) policy.Time {
	w := s.links
	at := w.scenario(w.Recovery(from, to, w.real(sent), w.real(s.now)))
	if to == coordinator {
		period := s.scenario.HeartbeatPeriod
		at = min(at, s.now+period-s.now%period+w.scenario(w.RTT(from, to)+w.OneWay(from, to)))
	}
	return max(at, s.now)
}

// resume goes on with a reduction whose paths are open again.
func (s *simulator) resume(r *reduction) {
	w := s.links
	var late policy.Time
	for _, of := range r.rings {
		ring := r.ranks[of[0]:of[1]]
		for k, i := range ring {
			from, to := w.workers[i].node, w.workers[ring[(k+1)%len(ring)]].node
			if from != to {
				late = max(late, w.scenario(w.Recovery(from, to, w.real(r.since), w.real(s.now)))-s.now)
			}
		}
	}
	for k, end := range r.ends {
		if end >= 0 {
			r.ends[k] = end + s.now - r.since + late
		}
	}
	r.longest += s.now - r.since + late
	s.expectEnds(r)
}
