package node

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"testbed/internal/cpuwait"
	"testbed/internal/memnet"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/train"
	"testbed/train/task"
	"testbed/train/work"
)

// slowTask is a task whose inner steps take a time to compute.
type slowTask struct {
	train.Task
	takes time.Duration
}

func (t slowTask) Trainer(worker int) (train.Trainer, error) {
	of, err := t.Task.Trainer(worker)
	return slowTrainer{of, t.takes}, err
}

type slowTrainer struct {
	train.Trainer
	takes time.Duration
}

// waitingTask is a slowTask whose trainers wait for a processor besides.
type waitingTask struct {
	slowTask
	waits map[int]time.Duration // in each step, by worker

	mu     *sync.Mutex
	waited cpuwait.Times // so far
}

func (t waitingTask) Trainer(worker int) (train.Trainer, error) {
	of, err := t.slowTask.Trainer(worker)
	return waitingTrainer{of, t, worker}, err
}

// read is a WorkerConfig.CPUWaits.
func (t waitingTask) read(_, processes []int) cpuwait.Times {
	t.mu.Lock()
	defer t.mu.Unlock()
	return cpuwait.Times{processes[0]: t.waited[processes[0]]}
}

type waitingTrainer struct {
	train.Trainer
	task   waitingTask
	worker int
}

func (t waitingTrainer) Processes() []int { return []int{t.worker} }

func (t waitingTrainer) Step(ctx context.Context, n int) (float64, error) {
	time.Sleep(t.task.waits[t.worker])
	t.task.mu.Lock()
	t.task.waited[t.worker] += t.task.waits[t.worker]
	t.task.mu.Unlock()
	return t.Trainer.Step(ctx, n)
}

func (t slowTrainer) Step(ctx context.Context, n int) (float64, error) {
	time.Sleep(t.takes)
	return t.Trainer.Step(ctx, n)
}

// TestSpeedsCountWhereComputeIsMeasured: what a scenario says of its workers' speeds
// counts beside what computing took.
func TestSpeedsCountWhereComputeIsMeasured(t *testing.T) {
	s := worldScenario(t, 4)
	s.Real.Compute = scenarios.ComputeMeasured
	s.Workers[2].InnerStepMean *= 2
	s.Work = &work.Spec{Classes: []work.Class{{Name: "old", IDs: []policy.ID{1}, Factor: 3}}}
	takes := 20 * time.Millisecond
	s.Train = &task.Spec{Task: task.Program, External: task.External{
		Program: []string{"none"}, Own: slowTask{train.NewQuadratic(s.Seed, s.Real.Parameters), takes},
	}}
	err := memnet.TryBubble(t, func(t *testing.T) {
		sum, events := newWorld(t, s).play(scenarios.Baseline, time.Hour)
		if !sum.Complete {
			t.Fatal("not complete")
		}
		n := 0
		for _, e := range events {
			if e.Type != record.Step || e.Step == 1 { // the first one of a round begins with the round
				continue
			}
			n++
			want := float64(s.ScenarioTime(takes)) * map[string]float64{"w0": 1, "w1": 3, "w2": 2, "w3": 1}[e.Node]
			if got := float64(e.Duration); math.Abs(got-want) > 0.02*want {
				t.Errorf("step %d of round %d of %s took %.0f µs, want %.0f", e.Step, e.Round, e.Node, got, want)
			}
		}
		if n == 0 {
			t.Error("no steps")
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// TestWaitingIsNotComputing: what a trainer waits for a processor is not time that it
// computes. Where a step cannot end when it should the worker tells by how much it is late,
// also of a step that is broken off.
func TestWaitingIsNotComputing(t *testing.T) {
	s := worldScenario(t, 4)
	s.Real.Compute = scenarios.ComputeMeasured
	s.Work = &work.Spec{Classes: []work.Class{{Name: "old", IDs: []policy.ID{1}, Factor: 3}}}
	takes, waits := 20*time.Millisecond, 30*time.Millisecond
	waiting := waitingTask{
		slowTask{train.NewQuadratic(s.Seed, s.Real.Parameters), takes}, map[int]time.Duration{1: waits, 2: waits, 3: 20 * waits}, new(sync.Mutex), cpuwait.Times{},
	}
	s.Train = &task.Spec{Task: task.Program, External: task.External{Program: []string{"none"}, Own: waiting}}
	err := memnet.TryBubble(t, func(t *testing.T) {
		w := newWorld(t, s)
		w.waits = waiting.read
		brokenOff := time.Duration(0)
		w.onReport = func(r Report) {
			if r.Round == 0 {
				return
			}
			if r.Event == nil {
				brokenOff = max(brokenOff, r.Behind)
				return
			}
			if r.Event.Step == 1 { // the first one of a round begins with the round
				return
			}
			lasts, waited, behind := takes, time.Duration(0), time.Duration(0)
			switch r.Event.Node {
			case "w1": // a third as fast: waiting is over before its steps are
				lasts, waited = 3*takes, waits
			case "w2":
				lasts, waited, behind = takes+waits, waits, waits
			case "w3":
				lasts, waited, behind = takes+20*waits, 20*waits, 20*waits
			}
			near := func(got, want time.Duration) bool { return math.Abs(float64(got-want)) <= 0.02*float64(takes) }
			if e := r.Event; !near(s.RealDuration(e.Duration), lasts) || !near(s.RealDuration(e.Waited), waited) || !near(r.Behind, behind) || !near(*r.Lateness, 0) {
				t.Errorf("step %d of round %d of %s took %v, of which it waited %v; late by %v, and its timer by %v; want %v, %v, %v and 0", e.Step, e.Round, e.Node, s.RealDuration(e.Duration), s.RealDuration(e.Waited), r.Behind, *r.Lateness, lasts, waited, behind)
			}
		}
		sum, _ := w.play(scenarios.Straggler, time.Hour)
		if !sum.Complete {
			t.Fatal("not complete")
		}
		if len(sum.Sidelined) == 0 || brokenOff < waits {
			t.Errorf("left out %v; the longest waiting that was told of a step without an end: %v", sum.Sidelined, brokenOff)
		}
	})
	if err != nil {
		t.Error(err)
	}
}
