// Package replay plays what a run learns: from the events of a run, simulated or
// real, it computes the contributions of its workers, the outcomes of their
// reductions and the outer states, bit by bit as real workers do.
//
// What learning depends on is in a record: which workers ended which rounds' inner
// steps, whom each reduction took in and in what order, and which outer steps were
// taken. When all that was does not matter, and neither does the network. So a
// simulated run learns without one, and the hashes in the record of a real run
// can be checked.
package replay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"testbed/allreduce"
	"testbed/allreduce/codec"
	"testbed/policy"
	"testbed/scenarios/resolved"

	"testbed/record"
	"testbed/train"
)

// Lesson is a run whose learning is played.
type Lesson struct {
	scenario *resolved.Scenario
	task     train.Task
	outer    train.Outer
	exchange *train.Exchange
	mean     allreduce.Reference
	feedback bool
	weight   float32 // of a contribution that came too late

	rule   *policy.Grouping
	pupils map[string]*pupil
	steps  int           // outer steps taken
	took   []int         // participants of each, in a ring
	now    []train.State // of each region; their vectors are not changed
	ring   []policy.ID   // of the last reduction, in its order
	zero   []policy.ID   // those of it that contribute zeros
	saved  []checkpoint
}

// pupil is a worker.
type pupil struct {
	id          policy.ID
	incarnation int
	trainer     train.Trainer
	member      bool
	starts      map[int]train.State // the outer states at which rounds begin that it may be in

	at *attempt // the inner steps that were computed last, kept or not

	// local are the parameters after the inner steps of the round ended, with what
	// has come in since, and with merged its own outcome; if ended is 0 the worker
	// begins its next round at the outer parameters.
	local  []float32
	ended  int
	merged bool

	kept     int               // the last round whose inner steps it has ended
	gradient map[int][]float32 // its contributions, by round
	late     bool              // no reduction has asked for the last one yet
	behind   []float32         // it, without the residual
	residual []float32         // what quantisation has taken from its contributions

	due   own // what it had as it ended the round due.steps, with an overlap
	saved []own
}

// attempt is a worker at the inner steps of a round.
type attempt struct {
	round  int
	losses []float64 // of the steps taken
	base   []float32 // what the pseudo-gradient is measured from
	// ahead says that the outcome of the round before has yet to come in.
	ahead bool
	ended bool
}

// New begins the lesson of a run of the scenario.
func New(s *resolved.Scenario) (*Lesson, error) {
	l := &Lesson{
		scenario: s, exchange: s.Exchange, outer: s.Train.OuterOptimiser(), weight: float32(s.StalenessWeight), feedback: s.Reduction.Feedback(),
		pupils: map[string]*pupil{}, rule: s.Grouping,
	}
	l.mean.Algorithm, _ = allreduce.ParseAlgorithm(s.Reduction.Algorithm) // the scenario is valid
	l.mean.Format = s.Reduction.Format
	for _, w := range s.Workers {
		p := &pupil{id: w.ID}
		if err := l.enrol(p); err != nil {
			return nil, errors.Join(err, l.Close())
		}
		l.pupils[w.ID.Node()] = p
	}
	l.steps = s.InitialStep()
	l.took = make([]int, l.steps)
	start := l.task.Start()
	l.agree(train.State{Parameters: start, Momentum: make([]float32, len(start))})
	return l, nil
}

// agree has all regions hold one state.
func (l *Lesson) agree(s train.State) { l.now = slices.Repeat([]train.State{s}, l.rule.Len()) }

// of is the outer state of a worker's region.
func (l *Lesson) of(p *pupil) *train.State { return &l.now[l.rule.Of(p.id)] }

// enrol gives a worker what a new process of it has: nothing of the one before.
func (l *Lesson) enrol(p *pupil) error {
	s := l.scenario
	task, trainers, err := s.Train.NewTask(s.Seed, s.IDs(), s.Parameters)
	if err != nil {
		return err
	}
	trainer, err := trainers(p.id)
	if err != nil {
		return err
	}
	if l.task == nil {
		l.task = task
	}
	if err := p.close(); err != nil {
		return err
	}
	*p = pupil{id: p.id, incarnation: p.incarnation, trainer: trainer, starts: map[int]train.State{}, gradient: map[int][]float32{}}
	if l.feedback {
		p.residual = make([]float32, s.Train.Shard(s.Parameters))
	}
	return nil
}

// close ends the trainer of a worker, if there is one.
func (p *pupil) close() error {
	if p.trainer == nil {
		return nil
	}
	return p.trainer.Close()
}

// Close ends what trains.
func (l *Lesson) Close() error {
	var problems []error
	for _, p := range l.pupils {
		problems = append(problems, p.close())
	}
	return errors.Join(problems...)
}

// Add takes the next event of the run, and returns what comes of it: after an
// outer step, the State that it leads to. Where something real is trained, inner
// steps get their losses, and outer states are Validated.
func (l *Lesson) Add(e *record.Event) (learnt []record.Event, err error) {
	if e.Lineage > 0 || e.Type == record.Diverged {
		return nil, errors.New("computing what is learnt: two lineages of outer states went on at once, of which a lesson knows one")
	}
	p := l.pupils[e.Node]
	switch e.Type {
	case record.Join:
		err = l.join(p, e)
	case record.Evict:
		p.member, p.late = false, false
	case record.FetchDone:
		if p.anew(); e.Agreed { // nobody of its region holds another one
			*l.of(p) = l.of(p).Last()
			p.starts[l.steps+1] = *l.of(p)
		}
	case record.Step:
		err = l.step(p, e)
	case record.ReduceStart:
		err = l.reduce(e)
	case record.OuterStep:
		learnt, err = l.outerStep(e)
	case record.RunResume:
		err = l.resume(e)
	}
	if err != nil {
		return nil, fmt.Errorf("computing what is learnt after outer step %d: %w", l.steps, err)
	}
	return learnt, nil
}

func (l *Lesson) join(p *pupil, e *record.Event) error {
	if e.Incarnation != p.incarnation {
		p.incarnation = e.Incarnation
		if err := l.enrol(p); err != nil {
			return err
		}
	}
	p.member, p.late = true, false
	p.anew()
	p.starts[l.steps+1] = *l.of(p)
	if w, _ := l.scenario.Worker(p.id); l.steps == l.scenario.InitialStep() { // nobody has gone on yet
		p.starts[w.InitialStep+1] = *l.of(p)
	}
	return nil
}

// anew has a worker that holds another outer state than the one it worked on begin
// its next round there.
func (p *pupil) anew() {
	p.at, p.ended, p.local, p.due = nil, 0, nil, own{}
	clear(p.gradient)
}

func (l *Lesson) step(p *pupil, e *record.Event) error {
	if err := l.train(p, e.Round, e.Step); err != nil {
		return err
	}
	if l.scenario.Train.Real() && e.Step <= len(p.at.losses) {
		e.Loss = new(p.at.losses[e.Step-1])
	}
	return nil
}

// train computes a worker's inner steps of a round, up to one of them, and with
// the last one its contribution.
func (l *Lesson) train(p *pupil, round, steps int) error {
	if p.at == nil || p.at.round != round {
		if err := l.begin(p, round); err != nil {
			return err
		}
	}
	at := p.at
	for n := len(at.losses) + 1; n <= min(steps, l.scenario.InnerSteps); n++ {
		if at.ahead && n == l.exchange.Overlap+1 {
			if err := l.merge(p); err != nil {
				return err
			}
		}
		loss, err := p.trainer.Step(context.Background(), n)
		if err != nil {
			return err
		}
		at.losses = append(at.losses, loss)
	}
	if len(at.losses) < l.scenario.InnerSteps || at.ended {
		return nil
	}
	return l.end(p)
}

// begin begins a worker's inner steps of a round: where those of the one before
// have led it, if it has not thrown any away, else at the outer parameters.
func (l *Lesson) begin(p *pupil, round int) error {
	if err := l.settle(p); err != nil {
		return err
	}
	outer, ok := p.starts[round]
	start := outer.Parameters
	at := &attempt{round: round, base: outer.Base(l.rule.Global(round))}
	if p.ended > 0 && p.ended == round-1 {
		start, ok = p.local, true
		if at.ahead = !p.merged; at.ahead {
			at.base = p.starts[round-1].Parameters // as it knows them
		}
	}
	if !ok {
		return fmt.Errorf("worker %d took inner steps of round %d, but was no member when that began", p.id, round)
	}
	if !at.ahead {
		if err := l.saveOwn(p, round); err != nil {
			return err
		}
	}
	if l.exchange.Eager && p.ended == round-1 && p.ended > 0 {
		at.base = slices.Clone(start)
	}
	p.at = at
	return p.trainer.Begin(context.Background(), round, start)
}

// outcome returns the outer parameters that the outer step before a round led to.
func (l *Lesson) outcome(p *pupil, round int) ([]float32, error) {
	now, ok := p.starts[round]
	if !ok {
		return nil, fmt.Errorf("worker %d went on in round %d as if outer step %d had been taken", p.id, round, round-1)
	}
	return now.Parameters, nil
}

// merge brings the outcome of the round before into the parameters of one that is
// under way.
func (l *Lesson) merge(p *pupil) error {
	outer, err := l.outcome(p, p.at.round)
	if err != nil {
		return err
	}
	local, ok := p.trainer.(train.Adjuster)
	if !ok {
		return fmt.Errorf("worker %d: its trainer lets nobody change parameters in a round", p.id)
	}
	local.Adjust(func(parameters []float32) {
		l.exchange.Fragments.Of(p.at.round-1).Mix(parameters, outer, l.exchange.Mix)
	})
	p.at.ahead, p.at.base = false, outer
	return nil
}

// end ends the inner steps of a round, and makes their contribution.
func (l *Lesson) end(p *pupil) error {
	at := p.at
	local := make([]float32, len(l.of(p).Parameters))
	if err := p.trainer.Finish(local); err != nil {
		return err
	}
	p.trainer.Keep()
	fragment := l.exchange.Fragments.Of(at.round)
	g := make([]float32, fragment.Len)
	fragment.PseudoGradient(g, at.base, local)
	if l.weight > 0 {
		if p.late {
			for i, x := range p.behind {
				g[i] += float32(l.weight * x)
			}
		}
		p.behind = slices.Clone(g)
	}
	at.ended, p.kept, p.late, p.gradient[at.round] = true, at.round, true, g
	if !l.exchange.Plain() {
		p.local, p.ended, p.merged = local, at.round, false
	}
	maps.DeleteFunc(p.starts, func(round int, _ train.State) bool { return round < p.kept })
	if at.ahead {
		return nil
	}
	if l.exchange.Repeats() {
		fragment.Mix(local, p.starts[at.round].Parameters, l.exchange.Mix)
	}
	return l.arrive(p)
}

// arrive completes the contribution, unless the outer step was taken without it,
// and notes what a checkpoint after the round is to have.
func (l *Lesson) arrive(p *pupil) error {
	round := p.at.round
	if g := p.gradient[round]; g != nil && p.residual != nil {
		l.exchange.Fragments.Of(round).AddTo(g, p.residual)
	}
	if l.exchange.Overlap == 0 || !l.saves(round) {
		return nil
	}
	inner, err := p.trainer.State()
	p.due = own{steps: round, local: slices.Clone(p.local), inner: inner}
	return err
}

// saves says whether there is a checkpoint after an outer step.
func (l *Lesson) saves(outerSteps int) bool {
	every := l.scenario.CheckpointEvery
	return every > 0 && outerSteps%every == 0 && l.rule.Together(outerSteps)
}

// settle brings the outcome of the round before the one that a worker has ended,
// which came late, into its parameters, and what quantisation took there into its
// contribution.
func (l *Lesson) settle(p *pupil) error {
	at := p.at
	if at == nil || !at.ended || !at.ahead {
		return nil
	}
	outer, err := l.outcome(p, at.round)
	if err != nil {
		return err
	}
	at.ahead = false
	l.exchange.Fragments.Of(at.round-1).Mix(p.local, outer, l.exchange.Mix)
	if g := p.gradient[at.round]; g != nil && l.exchange.Eager {
		l.outer.Share(p.local, g, l.took[at.round-2])
	}
	return l.arrive(p)
}

// reduce begins a reduction. Those in it have ended their inner steps, whether
// the record says so before or, because workers tell on their own, after it.
func (l *Lesson) reduce(e *record.Event) error {
	l.ring, l.zero = e.Participants, e.Zero
	if e.Ring != nil {
		l.ring = e.Ring.Order
	}
	for _, id := range l.ring {
		p := l.pupils[id.Node()]
		if !slices.Contains(l.zero, id) {
			if p.gradient[e.Round] == nil {
				if err := l.train(p, e.Round, l.scenario.InnerSteps); err != nil {
					return err
				}
			}
			if p.at.round == e.Round {
				if err := l.settle(p); err != nil {
					return err
				}
			}
		}
		p.late = false
	}
	return nil
}

// outerStep reduces the contributions, in each ring by itself, and takes the outer
// step. A region that took no part is left with what all last agreed on.
func (l *Lesson) outerStep(e *record.Event) (told []record.Event, err error) {
	global := l.rule.Global(e.Round)
	at := record.Event{T: e.T, Type: record.State, Round: e.Round, Participants: e.Participants}
	before := l.now
	l.now = slices.Clone(before) // others begin rounds at the ones before
	for k := range l.now {
		l.now[k] = before[k].Last()
	}
	rings := l.rule.Rings(e.Round, l.ring)
	l.steps, l.took = e.Round, append(l.took[:e.Round-1], len(rings[0].Workers))
	for _, ring := range rings {
		vectors, mean := l.reduced(e, ring.Workers)
		s := before[ring.Number].Clone()
		l.outer.Take(&s, l.exchange.Fragments.Of(e.Round), mean, global)
		if l.now[ring.Number] = s; ring.Region == "" {
			l.agree(s)
			at.Hash = s.Hash()
		} else {
			participants := slices.DeleteFunc(slices.Clone(e.Participants), func(id policy.ID) bool { return !slices.Contains(ring.Workers, id) })
			at.Regions = append(at.Regions, record.RegionHash{Region: ring.Region, Participants: participants, Hash: s.Hash()})
		}
		if l.scenario.Train.Real() {
			told = append(told, l.contributed(e, ring.Workers, vectors, mean)...)
		}
	}
	for _, p := range l.pupils {
		if p.member {
			p.starts[l.steps+1] = *l.of(p)
		}
		delete(p.gradient, e.Round)
		if slices.Contains(e.Participants, p.id) {
			l.goOn(p)
		}
	}
	l.save()
	if !l.rule.Together(e.Round) {
		return append(told, at), nil
	}
	loss, err := l.task.Validate(l.now[0].Parameters)
	switch {
	case errors.Is(err, train.ErrNoLoss):
		return append(told, at), nil
	case err != nil:
		return nil, err
	}
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return nil, fmt.Errorf("the loss is %v: the training has diverged; lower train.inner.rate or train.outer.rate", loss)
	}
	if !l.scenario.Train.Real() {
		at.Loss = &loss
		return []record.Event{at}, nil
	}
	return append(told, at, record.Event{T: e.T, Type: record.Validated, Round: l.steps, Loss: &loss}), nil
}

// reduced returns what the workers of a ring contribute to an outer step, in its
// order, and the mean.
func (l *Lesson) reduced(e *record.Event, ring []policy.ID) (vectors [][]float32, mean []float32) {
	fragment := l.exchange.Fragments.Of(e.Round)
	vectors = make([][]float32, len(ring))
	for k, id := range ring {
		if slices.Contains(l.zero, id) {
			vectors[k] = make([]float32, fragment.Len)
		} else {
			vectors[k] = l.pupils[id.Node()].gradient[e.Round]
		}
	}
	var lost [][]float32
	if l.feedback {
		for range ring {
			lost = append(lost, make([]float32, fragment.Len))
		}
	}
	if l.mean.Algorithm == allreduce.Hierarchical {
		l.mean.Groups = l.scenario.Groups(ring)
	}
	mean = l.mean.Mean(vectors, lost)
	for k := range lost {
		if slices.Contains(e.Participants, ring[k]) {
			p := l.pupils[ring[k].Node()]
			p.residual = slices.Clone(p.residual) // others may have saved it
			fragment.Scatter(p.residual, lost[k])
		}
	}
	return vectors, mean
}

// contributed says what the contributions of a ring to an outer step were like. If
// it is one of all, the worker with the lowest id tells of its layers.
func (l *Lesson) contributed(e *record.Event, ring []policy.ID, vectors [][]float32, mean []float32) (all []record.Event) {
	for k, id := range ring {
		if !slices.Contains(e.Participants, id) {
			continue
		}
		var layers []train.Layer
		if l.rule.Global(e.Round) && id == slices.Min(ring) {
			layers = l.exchange.Fragments.Of(e.Round).Layers(l.task.Layers())
		}
		if c, ok := train.NewContribution(vectors[k], mean, codec.Lost(l.mean.Format, vectors[k]), layers); ok {
			all = append(all, record.Event{T: e.T, Type: record.Contributed, Node: id.Node(), Round: l.steps, Contribution: &c})
		}
	}
	return all
}

// goOn has a participant go on from its own parameters after an outer step: at once
// or, with an overlap, after some steps of the next round, but in a checkpoint.
func (l *Lesson) goOn(p *pupil) {
	mix := func(local []float32) {
		l.exchange.Fragments.Of(l.steps).Mix(local, l.of(p).Parameters, l.exchange.Mix)
	}
	if l.exchange.Overlap == 0 && p.ended == l.steps {
		mix(p.local)
		p.merged = true
	}
	if p.due.steps == l.steps {
		mix(p.due.local)
		p.due.residual = p.residual
		p.saved, p.due = kept(append(p.saved, p.due)), own{}
	}
}

// State returns the outer steps taken, and the parameters that they led to, which
// nobody may change: of regions that differ, those that all last agreed on.
func (l *Lesson) State() (outerSteps int, parameters []float32) {
	return l.steps, l.now[0].Last().Parameters
}

// checkpoint is what the run may go on from.
type checkpoint struct {
	steps int
	outer train.State
}

// own is what a worker has beside the outer state, when it begins a round.
type own struct {
	steps    int // outer steps taken
	residual []float32
	local    []float32
	inner    []byte
}

// save makes a checkpoint when there is one, as far as a lesson needs it.
func (l *Lesson) save() {
	if l.saves(l.steps) {
		l.saved = kept(append(l.saved, checkpoint{l.steps, l.now[0]}))
	}
}

// saveOwn has a worker that begins a round save what is its own, where there is a
// checkpoint of the outer state that it begins at.
func (l *Lesson) saveOwn(p *pupil, round int) error {
	if !l.saves(round - 1) {
		return nil
	}
	inner, err := p.trainer.State()
	o := own{round - 1, p.residual, nil, inner} // residuals are replaced and never changed
	if p.ended == round-1 {
		o.local = slices.Clone(p.local)
	}
	p.saved = kept(append(p.saved, o))
	return err
}

func kept[T any](all []T) []T { return all[max(0, len(all)-keptCheckpoints):] }

// keptCheckpoints is how many there may be when a run ends: the last one may not
// have been written yet.
const keptCheckpoints = 3

// resume goes on from a checkpoint, with new processes of all workers. Those of
// the members have the numbers of the ones before.
func (l *Lesson) resume(e *record.Event) error {
	k := slices.IndexFunc(l.saved, func(c checkpoint) bool { return c.steps == e.Round })
	if k < 0 {
		return fmt.Errorf("the run goes on from outer step %d, which is no checkpoint of this scenario", e.Round)
	}
	c := l.saved[k]
	l.saved, l.steps = l.saved[:k+1], c.steps
	l.agree(c.outer)
	for _, p := range l.pupils {
		inner, err := p.trainer.State()
		if err != nil {
			return err
		}
		was := own{residual: p.residual, inner: inner} // of who had not begun a round there
		if k := slices.IndexFunc(p.saved, func(o own) bool { return o.steps == c.steps }); k >= 0 {
			was = p.saved[k]
		}
		if err := l.enrol(p); err != nil {
			return err
		}
		if !slices.Contains(e.IDs, p.id) {
			continue
		}
		p.member, p.starts[l.steps+1] = true, *l.of(p)
		if was.local != nil {
			p.local, p.ended, p.merged = was.local, l.steps, true
		}
		if p.residual = was.residual; was.inner != nil {
			if err := p.trainer.Restore(was.inner); err != nil {
				return err
			}
		}
	}
	return nil
}
