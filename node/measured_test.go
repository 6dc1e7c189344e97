package node

import (
	"context"
	"math"
	"testing"
	"time"

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
