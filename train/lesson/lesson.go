// Package lesson plays what a run learns: from the events of a run, simulated or
// real, it computes the contributions of its workers, the outcomes of their
// reductions and the outer states, bit by bit as real workers do.
//
// What learning depends on is in a record: which workers ended which rounds' inner
// steps, whom each reduction took in and in what order, and which outer steps were
// taken. When all that was does not matter, and neither does the network. So a
// simulated run learns without one, and the hashes in the record of a real run
// can be checked.
package lesson

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"testbed/allreduce"
	"testbed/policy"
	"testbed/runlog"
	"testbed/scenarios"
	"testbed/train"
)

// Lesson is a run whose learning is played.
type Lesson struct {
	scenario *scenarios.Scenario
	task     train.Task
	outer    train.Outer
	exchange allreduce.Reference
	feedback bool
	weight   float32 // of a contribution that came too late

	pupils map[string]*pupil
	steps  int // outer steps taken
	now    state
	ring   []policy.ID // of the last reduction, in its order
	zero   []policy.ID // those of it that contribute zeros
	saved  []checkpoint
}

// state is an outer state.
type state struct{ parameters, momentum []float32 }

func (s state) clone() state { return state{slices.Clone(s.parameters), slices.Clone(s.momentum)} }

// pupil is a worker.
type pupil struct {
	id          policy.ID
	incarnation int
	trainer     train.Trainer
	member      bool
	starts      map[int][]float32 // the outer parameters at which rounds begin that it may be in

	begun  int       // the round whose inner steps have been computed, kept or not
	losses []float64 // of these steps
	local  []float32 // the parameters after them

	kept     int       // the last round whose inner steps it has ended
	gradient []float32 // its contribution to that
	late     bool      // no reduction has asked for it yet
	behind   []float32 // it, without the residual
	residual []float32 // what quantisation has taken from its contributions

	saved []own
}

// New begins the lesson of a run of the scenario.
func New(s *scenarios.Scenario) (*Lesson, error) {
	l := &Lesson{
		scenario: s, outer: s.Train.OuterOptimiser(), weight: float32(s.Policy.StalenessWeight), feedback: s.Real.AllReduce.Feedback(),
		pupils: map[string]*pupil{},
	}
	l.exchange.Algorithm, _ = allreduce.ParseAlgorithm(s.Real.AllReduce.Algorithm) // the scenario is valid
	l.exchange.Bits, l.exchange.Block = s.Real.AllReduce.Bits, s.Real.AllReduce.Block
	for _, w := range s.Workers {
		p := &pupil{id: w.ID}
		if err := l.enrol(p); err != nil {
			return nil, err
		}
		l.pupils[scenarios.NodeName(w.ID)] = p
	}
	l.now.parameters = l.task.Start()
	l.now.momentum = make([]float32, len(l.now.parameters))
	return l, nil
}

// enrol gives a worker what a new process of it has: nothing of the one before.
func (l *Lesson) enrol(p *pupil) error {
	task, trainer, err := l.scenario.Learning(p.id)
	if err != nil {
		return err
	}
	if l.task == nil {
		l.task = task
	}
	*p = pupil{id: p.id, incarnation: p.incarnation, trainer: trainer, starts: map[int][]float32{}}
	if l.feedback {
		p.residual = make([]float32, l.scenario.Real.Parameters)
	}
	return nil
}

// Add takes the next event of the run, and returns what comes of it: after an
// outer step, the State that it leads to. Where something real is trained, inner
// steps get their losses, and outer states are Validated.
func (l *Lesson) Add(e *runlog.Event) (learnt []runlog.Event, err error) {
	p := l.pupils[e.Node]
	switch e.Type {
	case runlog.Join:
		err = l.join(p, e)
	case runlog.Evict:
		p.member, p.late = false, false
	case runlog.Step:
		err = l.step(p, e)
	case runlog.ReduceStart:
		err = l.reduce(e)
	case runlog.OuterStep:
		learnt, err = l.outerStep(e)
	case runlog.RunResume:
		err = l.resume(e)
	}
	if err != nil {
		return nil, fmt.Errorf("computing what is learnt after outer step %d: %w", l.steps, err)
	}
	return learnt, nil
}

func (l *Lesson) join(p *pupil, e *runlog.Event) error {
	if e.Incarnation != p.incarnation {
		p.incarnation = e.Incarnation
		if err := l.enrol(p); err != nil {
			return err
		}
	}
	p.member, p.late = true, false
	p.starts[l.steps+1] = l.now.parameters
	return nil
}

func (l *Lesson) step(p *pupil, e *runlog.Event) error {
	if err := l.train(p, e.Round); err != nil {
		return err
	}
	if l.scenario.Train.Real() && e.Step <= len(p.losses) {
		e.Loss = new(p.losses[e.Step-1])
	}
	if e.Step == l.scenario.InnerSteps && p.kept != e.Round {
		l.contribute(p)
	}
	return nil
}

// train computes a worker's inner steps of a round.
func (l *Lesson) train(p *pupil, round int) error {
	if p.begun == round {
		return nil
	}
	outer, ok := p.starts[round]
	if !ok {
		return fmt.Errorf("worker %d took inner steps of round %d, but was no member when that began", p.id, round)
	}
	if err := l.saveOwn(p, round); err != nil {
		return err
	}
	ctx := context.Background()
	if err := p.trainer.Begin(ctx, round, outer); err != nil {
		return err
	}
	p.losses = make([]float64, l.scenario.InnerSteps)
	for n := range p.losses {
		var err error
		if p.losses[n], err = p.trainer.Step(ctx, n+1); err != nil {
			return err
		}
	}
	p.begun, p.local = round, make([]float32, len(outer))
	return p.trainer.Finish(p.local)
}

// contribute makes the contribution of the inner steps that have been computed.
func (l *Lesson) contribute(p *pupil) {
	p.trainer.Keep()
	g := p.local
	for i, o := range p.starts[p.begun] {
		g[i] = o - g[i]
	}
	if l.weight > 0 {
		if p.late {
			for i, x := range p.behind {
				g[i] += float32(l.weight * x)
			}
		}
		p.behind = slices.Clone(g)
	}
	for i, x := range p.residual {
		g[i] += x
	}
	p.kept, p.late, p.gradient, p.local = p.begun, true, g, nil
	maps.DeleteFunc(p.starts, func(round int, _ []float32) bool { return round < p.kept })
}

// reduce begins a reduction. Those in it have ended their inner steps, whether
// the record says so before or, because workers tell on their own, after it.
func (l *Lesson) reduce(e *runlog.Event) error {
	l.ring, l.zero = e.Participants, e.Zero
	if e.Ring != nil {
		l.ring = e.Ring.Order
	}
	for _, id := range l.ring {
		p := l.pupils[scenarios.NodeName(id)]
		if p.kept != e.Round && !slices.Contains(l.zero, id) {
			if err := l.train(p, e.Round); err != nil {
				return err
			}
			l.contribute(p)
		}
		p.late = false
	}
	return nil
}

// outerStep reduces the contributions and takes the outer step.
func (l *Lesson) outerStep(e *runlog.Event) ([]runlog.Event, error) {
	vectors := make([][]float32, len(l.ring))
	for k, id := range l.ring {
		if slices.Contains(l.zero, id) {
			vectors[k] = make([]float32, len(l.now.parameters))
		} else {
			vectors[k] = l.pupils[scenarios.NodeName(id)].gradient
		}
	}
	var lost [][]float32
	if l.feedback {
		for range l.ring {
			lost = append(lost, make([]float32, len(l.now.parameters)))
		}
	}
	if l.exchange.Algorithm == allreduce.Hierarchical {
		l.exchange.Groups = l.scenario.Groups(l.ring)
	}
	mean := l.exchange.Mean(vectors, lost)
	for k := range lost {
		if slices.Contains(e.Participants, l.ring[k]) {
			l.pupils[scenarios.NodeName(l.ring[k])].residual = lost[k]
		}
	}
	l.now = l.now.clone() // others begin rounds at the one before
	l.outer.Step(l.now.parameters, l.now.momentum, mean)
	l.steps = e.Round
	for _, p := range l.pupils {
		if p.member {
			p.starts[l.steps+1] = l.now.parameters
		}
	}
	l.save()
	loss := l.task.Validate(l.now.parameters)
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return nil, fmt.Errorf("the loss is %v: the training has diverged; lower train.inner.rate or train.outer.rate", loss)
	}
	at := runlog.Event{T: e.T, Type: runlog.State, Round: l.steps, Participants: e.Participants, Loss: &loss, Hash: train.Hash(l.now.parameters, l.now.momentum)}
	if !l.scenario.Train.Real() {
		return []runlog.Event{at}, nil
	}
	at.Loss = nil
	return []runlog.Event{at, {T: e.T, Type: runlog.Validated, Round: l.steps, Loss: &loss}}, nil
}

// State returns the outer steps taken, and the parameters that they led to, which
// nobody may change.
func (l *Lesson) State() (outerSteps int, parameters []float32) { return l.steps, l.now.parameters }

// checkpoint is what the run may go on from.
type checkpoint struct {
	steps int
	outer state
}

// own is what a worker has beside the outer state, when it begins a round.
type own struct {
	steps    int // outer steps taken
	residual []float32
	inner    []byte
}

// save makes a checkpoint when there is one, as far as a lesson needs it.
func (l *Lesson) save() {
	if every := l.scenario.Real.CheckpointEvery; every == 0 || l.steps%every != 0 {
		return
	}
	l.saved = kept(append(l.saved, checkpoint{l.steps, l.now}))
}

// saveOwn has a worker that begins a round save what is its own, where there is a
// checkpoint of the outer state that it begins at.
func (l *Lesson) saveOwn(p *pupil, round int) error {
	if every := l.scenario.Real.CheckpointEvery; every == 0 || (round-1)%every != 0 {
		return nil
	}
	inner, err := p.trainer.State()
	p.saved = kept(append(p.saved, own{round - 1, p.residual, inner})) // residuals are replaced and never changed
	return err
}

func kept[T any](all []T) []T { return all[max(0, len(all)-keptCheckpoints):] }

// keptCheckpoints is how many there may be when a run ends: the last one may not
// have been written yet.
const keptCheckpoints = 3

// resume goes on from a checkpoint, with new processes of all workers. Those of
// the members have the numbers of the ones before.
func (l *Lesson) resume(e *runlog.Event) error {
	k := slices.IndexFunc(l.saved, func(c checkpoint) bool { return c.steps == e.Round })
	if k < 0 {
		return fmt.Errorf("the run goes on from outer step %d, which is no checkpoint of this scenario", e.Round)
	}
	c := l.saved[k]
	l.saved, l.steps, l.now = l.saved[:k+1], c.steps, c.outer
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
		p.member, p.starts[l.steps+1] = true, l.now.parameters
		if p.residual = was.residual; was.inner != nil {
			if err := p.trainer.Restore(was.inner); err != nil {
				return err
			}
		}
	}
	return nil
}
