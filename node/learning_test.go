package node

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"testbed/internal/memnet"
	"testbed/runlog"
	"testbed/scenarios"
	"testbed/scenarios/learning"
)

// learners is worldScenario with a small language model in the workers.
func learners(t *testing.T, workers int) *scenarios.Scenario {
	s := worldScenario(t, workers)
	learn(s)
	return s
}

func learn(s *scenarios.Scenario) {
	s.Train = &learning.Spec{Task: learning.CharLM, Model: learning.Model{Layers: 1, Width: 8, Heads: 2, Context: 8, Batch: 2}}
	s.Real.Parameters = s.Train.Parameters()
}

// TestLearning has real models on rings of one to eight workers, with every size
// of a value and every algorithm, with error feedback and without. What each
// round's states and losses are is computed from the record, bit by bit.
func TestLearning(t *testing.T) {
	for workers := 1; workers <= 8; workers++ {
		for _, bits := range []int{8, 4, 16, 32} {
			feedback := workers%4 < 2
			err := memnet.TryBubble(t, func(t *testing.T) {
				s := learners(t, workers)
				s.Real.AllReduce.Bits, s.Real.AllReduce.ErrorFeedback = bits, feedback
				s.Real.AllReduce.Algorithm = []string{"ring", "direct"}[workers%2]
				s.TargetOuterSteps = 3
				w := newWorld(t, s)
				sum, events := w.play(scenarios.Baseline, time.Hour)
				if err := checkLineage(s, events); err != nil || !sum.Complete || len(w.failed) > 0 {
					t.Errorf("complete %v, %q, %v", sum.Complete, w.failed, err)
				}
				for _, r := range sum.Rounds {
					if r.Loss == nil || r.Loss.Validation == nil || r.Loss.Train == nil || r.ModelHash == "" {
						t.Errorf("round %d knows %+v", r.Round, r)
					}
				}
				if want := 3 * s.InnerSteps * workers * s.Train.TokensPerStep(); sum.TokensSeen == nil || *sum.TokensSeen != want || *sum.TokensLost != 0 {
					t.Errorf("tokens %v, want %d", sum.TokensSeen, want)
				}
			})
			if err != nil {
				t.Errorf("%d workers, %d bits, feedback %v: %v", workers, bits, feedback, err)
			}
		}
	}
}

// TestLearningThroughFaults has workers crash, come back, be slow, be cut off and
// join late, and the coordinator die, while they learn.
func TestLearningThroughFaults(t *testing.T) {
	for _, name := range scenarios.PolicyNames {
		err := memnet.TryBubble(t, func(t *testing.T) {
			s := learners(t, 4)
			s.TargetOuterSteps = 12
			s.Real.AllReduce.ErrorFeedback = true
			s.Policy.StalenessWeight = 0.5
			straggler(s).FinishSteps, straggler(s).SidelineLimit = true, 20
			w := newWorld(t, s)
			w.onEvent = func(e runlog.Event) {
				if e.Type != runlog.OuterStep {
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
				if e.Type == runlog.Validated {
					validated++
				}
			}
			if validated != s.TargetOuterSteps || !slices.ContainsFunc(sum.Rounds, func(r runlog.Round) bool { return len(r.Participants) == 3 }) {
				t.Errorf("%d of %d states validated; rounds %+v", validated, s.TargetOuterSteps, sum.Rounds)
			}
		})
		if err != nil {
			t.Error(fmt.Errorf("%s: %w", name, err))
		}
	}
}
