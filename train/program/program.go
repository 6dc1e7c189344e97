//go:build linux

package program

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"testbed/train"
	"testbed/train/program/wire"
)

// Config describes the program, and what it is told of the run.
type Config struct {
	// Command is the program and its arguments, and Dir the folder it works in.
	Command []string
	Dir     string
	Env     []string `json:"-"` // added to this process's environment; takes precedence
	// Limit limits the program's answers: to its start, an inner step, handing
	// over its parameters, or a validation loss. Time counts only while this
	// process runs, not while it is stopped.
	Limit time.Duration
	// OwnGroup gives each process a process group of its own, which is killed as a
	// whole. Without it they belong to this process's group.
	OwnGroup bool
	// Log opens the file for the output of the process of this name, such as w1.
	// Errors mention the file's name. If these files are not kept, Quotes makes
	// errors quote the end of the output instead.
	Log    func(name string) (*os.File, error) `json:"-"`
	Quotes bool                                `json:"-"`

	Workers, InnerSteps, Rounds int
	Seed                        uint64

	// Warm keeps processes for further runs, if it is not nil.
	Warm *Warm `json:"-"`

	// Validator is the worker with which the validating process starts, so that
	// the run does not go on without its losses until that process is ready.
	Validator int
}

// Ask starts the program, waits until it offers its initial parameters, and
// ends it.
func Ask(ctx context.Context, cfg Config) (initial []float32, err error) {
	p, join, err := begin(ctx, &cfg, "init", wire.RoleInit, 0)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil || !cfg.Warm.keep(p) {
			p.kill()
		}
	}()
	if _, err := p.await(ctx, "its initial parameters", func(m wire.Message) bool { return m.Type == wire.Init }); err != nil {
		return nil, err
	}
	initial = make([]float32, join.Parameters)
	return initial, p.take(initial, "its initial parameters", "make the program begin with finite parameters")
}

// Task is the task of a program.
type Task struct {
	cfg     Config
	initial []float32

	mu        sync.Mutex
	validates bool                  // its trainers have declared that they can
	open      map[*process]struct{} // all processes

	judging   sync.Mutex // held while a loss is computed
	validator *process   // nil before the first one
	attempt   int
}

// New returns the task of a program that has offered these initial parameters.
func New(cfg Config, initial []float32) *Task {
	return &Task{cfg: cfg, initial: initial, open: map[*process]struct{}{}}
}

// Layers has one layer: only the program knows the structure of the vector.
func (t *Task) Layers() []train.Layer {
	n := len(t.initial)
	return []train.Layer{{Name: "parameters", Shape: []int{n}, Len: n}}
}

// Start returns the program's initial parameters.
func (t *Task) Start() []float32 { return slices.Clone(t.initial) }

// TokensPerStep is a field of the scenario, and unknown here.
func (t *Task) TokensPerStep() int { return 0 }

// Trainer starts a process of the program for a worker and, for the validator,
// the validating process too. It waits until they have joined.
func (t *Task) Trainer(worker int) (train.Trainer, error) {
	p, join, err := t.start(fmt.Sprintf("w%d", worker), wire.RoleTrain, worker)
	if err != nil {
		return nil, err
	}
	if join.Validates && worker == t.cfg.Validator {
		t.judging.Lock()
		_ = t.startValidator() // the first loss tries again, and reports the error
		t.judging.Unlock()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.validates = t.validates || join.Validates
	return &trainer{task: t, p: p, keptRound: none}, nil
}

// start starts a process, whose size must equal the others'.
func (t *Task) start(name, role string, worker int) (*process, wire.Message, error) {
	p, join, err := begin(context.Background(), &t.cfg, name, role, worker) // within the limit
	if err != nil {
		return nil, wire.Message{}, err
	}
	if n := len(t.initial); join.Parameters != n {
		err = p.problem(fmt.Errorf("joined with %d parameters, but this run has %d", join.Parameters, n),
			"every process of the program must have the same model")
		p.kill()
		return nil, wire.Message{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[p] = struct{}{}
	return p, join, nil
}

// startValidator starts the validating process if there is none.
func (t *Task) startValidator() (err error) {
	if t.validator == nil {
		t.validator, _, err = t.start("validation", wire.RoleValidate, 0)
	}
	return err
}

// Validate lets a process of its own compute the loss. The error is
// train.ErrNoLoss if the program cannot.
func (t *Task) Validate(parameters []float32) (loss float64, err error) {
	t.mu.Lock()
	able := t.validates
	t.mu.Unlock()
	if !able {
		return 0, train.ErrNoLoss
	}
	t.judging.Lock()
	defer t.judging.Unlock()
	if err := t.startValidator(); err != nil {
		return 0, err
	}
	p := t.validator
	t.attempt++
	give(p.outer(), parameters)
	if err := p.send(wire.Message{Type: wire.Validate, Attempt: t.attempt}); err != nil {
		return 0, err
	}
	m, err := p.await(context.Background(), "a validation loss", func(m wire.Message) bool { return m.Type == wire.Loss && m.Attempt == t.attempt })
	if err != nil {
		return 0, err
	}
	return *m.Loss, nil
}

// Close ends all processes of the task.
func (t *Task) Close() error {
	t.mu.Lock()
	open := t.open
	t.open = map[*process]struct{}{}
	t.mu.Unlock()
	for p := range open {
		t.cfg.over(p)
	}
	return nil
}

// closed closes a process, and reports whether it was open until now.
func (t *Task) closed(p *process) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, open := t.open[p]
	delete(t.open, p)
	return open
}

// trainer is a worker's process, with its state.
type trainer struct {
	task   *Task
	p      *process
	rounds train.Rounds
	// of is the context of the last step: the round's end belongs to its task.
	of      context.Context
	attempt int

	round, keptRound int    // the last round to begin, and the last kept one
	before, kept     []byte // states before and after the kept round
	now              []byte // state after the last round to end
	astray           bool   // the process has gone on from another state than kept
}

// none stands for no round.
const none = -1

func (t *trainer) Begin(ctx context.Context, round int, outer []float32) error {
	if err := t.rounds.Begin(ctx, round, outer, len(t.task.initial)); err != nil {
		return err
	}
	t.attempt++
	t.round = round
	m := wire.Message{Type: wire.Round, Attempt: t.attempt, Round: round}
	if from := t.from(); t.astray || round == t.keptRound {
		m.Restored, m.State = true, len(from)
		if room := t.p.stateIn(); len(from) > len(room) {
			return t.p.problem(fmt.Errorf("joined with room for a state of %d bytes, but its last state has %d bytes", len(room), len(from)), "make the program ask for the same room every time")
		}
		copy(t.p.stateIn(), from)
	}
	give(t.p.outer(), outer)
	t.astray = true
	return t.p.send(m)
}

// from is the state from which the present round goes on.
func (t *trainer) from() []byte {
	if t.round == t.keptRound {
		return t.before
	}
	return t.kept
}

func (t *trainer) Step(ctx context.Context, n int) (loss float64, err error) {
	if _, err := t.rounds.Step(ctx, n); err != nil {
		return 0, err
	}
	t.of = ctx
	if err := t.p.send(wire.Message{Type: wire.Step, Attempt: t.attempt, Step: n}); err != nil {
		return 0, err
	}
	m, err := t.p.await(ctx, "the loss of the inner step", func(m wire.Message) bool {
		return m.Type == wire.Done && m.Attempt == t.attempt && m.Step == n
	})
	if err != nil {
		return 0, err
	}
	return *m.Loss, nil
}

func (t *trainer) Finish(local []float32) error {
	if err := t.rounds.Finish(local, len(t.task.initial)); err != nil {
		return err
	}
	if err := t.p.send(wire.Message{Type: wire.Finish, Attempt: t.attempt}); err != nil {
		return err
	}
	const what = "its parameters"
	m, err := t.p.await(t.of, what, func(m wire.Message) bool { return m.Type == wire.Finished && m.Attempt == t.attempt })
	if err != nil {
		return err
	}
	out := t.p.stateOut()
	if m.State > len(out) {
		return t.p.problem(fmt.Errorf("left a state of %d bytes, but there is room for %d bytes", m.State, len(out)), "make the program ask for enough room when it joins")
	}
	t.now = nil
	if m.State > 0 {
		t.now = slices.Clone(out[:m.State])
	}
	return t.p.take(local, what, "the training has diverged: lower its learning rate, or train.outer.rate")
}

func (t *trainer) Keep() {
	if t.round != t.keptRound { // otherwise the round was kept before, and has the same predecessor
		t.before, t.keptRound = t.kept, t.round
	}
	t.kept, t.astray = t.now, false
}

func (t *trainer) State() ([]byte, error) { return t.kept, nil }

func (t *trainer) Restore(state []byte) error {
	if room := len(t.p.stateIn()); len(state) > room {
		return fmt.Errorf("restoring the state of the program: the state has %d bytes, but the program asks for %d bytes", len(state), room)
	}
	t.rounds, t.keptRound = train.Rounds{}, none
	t.kept, t.astray = state, true
	return nil
}

// Processes has the program's process.
func (t *trainer) Processes() []int { return []int{t.p.command.Process.Pid} }

func (t *trainer) Close() error {
	if t.task.closed(t.p) {
		t.task.cfg.over(t.p)
	}
	return nil
}
