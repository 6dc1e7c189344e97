package learner

import (
	"context"
	"math"
	"slices"
	"testing"

	"testbed/allreduce"
	"testbed/node/state"
	"testbed/train"
)

// TestLearner: on threads of their own or not, the inner steps lead to what the
// trainer says, and the loss is that of the outer state when it was asked for.
func TestLearner(t *testing.T) {
	const parameters = 500
	task := train.NewQuadratic(3, parameters)
	var first []float32
	for _, long := range []bool{false, true} {
		trainer, err := task.Trainer(1)
		if err != nil {
			t.Fatal(err)
		}
		fragments, err := train.Deal(task.Layers(), 1)
		if err != nil {
			t.Fatal(err)
		}
		outer := state.NewOuter(task.Start(), train.DiLoCo, fragments, nil)
		l := New(Config{Task: task, Trainer: trainer, Outer: outer, Exchange: &train.Exchange{Fragments: fragments}, Long: long})
		gradient := make([]float32, parameters)
		for round := 1; round <= 3; round++ {
			for step := 1; step <= 4; step++ {
				if loss, _, err := l.Step(t.Context(), round, step); err != nil || loss <= 0 {
					t.Fatalf("round %d, step %d: loss %v, %v", round, step, loss, err)
				}
			}
			if err := l.Contribute(round, gradient, false); err != nil {
				t.Fatal(err)
			}
			l.Keep()
			before, want := l.Loss(), 0.0
			outer.Read(func(p []float32) { want, _ = task.Validate(p) })
			outer.Step(gradient, nil)
			if long {
				review(t, l, gradient, round > 1)
			}
			got, err := before()
			if after, _ := l.Loss()(); err != nil || got != want || got == after {
				t.Errorf("round %d: loss %v, %v, want %v, then %v", round, got, err, want, after)
			}
		}
		if first == nil {
			first = slices.Clone(gradient)
		} else if !slices.Equal(first, gradient) {
			t.Error("a thread of its own computes something else")
		}
		if _, _, err := l.Step(t.Context(), 4, 2); err == nil {
			t.Error("a round begins with its second step")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := l.Step(ctx, 4, 1); err == nil {
			t.Error("a step is taken for nobody")
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// review holds what is told of a contribution against it, as it was when the
// review began.
func review(t *testing.T, l *Learner, gradient []float32, validate bool) {
	t.Helper()
	contribution := slices.Clone(gradient)
	tell := l.Review(1, contribution, gradient, allreduce.Format{Bits: 4, Block: 64}, validate)
	clear(contribution)
	events, err := tell()
	if err != nil || len(events) != 1 && !validate || len(events) != 2 && validate {
		t.Fatalf("%v: %+v", err, events)
	}
	c := events[0].Contribution
	if math.Abs(c.Cosine-1) > 1e-9 || c.QuantisationError < 0.01 || c.QuantisationError > 0.5 || (len(c.Layers) > 0) != validate {
		t.Errorf("%+v", c)
	}
	if loss, err := l.Loss()(); validate && (err != nil || *events[1].Loss != loss) {
		t.Errorf("loss %v, want %v, %v", *events[1].Loss, loss, err)
	}
}
