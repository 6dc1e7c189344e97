// Package replay computes the training of a run. From the events of a run,
// simulated or real, it computes the contributions of its workers, the outcomes
// of their reductions and the outer states, bit by bit as real workers do.
//
// A record has everything that training depends on: which workers ended which
// rounds' inner steps, the participants of each reduction in their order, and
// the outer steps taken. Times and the network do not matter. So a simulated
// run trains without a network, and the hashes in the record of a real run can
// be checked.
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

// Training computes the training of a run, event by event.
type Training struct {
	scenario *resolved.Scenario
	task     train.Task
	outer    train.Outer
	exchange *train.Exchange
	mean     allreduce.Reference
	feedback bool
	weight   float32 // weight of a late contribution

	rule     *policy.Grouping
	run      record.Tracker
	replicas map[policy.ID]*replica
	steps    int           // outer steps taken
	took     []int         // participants of each outer step, in a ring
	now      []train.State // of each region; their vectors are not changed
	saved    []checkpoint
}

// replica is the state of a worker.
type replica struct {
	id      policy.ID
	trainer train.Trainer
	starts  map[int]train.State // outer states at the beginnings of rounds that it may be in

	at *attempt // the last computed inner steps, kept or not

	// local are the parameters after the inner steps of the round ended, with
	// everything that has come in since and, with merged, its own outcome. If
	// ended is 0, the worker begins its next round at the outer parameters.
	local  []float32
	ended  int
	merged bool

	kept     int               // the last round whose inner steps it has ended
	gradient map[int][]float32 // its contributions, by round
	late     bool              // no reduction has used the last one yet
	behind   []float32         // the last one, without the residual
	residual []float32         // quantisation error of its contributions

	due   own // its own state at the end of the round due.steps, with an overlap
	saved []own
}

// attempt is a worker's inner steps of a round.
type attempt struct {
	round  int
	losses []float64 // of the steps taken
	base   []float32 // the parameters from which the pseudo-gradient is measured
	// ahead reports that the outcome of the round before has still to come in.
	ahead bool
	ended bool
}

// New returns the Training of a run of the scenario before its first event.
func New(s *resolved.Scenario) (*Training, error) {
	t := &Training{
		scenario: s, exchange: s.Exchange, outer: s.Train.OuterOptimiser(), weight: float32(s.StalenessWeight), feedback: s.Reduction.Feedback(),
		replicas: map[policy.ID]*replica{}, rule: s.Grouping,
	}
	t.mean.Algorithm, _ = allreduce.ParseAlgorithm(s.Reduction.Algorithm) // the scenario is valid
	t.mean.Format = s.Reduction.Format
	for _, w := range s.Workers {
		p := &replica{id: w.ID}
		if err := t.enrol(p); err != nil {
			return nil, errors.Join(err, t.Close())
		}
		t.replicas[w.ID] = p
	}
	t.steps = s.InitialStep()
	t.took = make([]int, t.steps)
	start := t.task.Start()
	t.agree(train.State{Parameters: start, Momentum: make([]float32, len(start))})
	return t, nil
}

// agree gives all regions one state.
func (t *Training) agree(s train.State) { t.now = slices.Repeat([]train.State{s}, t.rule.Len()) }

// of is the outer state of a worker's region.
func (t *Training) of(p *replica) *train.State { return &t.now[t.rule.Of(p.id)] }

// enrol gives a worker the state of a new process, with nothing of the process
// before.
func (t *Training) enrol(p *replica) error {
	s := t.scenario
	task, trainers, err := s.Train.NewTask(s.Seed, s.IDs(), s.Parameters)
	if err != nil {
		return err
	}
	trainer, err := trainers(p.id)
	if err != nil {
		return err
	}
	if t.task == nil {
		t.task = task
	}
	if err := p.close(); err != nil {
		return err
	}
	*p = replica{id: p.id, trainer: trainer, starts: map[int]train.State{}, gradient: map[int][]float32{}}
	if t.feedback {
		p.residual = make([]float32, s.Train.Shard(s.Parameters))
	}
	return nil
}

// close ends the trainer of a worker, if there is one.
func (p *replica) close() error {
	if p.trainer == nil {
		return nil
	}
	return p.trainer.Close()
}

// Close ends all trainers.
func (t *Training) Close() error {
	var problems []error
	for _, p := range t.replicas {
		problems = append(problems, p.close())
	}
	return errors.Join(problems...)
}

// Add takes the next event of the run, and returns further events: after an
// outer step, the State that it leads to. If something real is trained, it adds
// losses to inner steps, and Validated events for outer states.
func (t *Training) Add(e *record.Event) (more []record.Event, err error) {
	if e.Lineage > 0 || e.Type == record.Diverged {
		return nil, errors.New("computing the training: two lineages of outer states existed at the same time, but the training of only one can be computed")
	}
	id, _ := e.Worker()
	p := t.replicas[id]
	switch e.Type {
	case record.Join:
		err = t.join(p, e)
	case record.Evict:
		p.late = false
	case record.FetchDone:
		if p.anew(); e.Agreed { // no worker of its region holds another one
			*t.of(p) = t.of(p).Last()
			p.starts[t.steps+1] = *t.of(p)
		}
	case record.Step:
		err = t.step(p, e)
	case record.ReduceStart:
		err = t.reduce(e)
	case record.OuterStep:
		more, err = t.outerStep(e)
	case record.RunResume:
		err = t.resume(e)
	}
	if err != nil {
		return nil, fmt.Errorf("computing the training after outer step %d: %w", t.steps, err)
	}
	t.run.Add(e)
	return more, nil
}

func (t *Training) join(p *replica, e *record.Event) error {
	if e.Incarnation != t.run.Worker(p.id).Incarnation {
		if err := t.enrol(p); err != nil {
			return err
		}
	}
	p.late = false
	p.anew()
	p.starts[t.steps+1] = *t.of(p)
	if w, _ := t.scenario.Worker(p.id); t.steps == t.scenario.InitialStep() { // no worker has gone on yet
		p.starts[w.InitialStep+1] = *t.of(p)
	}
	return nil
}

// anew makes a worker that holds another outer state than the one it worked on
// begin its next round there.
func (p *replica) anew() {
	p.at, p.ended, p.local, p.due = nil, 0, nil, own{}
	clear(p.gradient)
}

func (t *Training) step(p *replica, e *record.Event) error {
	if err := t.train(p, e.Round, e.Step); err != nil {
		return err
	}
	if t.scenario.Train.Real() && e.Step <= len(p.at.losses) {
		e.Loss = new(p.at.losses[e.Step-1])
	}
	return nil
}

// train computes a worker's inner steps of a round, up to a given one. With the
// last step it also computes the contribution.
func (t *Training) train(p *replica, round, steps int) error {
	if p.at == nil || p.at.round != round {
		if err := t.begin(p, round); err != nil {
			return err
		}
	}
	at := p.at
	for n := len(at.losses) + 1; n <= min(steps, t.scenario.InnerSteps); n++ {
		if at.ahead && n == t.exchange.Overlap+1 {
			if err := t.merge(p); err != nil {
				return err
			}
		}
		loss, err := p.trainer.Step(context.Background(), n)
		if err != nil {
			return fmt.Errorf("inner step %d of round %d of worker %d: %w", n, round, p.id, err)
		}
		at.losses = append(at.losses, loss)
	}
	if len(at.losses) < t.scenario.InnerSteps || at.ended {
		return nil
	}
	return t.end(p)
}

// begin begins a worker's inner steps of a round: at the parameters after its
// steps of the round before, unless it has discarded any, otherwise at the
// outer parameters.
func (t *Training) begin(p *replica, round int) error {
	if err := t.settle(p); err != nil {
		return err
	}
	outer, ok := p.starts[round]
	start := outer.Parameters
	at := &attempt{round: round, base: outer.Base(t.rule.Global(round))}
	if p.ended > 0 && p.ended == round-1 {
		start, ok = p.local, true
		if at.ahead = !p.merged; at.ahead {
			at.base = p.starts[round-1].Parameters // as it knows them
		}
	}
	if !ok {
		return fmt.Errorf("worker %d took inner steps of round %d, but was not a member when the round began", p.id, round)
	}
	if !at.ahead {
		if err := t.saveOwn(p, round); err != nil {
			return err
		}
	}
	if t.exchange.Eager && p.ended == round-1 && p.ended > 0 {
		at.base = slices.Clone(start)
	}
	p.at = at
	return p.trainer.Begin(context.Background(), round, start)
}

// outcome returns the outer parameters after the outer step before a round.
func (t *Training) outcome(p *replica, round int) ([]float32, error) {
	now, ok := p.starts[round]
	if !ok {
		return nil, fmt.Errorf("worker %d went on in round %d as if outer step %d had been taken", p.id, round, round-1)
	}
	return now.Parameters, nil
}

// merge adds the outcome of the round before to the parameters of the round
// under way.
func (t *Training) merge(p *replica) error {
	outer, err := t.outcome(p, p.at.round)
	if err != nil {
		return err
	}
	local, ok := p.trainer.(train.Adjuster)
	if !ok {
		return fmt.Errorf("worker %d: its trainer does not allow parameters to change within a round, which train.outer.overlap requires; set train.outer.overlap to 0 or inner_steps", p.id)
	}
	local.Adjust(func(parameters []float32) {
		t.exchange.Fragments.Of(p.at.round-1).Mix(parameters, outer, t.exchange.Mix)
	})
	p.at.ahead, p.at.base = false, outer
	return nil
}

// end ends the inner steps of a round, and computes their contribution.
func (t *Training) end(p *replica) error {
	at := p.at
	local := make([]float32, len(t.of(p).Parameters))
	if err := p.trainer.Finish(local); err != nil {
		return fmt.Errorf("worker %d, after its inner steps of round %d: %w", p.id, p.at.round, err)
	}
	p.trainer.Keep()
	fragment := t.exchange.Fragments.Of(at.round)
	g := make([]float32, fragment.Len)
	fragment.PseudoGradient(g, at.base, local)
	if t.weight > 0 {
		if p.late {
			for i, x := range p.behind {
				g[i] += float32(t.weight * x)
			}
		}
		p.behind = slices.Clone(g)
	}
	at.ended, p.kept, p.late, p.gradient[at.round] = true, at.round, true, g
	if !t.exchange.Plain() {
		p.local, p.ended, p.merged = local, at.round, false
	}
	maps.DeleteFunc(p.starts, func(round int, _ train.State) bool { return round < p.kept })
	if at.ahead {
		return nil
	}
	if t.exchange.Repeats() {
		fragment.Mix(local, p.starts[at.round].Parameters, t.exchange.Mix)
	}
	return t.arrive(p)
}

// arrive completes the contribution, unless the outer step was taken without
// it, and notes the worker's state for a checkpoint after the round.
func (t *Training) arrive(p *replica) error {
	round := p.at.round
	if g := p.gradient[round]; g != nil && p.residual != nil {
		t.exchange.Fragments.Of(round).AddTo(g, p.residual)
	}
	if t.exchange.Overlap == 0 || !t.saves(round) {
		return nil
	}
	inner, err := p.trainer.State()
	p.due = own{steps: round, local: slices.Clone(p.local), inner: inner}
	return err
}

// saves reports whether there is a checkpoint after an outer step.
func (t *Training) saves(outerSteps int) bool {
	every := t.scenario.CheckpointEvery
	return every > 0 && outerSteps%every == 0 && t.rule.Together(outerSteps)
}

// settle adds a late outcome, of the round before the one that a worker has
// ended, to its parameters, and that reduction's quantisation error to its
// contribution.
func (t *Training) settle(p *replica) error {
	at := p.at
	if at == nil || !at.ended || !at.ahead {
		return nil
	}
	outer, err := t.outcome(p, at.round)
	if err != nil {
		return err
	}
	at.ahead = false
	t.exchange.Fragments.Of(at.round-1).Mix(p.local, outer, t.exchange.Mix)
	if g := p.gradient[at.round]; g != nil && t.exchange.Eager {
		t.outer.Share(p.local, g, t.took[at.round-2])
	}
	return t.arrive(p)
}

// reduce begins a reduction. Its participants have ended their inner steps. The
// record may have the ends after the reduction, because workers report on their
// own.
func (t *Training) reduce(e *record.Event) error {
	for _, id := range ringOf(e) {
		p := t.replicas[id]
		if !slices.Contains(e.Zero, id) {
			if p.gradient[e.Round] == nil {
				if err := t.train(p, e.Round, t.scenario.InnerSteps); err != nil {
					return err
				}
			}
			if p.at.round == e.Round {
				if err := t.settle(p); err != nil {
					return err
				}
			}
		}
		p.late = false
	}
	return nil
}

// ringOf are the participants of a beginning reduction, in the order of its
// ring.
func ringOf(e *record.Event) []policy.ID {
	if e.Ring != nil {
		return e.Ring.Order
	}
	return e.Participants
}

// outerStep reduces the contributions, in each ring separately, and takes the
// outer step. A region without participants keeps the last state that all
// regions agreed on.
func (t *Training) outerStep(e *record.Event) (told []record.Event, err error) {
	global := t.rule.Global(e.Round)
	at := record.Event{T: e.T, Type: record.State, Round: e.Round, Participants: e.Participants}
	before := t.now
	t.now = slices.Clone(before) // other workers begin rounds at the earlier ones
	for k := range t.now {
		t.now[k] = before[k].Last()
	}
	rings := t.rule.Rings(e.Round, ringOf(&t.run.Reduction))
	if t.steps == 0 && t.scenario.Train.Real() {
		loss, err := t.validate(t.now[0].Parameters)
		switch {
		case err == nil:
			told = append(told, record.Event{T: e.T, Type: record.Validated, Loss: &loss})
		case !errors.Is(err, train.ErrNoLoss):
			return nil, err
		}
	}
	t.steps, t.took = e.Round, append(t.took[:e.Round-1], len(rings[0].Workers))
	for _, ring := range rings {
		vectors, mean := t.reduced(e, ring.Workers)
		s := before[ring.Number].Clone()
		t.outer.Take(&s, t.exchange.Fragments.Of(e.Round), mean, global)
		if t.now[ring.Number] = s; ring.Region == "" {
			t.agree(s)
			at.Hash = s.Hash()
		} else {
			participants := slices.DeleteFunc(slices.Clone(e.Participants), func(id policy.ID) bool { return !slices.Contains(ring.Workers, id) })
			at.Regions = append(at.Regions, record.RegionHash{Region: ring.Region, Participants: participants, Hash: s.Hash()})
		}
		if t.scenario.Train.Real() {
			told = append(told, t.contributed(e, ring.Workers, vectors, mean)...)
		}
	}
	for _, p := range t.replicas {
		if t.run.Worker(p.id).Member {
			p.starts[t.steps+1] = *t.of(p)
		}
		delete(p.gradient, e.Round)
		if slices.Contains(e.Participants, p.id) {
			t.goOn(p)
		}
	}
	t.save()
	if !t.rule.Together(e.Round) {
		return append(told, at), nil
	}
	loss, err := t.validate(t.now[0].Parameters)
	switch {
	case errors.Is(err, train.ErrNoLoss):
		return append(told, at), nil
	case err != nil:
		return nil, err
	}
	if !t.scenario.Train.Real() {
		at.Loss = &loss
		return []record.Event{at}, nil
	}
	return append(told, at, record.Event{T: e.T, Type: record.Validated, Round: t.steps, Loss: &loss}), nil
}

// validate returns the loss of outer parameters. The error is train.ErrNoLoss if the task
// has none.
func (t *Training) validate(parameters []float32) (float64, error) {
	loss, err := t.task.Validate(parameters)
	if err == nil && (math.IsNaN(loss) || math.IsInf(loss, 0)) {
		err = fmt.Errorf("the loss is %v: the training has diverged; lower the learning rate of the inner steps, or train.outer.rate", loss)
	}
	return loss, err
}

// reduced returns the contributions of a ring's workers to an outer step, in
// its order, and their mean.
func (t *Training) reduced(e *record.Event, ring []policy.ID) (vectors [][]float32, mean []float32) {
	fragment := t.exchange.Fragments.Of(e.Round)
	vectors = make([][]float32, len(ring))
	for k, id := range ring {
		if slices.Contains(t.run.Reduction.Zero, id) {
			vectors[k] = make([]float32, fragment.Len)
		} else {
			vectors[k] = t.replicas[id].gradient[e.Round]
		}
	}
	var lost [][]float32
	if t.feedback {
		for range ring {
			lost = append(lost, make([]float32, fragment.Len))
		}
	}
	if t.mean.Algorithm == allreduce.Hierarchical {
		t.mean.Groups = t.scenario.Groups(ring)
	}
	inputs := make([][]float32, len(ring))
	for k, id := range ring {
		inputs[k] = train.Repeated(vectors[k], policy.Repeats(t.run.Reduction.Repeated, id))
	}
	mean = t.mean.Mean(inputs, lost)
	for k := range lost {
		if slices.Contains(e.Participants, ring[k]) {
			p := t.replicas[ring[k]]
			p.residual = slices.Clone(p.residual) // others may have saved it
			fragment.Scatter(p.residual, lost[k])
		}
	}
	return vectors, mean
}

// contributed describes the contributions of a ring to an outer step. In a ring
// of all workers, the worker with the lowest id also reports its layers.
func (t *Training) contributed(e *record.Event, ring []policy.ID, vectors [][]float32, mean []float32) (all []record.Event) {
	for k, id := range ring {
		if !slices.Contains(e.Participants, id) {
			continue
		}
		var layers []train.Layer
		if t.rule.Global(e.Round) && id == slices.Min(ring) {
			layers = t.exchange.Fragments.Of(e.Round).Layers(t.task.Layers())
		}
		if c, ok := train.NewContribution(vectors[k], mean, codec.Lost(t.mean.Format, vectors[k]), layers); ok {
			all = append(all, record.Event{T: e.T, Type: record.Contributed, Node: id.Node(), Round: t.steps, Contribution: &c})
		}
	}
	return all
}

// goOn makes a participant go on from its own parameters after an outer step:
// at once or, with an overlap, after some steps of the next round, except in a
// checkpoint.
func (t *Training) goOn(p *replica) {
	mix := func(local []float32) {
		t.exchange.Fragments.Of(t.steps).Mix(local, t.of(p).Parameters, t.exchange.Mix)
	}
	if t.exchange.Overlap == 0 && p.ended == t.steps {
		mix(p.local)
		p.merged = true
	}
	if p.due.steps == t.steps {
		mix(p.due.local)
		p.due.residual = p.residual
		p.saved, p.due = kept(append(p.saved, p.due)), own{}
	}
}

// State returns the number of outer steps taken, and the parameters after them,
// which must not be changed. If regions differ, these are the last parameters
// that all agreed on.
func (t *Training) State() (outerSteps int, parameters []float32) {
	return t.steps, t.now[0].Last().Parameters
}

// checkpoint is a state from which the run may go on.
type checkpoint struct {
	steps int
	outer train.State
}

// own is a worker's own state besides the outer state, at the beginning of a
// round.
type own struct {
	steps    int // outer steps taken
	residual []float32
	local    []float32
	inner    []byte
}

// save makes a checkpoint when one is due, as far as the training needs it.
func (t *Training) save() {
	if t.saves(t.steps) {
		t.saved = kept(append(t.saved, checkpoint{t.steps, t.now[0]}))
	}
}

// saveOwn saves a worker's own state when it begins a round at an outer state
// that has a checkpoint.
func (t *Training) saveOwn(p *replica, round int) error {
	if !t.saves(round - 1) {
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

// keptCheckpoints is the number of checkpoints kept: the last one may not have
// been written yet when a run ends.
const keptCheckpoints = 3

// resume goes on from a checkpoint, with new processes of all workers. Members'
// processes keep their numbers.
func (t *Training) resume(e *record.Event) error {
	k := slices.IndexFunc(t.saved, func(c checkpoint) bool { return c.steps == e.Round })
	if k < 0 {
		return fmt.Errorf("the run was resumed from outer step %d, which is not a checkpoint of this scenario", e.Round)
	}
	c := t.saved[k]
	t.saved, t.steps = t.saved[:k+1], c.steps
	t.agree(c.outer)
	for _, p := range t.replicas {
		inner, err := p.trainer.State()
		if err != nil {
			return err
		}
		was := own{residual: p.residual, inner: inner} // of a worker that had not begun a round there
		if k := slices.IndexFunc(p.saved, func(o own) bool { return o.steps == c.steps }); k >= 0 {
			was = p.saved[k]
		}
		if err := t.enrol(p); err != nil {
			return err
		}
		if !slices.Contains(e.IDs, p.id) {
			continue
		}
		p.starts[t.steps+1] = *t.of(p)
		if was.local != nil {
			p.local, p.ended, p.merged = was.local, t.steps, true
		}
		if p.residual = was.residual; was.inner != nil {
			if err := p.trainer.Restore(was.inner); err != nil {
				return err
			}
		}
	}
	return nil
}
