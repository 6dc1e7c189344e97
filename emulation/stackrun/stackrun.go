//go:build linux

// Package stackrun plays a scenario with a stack: a training system of somebody else,
// whose programs run on the scenario's network under its faults. The result is a run
// directory like that of a run under a policy.
package stackrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"testbed/emulation"
	"testbed/emulation/launch"
	"testbed/emulation/monitor"
	"testbed/emulation/programs"
	"testbed/internal/errs"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/scenarios/resolved"
	"testbed/shaping/fidelity"
	"testbed/stacks"
	"testbed/stacks/account"
)

// Options determine what to run and where to keep it.
type Options struct {
	Scenario *scenarios.Scenario
	// File and Text are the scenario's file name and text, for the copy in the run
	// directory.
	File  string
	Text  []byte
	Stack *stacks.Chosen
	// Label is the name of the run's policy in results.
	Label string
	Links string // the backend, as in package emulation
	// Command is the command line that asked for the run, for the record.
	Command []string
	Dir     string // the run directory to make
	// Progress is called with the run's steps; it may be nil.
	Progress func(emulation.Progress)
}

// settings are what adapters read: common/testbed_stack.py.
type settings struct {
	Stack      string             `json:"stack"`
	Scenario   string             `json:"scenario"`
	Rounds     int                `json:"rounds"`
	InnerSteps int                `json:"inner_steps"`
	Values     int                `json:"values"`
	Workers    []string           `json:"workers"` // in the order of their lanes
	Initial    []string           `json:"initial"`
	Measured   bool               `json:"measured"`
	Options    map[string]float64 `json:"options"`
	Meeting    string             `json:"meeting"` // a directory of files that processes wait for
	Factors    string             `json:"factors"` // a directory of factors by node, as in package launch
	// Steps are the durations of inner steps by node, one after the other.
	Steps map[string][]int64 `json:"steps_us"`
}

const (
	// mostSteps is the most durations that a worker gets. It begins anew after them.
	mostSteps = 100_000
	// spareRounds is the number of rounds that steps are drawn for, beyond the target.
	spareRounds = 4

	// What is kept of a node's output and marks. A program that writes for ever must not
	// fill the disk.
	mostOutput, mostMarkBytes = 64 << 20, 64 << 20

	// ownMemory is a directory of each node's own, which ends with the node. Libraries
	// leave temporary files when their program is killed.
	ownMemory = "/dev/shm"

	grace = 5 * time.Second
	// envSettings names the file of the settings.
	envSettings = "TESTBED_STACK"
)

// mostMarks is the number of marks that a node may write: several for each step and each
// round, and as many again for attempts that fail.
func mostMarks(s *resolved.Scenario) int {
	return 10_000 + 4*(s.InnerSteps+10)*(s.TargetOuterSteps+spareRounds)
}

// Play plays the scenario and returns its summary. An error that wraps
// errors.ErrUnsupported means that nothing has run.
func Play(ctx context.Context, o Options) (record.Summary, error) {
	if o.Progress == nil {
		o.Progress = func(emulation.Progress) {}
	}
	values, err := o.Scenario.Resolve("")
	if err != nil {
		return record.Summary{}, err
	}
	values.PolicyName = o.Label
	o.Stack.Fit(values.ClockDuration(values.TypicalStep() * policy.Time(values.InnerSteps)))
	if err := fits(values, o.Stack); err != nil {
		return record.Summary{}, err
	}
	if err := record.Free(o.Dir); err != nil { // before a probe that may take a minute
		return record.Summary{}, err
	}
	o.Progress(emulation.Progress{Stage: "looking for the software of the stack " + o.Stack.Name})
	ready, err := o.Stack.Check(ctx)
	if err != nil {
		return record.Summary{}, err
	}
	p := &player{o: o, s: values, ready: ready, first: map[int]bool{}}
	if err := p.prepare(); err != nil {
		if p.dir != "" { // it is half of a directory, and nothing has run
			err = errors.Join(err, os.RemoveAll(string(p.dir)))
		}
		return record.Summary{}, err
	}
	return p.play(ctx)
}

// fits reports a scenario that a stack cannot play at all.
func fits(s *resolved.Scenario, stack *stacks.Chosen) error {
	first := s.FirstJoin()
	if n := len(s.Workers); n < stack.MinWorkers {
		return &scenarios.Error{Field: "workers", Problem: fmt.Sprintf("the scenario has %s, but the stack %s needs at least %d; add workers, or choose another stack", errs.Count(n, "worker"), stack.Name, stack.MinWorkers)}
	}
	for _, w := range s.Workers {
		if w.JoinAt > first && stack.NoJoin != "" {
			return &scenarios.Error{Field: "workers", Problem: fmt.Sprintf("%s joins after the start (join_at), but the stack %s does not support late joiners (%s); remove join_at, or choose another stack", w.ID.Node(), stack.Name, stack.NoJoin)}
		}
		if w.InitialStep > 0 {
			return &scenarios.Error{Field: "workers", Problem: fmt.Sprintf("%s begins with an initial_step above 0, which stacks do not support; remove it", w.ID.Node())}
		}
	}
	// Each slice of the vector has lanes for each worker.
	const lanes = 4
	if n := lanes * len(s.Workers) * len(s.Workers); s.Parameters < n {
		return &scenarios.Error{Field: "real.parameters", Problem: fmt.Sprintf("is %d: it must be at least %d for a stack with %s", s.Parameters, n, errs.Count(len(s.Workers), "worker"))}
	}
	return nil
}

// player is a run.
type player struct {
	o      Options
	s      *resolved.Scenario
	ready  stacks.Ready
	dir    record.Dir
	events []record.ProgramEvent
	first  map[int]bool // rounds that some worker has completed
	clock  policy.Time
}

// path is a path in the folder of the stack's files of this run.
func (p *player) path(name string) string { return p.dir.Path(filepath.Join("stack", name)) }

func (p *player) prepare() (err error) {
	if p.dir, err = record.CreateDir(p.o.Dir); err != nil {
		return err
	}
	for _, dir := range []string{p.path(record.LogsDir), p.path("meeting"), p.path("factors")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making the run directory: %w", err)
		}
	}
	environment := monitor.Environment(p.o.Command)
	if err := p.dir.WriteScenario(p.o.File, p.o.Text, p.o.Scenario.Traces); err != nil {
		return err
	}
	if environment.SHA256, err = p.dir.ScenarioDigests(p.o.Scenario.Traces); err != nil {
		return err
	}
	if err := p.o.Stack.Extract(p.path("")); err != nil {
		return err
	}
	text, err := json.Marshal(p.settings())
	if err != nil {
		return err
	}
	return errors.Join(
		p.dir.WriteFile(filepath.Join("stack", "settings.json"), text),
		p.dir.WriteJSON(record.PlanFile, p.s.Plan), p.dir.WriteJSON(record.EnvironmentFile, environment))
}

func (p *player) settings() settings {
	s := p.s
	set := settings{
		Stack: p.o.Stack.Name, Scenario: s.Name, Rounds: s.TargetOuterSteps, InnerSteps: s.InnerSteps, Values: s.Parameters,
		Measured: s.Measured, Options: p.o.Stack.Values, Meeting: p.path("meeting"), Factors: p.path("factors"), Steps: map[string][]int64{},
	}
	ids := s.IDs()
	slices.Sort(ids)
	first := s.FirstJoin()
	for _, id := range ids {
		w, _ := s.Worker(id)
		set.Workers = append(set.Workers, id.Node())
		if w.JoinAt == first {
			set.Initial = append(set.Initial, id.Node())
		}
		sampler := s.Work.Sampler(s.Seed, id, w.Mean, w.Jitter, 0, nil)
		// A worker's speed changes with time. Steps are drawn as if rounds took no
		// time but theirs.
		at := w.JoinAt
		for range min(mostSteps, s.InnerSteps*(s.TargetOuterSteps+spareRounds)) {
			step := sampler.Step(at, 1)
			at += step
			set.Steps[id.Node()] = append(set.Steps[id.Node()], s.ClockDuration(step).Microseconds())
		}
	}
	return set
}

func (p *player) play(ctx context.Context) (record.Summary, error) {
	stack, s := p.o.Stack, p.s
	log, err := os.Create(p.path(filepath.Join(record.LogsDir, "all")))
	if err != nil {
		return record.Summary{}, fmt.Errorf("making the run directory: %w", err)
	}
	defer log.Close()
	factors := p.path("factors")
	if s.Measured {
		factors = "" // its processor time is limited
	}
	o := launch.Options{
		Network: programs.Network{Scenario: s, Links: p.o.Links},
		Command: stack.Command(p.ready.Python, p.path(""), stack.Worker), Central: stack.Command(p.ready.Python, p.path(""), stack.Central),
		MasterPort: 29500, Grace: grace, KeepGoing: true, Together: true, Unattended: true, Clock: programs.ClockMark,
		Limits: launch.Limits{
			Startup: time.Duration(stack.Startup * float64(time.Second)), Silence: time.Duration(stack.Silence * float64(time.Second)),
			Length: s.ClockDuration(s.Horizon - s.FirstJoin()),
		},
		Env:    append(stacks.Env(), envSettings+"="+p.path("settings.json"), "TMPDIR="+ownMemory),
		Most:   launch.Most{Output: mostOutput, Marks: mostMarks(s), MarkBytes: mostMarkBytes},
		Cannot: stack.Cannot, Factors: factors, Output: log, Dir: p.path(""),
		Event: p.hear, Progress: func(stage string) { p.o.Progress(emulation.Progress{Stage: stage}) },
	}
	result, err := launch.Run(ctx, o)
	if errors.Is(err, errors.ErrUnsupported) {
		return record.Summary{}, errors.Join(err, os.RemoveAll(string(p.dir))) // nothing has run
	}
	if err == nil {
		err = ctx.Err()
	}
	sum, werr := p.conclude(result, err)
	if err == nil {
		err = werr // of two errors, such as of a full disk, the first is the cause
	}
	return sum, err
}

// hear takes an event of the programs, and shows the progress that it means.
func (p *player) hear(e record.ProgramEvent) {
	switch e.Type {
	case record.ProgramSample:
		return // the account has no use for the many samples
	case record.ProgramClock:
		p.clock = e.T
	case record.ProgramMark:
		round, _ := e.Fields["round"].(float64)
		if r := int(round); e.Mark == "commit" && !p.first[r] {
			p.first[r] = true
			p.o.Progress(emulation.Progress{Stage: fmt.Sprintf("%.1f s: the first worker has completed round %d of %d", time.Duration((e.T-p.clock)*1000).Seconds(), r, p.s.TargetOuterSteps)})
		}
	}
	p.events = append(p.events, e)
}

// conclude writes the record and the summary. A run that was cut short keeps a partial
// one.
func (p *player) conclude(result launch.Result, failed error) (record.Summary, error) {
	a := account.Of(p.s, p.o.Stack.Inexact != "", p.events)
	complete := failed == nil && a.Rounds >= p.s.TargetOuterSteps
	summarizer := record.NewSummarizer(p.s.Setup())
	run := record.Event{Type: record.RunStart, Run: &record.Run{
		Schema: record.Schema, Scenario: p.s.Name, Policy: p.o.Label, World: record.Real, Links: p.links(), Seed: p.s.Seed,
		TimeScale: p.s.TimeScale, Dilation: p.s.Slowdown(),
	}}
	end := record.Event{Type: record.RunEnd, Complete: &complete}
	if n := len(a.Events); n > 0 {
		end.T = a.Events[n-1].T
	}
	file, err := os.Create(p.dir.Path(record.EventsFile))
	if err != nil {
		return record.Summary{}, fmt.Errorf("writing the record: %w", err)
	}
	defer file.Close()
	out := record.NewWriter(file)
	for _, e := range slices.Concat([]record.Event{run}, a.Events, []record.Event{end}) {
		out.Write(e)
		summarizer.Add(&e)
	}
	if err := out.Flush(); err != nil {
		return record.Summary{}, fmt.Errorf("writing the record: %w", err)
	}
	sum := summarizer.Summary()
	sum.Dir = string(p.dir)
	sum.Ignored = p.o.Scenario.Ignored(record.Real, false)
	sum.Stack = &record.Stack{
		Name: p.o.Stack.Name, Version: a.Version, Options: p.o.Stack.Values, TCP: p.tcp(),
		LeftOut: launch.LeftOut(p.s, len(p.o.Stack.Central) > 0, p.o.Stack.Cannot), Missed: result.Missed,
		FailedReductions: a.Attempts, Failures: a.Failures, Disputes: a.Disputes,
	}
	cause := result.Cause
	if result.Limit != "" {
		limit := result.Limit
		if late := p.late(); result.Unclocked != "" && len(late) > 0 {
			limit = fmt.Sprintf("no round began within %g s, because these programs were not ready: %s", p.o.Stack.Startup, strings.Join(late, ", "))
		}
		if cause == result.Limit {
			cause = limit
		}
		sum.Stack.Failures = append(sum.Stack.Failures, limit)
	}
	sum.Fidelity = fidelity.Verdict{Verdict: fidelity.Invalid, Reasons: []string{"the run was cut short"}}
	switch {
	case failed != nil:
	case !complete && cause != "":
		sum.Fidelity.Reasons = []string{cause + "; see " + p.path(record.LogsDir)}
	case !complete && len(a.Failures) > 0:
		sum.Fidelity.Reasons = []string{a.Failures[0] + "; see " + p.path(record.LogsDir)}
	case !complete && len(a.Disputes) > 0:
		sum.Fidelity.Reasons = []string{a.Disputes[0]}
	case result.Fidelity != nil:
		sum.Fidelity = result.Fidelity.Verdict
		err = p.dir.WriteJSON(record.FidelityFile, result.Fidelity)
	}
	if result.Fidelity != nil {
		for _, d := range result.Fidelity.Drops {
			sum.PlannedDrops = append(sum.PlannedDrops, record.LinkDrops(d))
		}
	}
	return sum, errors.Join(err, p.dir.WriteSummary(&sum, p.o.Scenario.Traces))
}

// late are the nodes whose programs have not announced that they are ready, of those that
// must do so before the clock starts.
func (p *player) late() (nodes []string) {
	wanted := p.settings().Initial
	if len(p.o.Stack.Central) > 0 {
		wanted = append([]string{policy.CoordinatorNode}, wanted...)
	}
	for _, node := range wanted {
		if _, err := os.Stat(filepath.Join(p.path("meeting"), node)); err != nil {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// links is the backend that was used.
func (p *player) links() string {
	if len(p.events) > 0 && p.events[0].Run != nil {
		return p.events[0].Run.Links
	}
	return p.o.Links
}

// tcp is the congestion control of TCP in the nodes, empty if they were not made.
func (p *player) tcp() string {
	if len(p.events) > 0 && p.events[0].Run != nil {
		return p.events[0].Run.TCP
	}
	return ""
}
