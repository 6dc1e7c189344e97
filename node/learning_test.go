package node

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"testbed/internal/memnet"
	"testbed/record"
	"testbed/scenarios"
	"testbed/train/task"
)

// learners is worldScenario with a small language model in the workers.
func learners(t *testing.T, workers int) *scenarios.Scenario {
	s := worldScenario(t, workers)
	learn(s)
	return s
}

func learn(s *scenarios.Scenario) {
	s.Train = &task.Spec{Task: task.CharLM, Model: task.Model{Layers: 1, Width: 8, Heads: 2, Context: 8, Batch: 2}}
	s.Real.Parameters = s.Train.Parameters()
}

// TestLearning has real models on rings of one to eight workers, with every size
// of a value and every algorithm, with error feedback and without. What each
// round's states and losses are is computed from the record, bit by bit.
func TestLearning(t *testing.T) {
	t.Parallel()
	for workers := 1; workers <= 8; workers++ {
		for i, bits := range []int{8, 4, 16, 32} {
			if testing.Short() && i != workers%4 {
				continue
			}
			var outer task.Outer
			feedback, fragments := workers%4 < 2, 1+(workers+bits/8)%3
			err := memnet.TryBubble(t, func(t *testing.T) {
				s := learners(t, workers)
				s.Real.AllReduce.Bits, s.Real.AllReduce.ErrorFeedback = bits, feedback
				s.Real.AllReduce.Algorithm = []string{"ring", "direct"}[workers%2]
				s.InnerSteps = 3
				o := &s.Train.Outer
				o.Fragments, o.Mix, o.Overlap = fragments, float64(workers%2)/2, (workers/2+bits/16)%(s.InnerSteps+1)
				if o.Overlap == s.InnerSteps && fragments == 1 {
					o.Mix, o.Correction = 0, task.Eager
				}
				outer, s.TargetOuterSteps = *o, 3+fragments
				w := newWorld(t, s)
				sum, events := w.play(scenarios.Baseline, time.Hour)
				if err := checkLineage(s, events); err != nil || !sum.Complete || len(w.failed) > 0 {
					t.Errorf("complete %v, %q, %v", sum.Complete, w.failed, err)
				}
				for _, r := range sum.Rounds {
					if r.Loss == nil || r.Loss.Validation == nil || r.Loss.Train == nil || r.ModelHash == "" || len(r.PseudoGradients) != workers {
						t.Errorf("round %d knows %+v", r.Round, r)
					}
					for _, g := range r.PseudoGradients {
						if !(g.Norm > 0 && g.Cosine > 0) || (g.QuantisationError > 0) != (bits < 32) || workers == 1 && g.Cosine < 0.999 {
							t.Errorf("round %d has the contribution %+v", r.Round, g)
						}
					}
				}
				if len(sum.LayerErrors) == 0 || (sum.LayerErrors[0].Error > 0) != (bits < 32) {
					t.Errorf("layers %+v", sum.LayerErrors)
				}
				if want := s.TargetOuterSteps * s.InnerSteps * workers * s.Train.TokensPerStep(); sum.TokensSeen == nil || *sum.TokensSeen != want || *sum.TokensLost != 0 {
					t.Errorf("tokens %v, want %d; lost %v", *sum.TokensSeen, want, *sum.TokensLost)
				}
			})
			if err != nil {
				t.Errorf("%d workers, %d bits, feedback %v, %+v: %v", workers, bits, feedback, outer, err)
			}
		}
	}
}

// TestLearningThroughFaults has workers crash, come back, be slow, be cut off and
// join late, and the coordinator die, while they learn.
func TestLearningThroughFaults(t *testing.T) {
	t.Parallel()
	for _, name := range scenarios.PolicyNames {
		err := memnet.TryBubble(t, func(t *testing.T) {
			s := learners(t, 4)
			s.TargetOuterSteps = 12
			s.Real.AllReduce.ErrorFeedback = true
			s.Policy.StalenessWeight = 0.5
			straggler(s).FinishSteps, straggler(s).SidelineLimit = true, 20
			w := newWorld(t, s)
			w.onEvent = func(e record.Event) {
				if e.Type != record.OuterStep {
					return
				}
				switch e.Round {
				case 2, 8:
					w.command(3, Command{Op: OpSlow, Factor: 1.7, At: 1})
				case 4:
					w.command(3, Command{Op: OpRestore, At: 1})
				case 5:
					w.crash(1)
				}
			}
			sum, events := w.play(name, time.Hour)
			if err := checkLineage(s, events); err != nil || !sum.Complete {
				t.Errorf("complete %v, %v", sum.Complete, err)
			}
			validated := 0
			for _, e := range events {
				if e.Type == record.Validated {
					validated++
				}
			}
			if validated != 1+s.TargetOuterSteps || sum.InitialLoss == nil || !slices.ContainsFunc(sum.Rounds, func(r record.Round) bool { return len(r.Participants) == 3 }) {
				t.Errorf("%d of %d states validated, that at the start included; rounds %+v", validated, 1+s.TargetOuterSteps, sum.Rounds)
			}
		})
		if err != nil {
			t.Error(fmt.Errorf("%s: %w", name, err))
		}
	}
}
